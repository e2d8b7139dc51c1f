"""Records as a table: one row for each round, with the numbers of the records."""

import pytest

from fedtempo.checks import InputError
from fedtempo.engine.records import RECORDS, RoundRecord
from fedtempo.experiments.export import export_rounds, rows_of
from fedtempo.experiments.running.results import read_run
from support.runs import run_file


def test_a_row_names_its_run_and_holds_its_round(config, tmp_path):
    run_file(config, tmp_path / "run", "proposed", 2)
    run = read_run(tmp_path / "run" / RECORDS)
    rows = rows_of(run)
    assert [row["round"] for row in rows] == [record.round for record in run.records]
    first = rows[0]
    assert (first["run"], first["experiment"], first["policy"], first["seed"]) == (
        str(tmp_path / "run"), "small", "proposed", 2,
    )  # fmt: skip
    assert set(first) == {"run", "experiment", "preset", "policy", "seed", *RoundRecord.__struct_fields__} - {"note"}
    assert all(row[name] == record[name] for row, record in zip(rows, run.records, strict=True) for name in ("loss",))


def test_the_ending_says_which_kind_of_file(config, tmp_path):
    run_file(config, tmp_path / "run")
    assert export_rounds([tmp_path / "run" / RECORDS], tmp_path / "rounds.csv") == 6
    assert len((tmp_path / "rounds.csv").read_text().splitlines()) == 7
    with pytest.raises(InputError, match=r"must be .parquet or .csv, got 'rounds.xls'"):
        export_rounds([tmp_path / "run" / RECORDS], tmp_path / "rounds.xls")
    assert not (tmp_path / "rounds.xls").exists()
