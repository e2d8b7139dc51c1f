"""What must not end a run on Flower nodes, lose its model or change it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fedtempo import Fleet, InputError
from fedtempo.cli import main
from fedtempo.engine.records import RECORDS, read_lines
from fedtempo.experiments import runner
from fedtempo.experiments.config import read_experiment
from fedtempo.fleet_csv import read_fleet
from fedtempo.flower.strategy import tempo_strategy
from fedtempo.flower.strategy.messages import CONFIG
from fedtempo.flower.strategy.roster import ROSTER_FILE
from fedtempo.flower.strategy.tempo_strategy import MODEL_FILE
from fedtempo.simulator.channel import StaticChannel
from fedtempo.simulator.simulated_clients import SimulatedClients
from support.flower_runs import StoppedError, failing, grid_of, nodes_of, train


def test_half_a_letter_in_a_reason_is_written_down(config, tmp_path):
    grid = grid_of(config, "full", app=failing(2, reason="odd \ud800 reason"))
    train(config, "full", grid, rounds=2, nodes=nodes_of(grid), records=tmp_path / "run")
    rounds = [line for line in read_lines(tmp_path / "run" / RECORDS) if "members" in line]
    assert r"odd \ud800 reason" in rounds[0]["note"]["failures"]["2"]


def test_one_broken_node_of_two_does_not_end_a_run(config):
    grid = grid_of(config, "uniform", app=failing(1))
    grid.online = {1000, 1007}
    *rounds, summary = train(config, "uniform", grid, rounds=40, cohort_size=1, nodes=nodes_of(grid), seed=1)[0]
    assert summary["rounds"] == 40
    failed = "".join("x" if record["failed"] else "." for record in rounds)
    assert "xxxxx" in failed, "otherwise this shows nothing: take another seed"


def test_no_round_of_real_clients_is_trained_twice(config, tmp_path):
    """Killed after three rounds, however short they were."""
    grid = grid_of(config, "weighted")

    def killed(loop, record):
        if record.get("round") == 2:
            raise StoppedError

    settings = {"rounds": 5, "records": tmp_path / "run", "nodes": nodes_of(grid)}
    with pytest.raises(StoppedError):
        train(config, "weighted", grid, progress=killed, **settings)
    records, _ = train(config, "weighted", grid, **settings)
    assert [record.get("round") for record in records] == [3, 4, None]


def test_a_model_that_cannot_be_written_leaves_the_run_unfinished(config, tmp_path, monkeypatch):
    grid, written = grid_of(config, "weighted"), []
    settings = {"rounds": 3, "records": tmp_path / "run", "nodes": nodes_of(grid)}
    write = tempo_strategy._write_model

    def full_disk(path, arrays):
        written.append(path)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempo_strategy, "_write_model", full_disk)
    with pytest.raises(OSError, match="No space left"):
        train(config, "weighted", grid, **settings)
    assert written == [tmp_path / "run" / MODEL_FILE]
    sent = len(grid.sent)
    monkeypatch.setattr(tempo_strategy, "_write_model", write)
    (summary,), model = train(config, "weighted", grid, **settings)
    assert (summary["rounds"], len(grid.sent)) == (3, sent), "no round is trained again"
    np.testing.assert_allclose(model, train(config, "weighted", rounds=3)[1], atol=1e-6)
    np.testing.assert_array_equal(train(config, "weighted", grid, **settings)[1], model)


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
    assert [one.get("round") for one in train(config, "weighted", grid, rounds=4, **settings)[0]] == [2, 3, None]
    header = next(read_lines(tmp_path / "run" / RECORDS))["header"]
    assert (header["experiment"], header["policy"], header["config"]["stop"]["max_rounds"]) == ("mine", "weighted", 4)


def test_settings_may_be_numbers_of_numpy(config, tmp_path):
    options = {"beta_over_alpha": np.float64(0.5), "gradient_bound": np.ones(10)}
    given = {"cohort_size": np.int64(2), "step_size": np.float32(0.1)}
    records, _ = train(config, "proposed-oracle", options=options, records=tmp_path / "run", **given)
    assert records[-1]["rounds"] == 3


def test_a_run_that_goes_on_starts_again_from_the_model_that_it_started_from(config):
    """As pilots do: an app that makes a new random model in each process must not change it."""
    experiment, _ = read_experiment(config)
    one, other = (runner.make_simulation(experiment, "uniform", 0) for _ in range(2))
    one.initial = one.initial + np.float32(1.0)
    other.restore(*one.state())
    np.testing.assert_array_equal(other.initial, one.initial)


def test_under_the_simulated_clock_what_workers_know_goes_on_too():
    class Workers:
        num_parameters, known = 3, 1.0

        def state(self):
            return {"buffer": np.array(self.known)}

        def restore(self, arrays):
            self.known = float(arrays["buffer"])

    fleet = Fleet([1.0], [1.0], [1.0], [1.0])
    one, other = (
        SimulatedClients(
            workers=Workers(), samples=np.ones(1), fleet=fleet, training=None,
            channel=StaticChannel(fleet.compute_time, fleet.upload_time),
        )
        for _ in range(2)
    )  # fmt: skip
    one.workers.known = 5.0
    other.restore(one.state())
    assert other.workers.known == 5.0
    assert len(other.flight) == 0


def test_a_diverged_run_has_records_that_any_reader_of_json_takes(config, tmp_path):
    with pytest.raises(ArithmeticError):
        train(config, "uniform", nonsense=True, records=tmp_path / "run")
    for line in (tmp_path / "run" / RECORDS).read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} in the records"))


def test_caps_hold_on_links_that_know_shares_alone(config):
    experiment, _ = read_experiment(config)
    fleet, _ = runner.make_fleet(experiment, runner.load_data(experiment.data), 32.0)
    capped = replace(fleet, bandwidth_cap=np.full(10, 0.1))
    grid = grid_of(config, "full")
    train(config, "full", grid, rounds=1, fleet=capped, link="equal", nodes=nodes_of(grid))
    sent = [message.content.config_records[CONFIG] for message in grid.sent]
    assert {one["bandwidth"] for one in sent if "bandwidth" in one} == {0.1}
    with pytest.raises(InputError, match="bandwidth_cap must have the link paper or equal"):
        train(config, "full", fleet=capped, link="shared")
