"""What must not end a run on Flower nodes, lose its model or change it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fedtempo import Fleet, InputError
from fedtempo.cli import main
from fedtempo.engine.records import RECORDS, read_header, read_records
from fedtempo.fleet_csv import read_fleet
from fedtempo.flower.strategy import flower_run
from fedtempo.flower.strategy.messages import CONFIG
from fedtempo.flower.strategy.model_file import MODEL_FILE
from fedtempo.flower.strategy.notes import failures_in
from fedtempo.flower.strategy.roster import ROSTER_FILE
from support.flower_runs import StoppedError, failing, grid_of, nodes_of, problem_of, train


def test_half_a_letter_in_a_reason_is_written_down(config, tmp_path):
    grid = grid_of(config, "full", app=failing(2, reason="odd \ud800 reason"))
    train(config, "full", grid, rounds=2, nodes=nodes_of(grid), records=tmp_path / "run")
    first = read_records(tmp_path / "run" / RECORDS).rounds[0]
    assert r"odd \ud800 reason" in failures_in(first)[2].detail


def test_one_broken_node_of_two_does_not_end_a_run(config):
    grid = grid_of(config, "uniform", app=failing(1))
    grid.online = {1000, 1007}
    run = train(config, "uniform", grid, rounds=40, cohort_size=1, nodes=nodes_of(grid), seed=1)
    assert run.summary.rounds == 40
    failed = "".join("x" if record.failed else "." for record in run.rounds)
    assert "xxxxx" in failed, "otherwise this shows nothing: take another seed"


def test_no_round_of_real_clients_is_trained_twice(config, tmp_path):
    """Killed after three rounds, however short they were."""
    grid = grid_of(config, "weighted")

    def killed(loop, record):
        if record.round == 2:
            raise StoppedError

    settings = {"rounds": 5, "records": tmp_path / "run", "nodes": nodes_of(grid)}
    with pytest.raises(StoppedError):
        train(config, "weighted", grid, progress=killed, **settings)
    run = train(config, "weighted", grid, **settings)
    assert ([record.round for record in run.rounds], run.summary.rounds) == ([3, 4], 5)


def test_a_model_that_cannot_be_written_leaves_the_run_unfinished(config, tmp_path, monkeypatch):
    grid, written = grid_of(config, "weighted"), []
    settings = {"rounds": 3, "records": tmp_path / "run", "nodes": nodes_of(grid)}
    write = flower_run.write_model

    def full_disk(folder, arrays):
        written.append(folder)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(flower_run, "write_model", full_disk)
    with pytest.raises(OSError, match="No space left"):
        train(config, "weighted", grid, **settings)
    assert written == [tmp_path / "run"]
    assert not (tmp_path / "run" / MODEL_FILE).exists()
    sent = len(grid.sent)
    monkeypatch.setattr(flower_run, "write_model", write)
    run = train(config, "weighted", grid, **settings)
    assert (run.rounds, run.summary.rounds, len(grid.sent)) == ([], 3, sent), "no round is trained again"
    np.testing.assert_allclose(run.model, train(config, "weighted", rounds=3).model, atol=1e-6)
    np.testing.assert_array_equal(train(config, "weighted", grid, **settings).model, run.model)


def test_a_run_that_is_refused_leaves_the_nodes_of_the_other_alone(config, tmp_path):
    train(config, "weighted", records=tmp_path / "run")
    before = (tmp_path / "run" / ROSTER_FILE).read_text()
    grid = grid_of(config, "uniform")
    with pytest.raises(InputError, match="another run's records"):
        train(
            config, "uniform", grid, records=tmp_path / "run", nodes={node: 9 - c for node, c in nodes_of(grid).items()}
        )
    assert (tmp_path / "run" / ROSTER_FILE).read_text() == before


def test_shares_of_the_data_are_those_of_the_fleet_that_was_given(config, tmp_path):
    share = np.array([0.55, *[0.05] * 9])
    fleet = Fleet(share, np.ones(10), np.ones(10), np.ones(10))
    grid = grid_of(config, "weighted")
    settings = {"records": tmp_path / "run", "nodes": nodes_of(grid)}
    train(config, "weighted", grid, fleet=fleet, **settings)
    with pytest.raises(SystemExit) as ended:
        main(["estimate", str(tmp_path / "run"), "-o", str(tmp_path / "clients.csv")])
    assert ended.value.code == 0
    np.testing.assert_allclose(read_fleet(tmp_path / "clients.csv").data_share, share, rtol=1e-5)
    with pytest.raises(InputError, match="another run's records"):
        train(config, "weighted", grid, fleet=replace(fleet, data_share=share[::-1].copy()), **settings)


def test_a_header_of_ones_own_needs_nothing_else(config, tmp_path):
    grid = grid_of(config, "weighted")
    settings = {"records": tmp_path / "run", "nodes": nodes_of(grid), "header": {"experiment": "mine"}}
    train(config, "weighted", grid, rounds=2, **settings)
    assert [one.round for one in train(config, "weighted", grid, rounds=4, **settings).rounds] == [2, 3]
    header = read_header(tmp_path / "run" / RECORDS)
    assert (header.experiment, header.policy, header.config["stop"]["max_rounds"]) == ("mine", "weighted", 4)
    with pytest.raises(InputError, match="header must have fields of a header of records"):
        train(config, "weighted", records=tmp_path / "other", header={"experimnt": "mine"})


def test_settings_may_be_numbers_of_numpy(config, tmp_path):
    options = {"beta_over_alpha": np.float64(0.5), "gradient_bound": np.ones(10)}
    given = {"cohort_size": np.int64(2), "step_size": np.float32(0.1)}
    assert train(config, "proposed-oracle", options=options, records=tmp_path / "run", **given).summary.rounds == 3


def test_a_diverged_run_has_records_that_any_reader_of_json_takes(config, tmp_path):
    with pytest.raises(ArithmeticError):
        train(config, "uniform", nonsense=True, records=tmp_path / "run")
    for line in (tmp_path / "run" / RECORDS).read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} in the records"))


def test_caps_hold_on_links_that_know_shares_alone(config):
    capped = replace(problem_of(config).fleet, bandwidth_cap=np.full(10, 0.1))
    grid = grid_of(config, "full")
    train(config, "full", grid, rounds=1, fleet=capped, link="equal", nodes=nodes_of(grid))
    sent = [message.content.config_records[CONFIG] for message in grid.sent]
    assert {one["bandwidth"] for one in sent if "bandwidth" in one} == {0.1}
    with pytest.raises(InputError, match="bandwidth_cap must have the link paper or equal"):
        train(config, "full", fleet=capped, link="shared")
