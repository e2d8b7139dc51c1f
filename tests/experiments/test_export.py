"""Records as a table: one row for each round, with the numbers of the records."""

import json
import math

import pytest

import fedtempo
from fedtempo.checks import InputError
from fedtempo.engine.records import RECORDS, RoundRecord
from fedtempo.experiments.export import export_rounds, rows_of
from fedtempo.experiments.running.results import read_run
from support.runs import run_file, stopped_run


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


def test_parquet_opens_in_pandas_with_the_types_of_the_records(config, tmp_path):
    pandas = pytest.importorskip("pandas")
    config.write_text(config.read_text().replace("local_steps = 5", "local_steps = 5\nevaluate_every = 100"))
    run_file(config, tmp_path / "run")
    export_rounds([tmp_path / "run" / RECORDS], tmp_path / "rounds.parquet")
    frame = pandas.read_parquet(tmp_path / "rounds.parquet")
    assert (frame.seed.dtype, frame.time.dtype) == ("int64", "float64")
    assert frame.loss.dtype == frame.accuracy.dtype == "float64", "although none is known"
    records = read_run(tmp_path / "run" / RECORDS).records
    assert [list(members) for members in frame.members] == [record.members for record in records]
    assert all(len(members) == 0 for members in frame.failed)


def lose_a_member(path):
    """Let the first member of the last round be one that failed."""
    *lines, last = path.read_text().splitlines()
    record = json.loads(last)
    record["failed"], record["upload_time"][0] = record["members"][:1], None
    path.write_text("\n".join([*lines, json.dumps(record)]) + "\n")


def test_records_are_read_as_a_data_frame_of_rounds(config, tmp_path):
    pytest.importorskip("pandas")
    run_file(config, tmp_path / "runs/a", "proposed", 2)
    stopped_run(config, tmp_path / "runs/b")
    lose_a_member(tmp_path / "runs/b" / RECORDS)
    frame = fedtempo.read_runs(tmp_path / "runs")
    assert list(frame.columns)[:5] == ["run", "experiment", "preset", "policy", "seed"]
    assert frame.groupby("policy").seed.first().to_dict() == {"proposed": 2, "uniform": 0}
    runs = [read_run(tmp_path / "runs" / name / RECORDS) for name in "ab"]
    records = [record for run in runs for record in run.records]
    assert frame.time.tolist() == [record.time for record in records]
    assert frame.members.tolist() == [record.members for record in records]
    for shown, record in zip(frame.upload_time, records, strict=True):
        assert [None if math.isnan(one) else one for one in shown] == record.upload_time
    assert math.isnan(frame.upload_time.iloc[-1][0])
    assert frame.loss.dtype == "float64"


def test_records_are_read_as_a_data_frame_of_runs(config, tmp_path):
    pytest.importorskip("pandas")
    run_file(config, tmp_path / "a", "proposed", 2)
    stopped_run(config, tmp_path / "b")
    frame = fedtempo.read_runs([tmp_path / "a", str(tmp_path / "b")], kind="runs").set_index("policy")
    ended, stopped = frame.loc["proposed"], frame.loc["uniform"]
    summary = read_run(tmp_path / "a" / RECORDS).summary
    assert all(ended[name] == summary[name] for name in ("end", "rounds", "time", "pilot_rounds", "pilot_time", "loss"))
    assert math.isnan(ended.time_to_loss)
    records = read_run(tmp_path / "b" / RECORDS).records
    assert stopped[["end"]].isna().all()
    assert (stopped["rounds"], stopped.time) == (len(records), records[-1].time)
    assert stopped.loss == records[-1].loss
    assert frame.time_to_loss.dtype == "float64"


def test_bad_input_to_the_reader_gets_one_sentence(config, tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    with pytest.raises(InputError, match=r"kind must be one of rounds, runs, got 'all'"):
        fedtempo.read_runs(tmp_path, kind="all")
    with pytest.raises(InputError, match="must hold records of runs"):
        fedtempo.read_runs(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(InputError, match=r"pip install 'fedtempo\[report\]'"):
        fedtempo.read_runs(tmp_path)
