"""`fedtempo estimate` and `fedtempo export`: records are read back out."""

import csv
import json

import numpy as np
import pytest

from fedtempo import read_fleet
from fedtempo.experiments.running.problem import problem_of
from fedtempo.experiments.settings.config_file import load_experiment
from support.runs import command


def test_times_and_norms_are_read_back_out(config, tmp_path, capsys):
    assert command("run", config, "--policy", "proposed", "-o", tmp_path / "out", "--max-rounds", 60) == 0
    assert command("estimate", tmp_path / "out", "-o", tmp_path / "clients.csv") == 0
    assert "β/α" in capsys.readouterr().out
    fleet = read_fleet(tmp_path / "clients.csv")
    nominal = problem_of(load_experiment(config)).fleet
    np.testing.assert_allclose(fleet.compute_time, nominal.compute_time)
    np.testing.assert_allclose(fleet.upload_time, nominal.upload_time)
    np.testing.assert_allclose(fleet.data_share, nominal.data_share)
    assert np.all(fleet.gradient_bound > 0)
    assert command("plan", tmp_path / "clients.csv", "--cohort-size", 3, "--beta-over-alpha", 1) == 0


def test_rounds_are_exported(config, tmp_path, capsys):
    for seed in (0, 1):
        assert command("run", config, "--policy", "uniform", "--seed", seed, "-o", tmp_path / "runs" / str(seed)) == 0
    assert command("export", tmp_path / "runs", "-o", tmp_path / "all.csv") == 0
    with open(tmp_path / "all.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 12
    assert {row["seed"] for row in rows} == {"0", "1"}
    assert json.loads(rows[0]["members"])
    pyarrow = pytest.importorskip("pyarrow.parquet")
    assert command("export", tmp_path / "runs", "-o", tmp_path / "all.parquet") == 0
    table = pyarrow.read_table(tmp_path / "all.parquet")
    assert table.num_rows == 12
    assert table.column("loss").to_pylist() == [float(row["loss"]) for row in rows]
    assert command("export", tmp_path / "runs", "-o", tmp_path / "all.xls") == 2
