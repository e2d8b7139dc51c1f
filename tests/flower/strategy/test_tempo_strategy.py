"""Policies on Flower nodes: the same cohorts, weights and models as in the simulator."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.clientapp import ClientApp

from fedtempo import InputError
from fedtempo.engine.records import RECORDS
from fedtempo.experiments import runner
from fedtempo.experiments.config import read_experiment
from fedtempo.flower.app.run_config import pack
from fedtempo.flower.strategy.messages import CONFIG
from fedtempo.flower.strategy.tempo_strategy import TempoStrategy, _name
from fedtempo.policies.registry import BUILT_IN
from fedtempo.randomness import stream
from support.flower_runs import StoppedError, grid_of, nodes_of, stop_after_three, train, trainer_of

SAME = ("members", "counts", "weights")


def simulated(config, policy, *, rounds=3, seed=0):
    experiment, _ = read_experiment(config)
    stop = replace(experiment.stop, target_loss=None, target_accuracy=None, max_rounds=rounds)
    simulation = runner.make_simulation(replace(experiment, stop=stop), policy, seed)
    return list(simulation.rounds()), simulation.model


@pytest.mark.parametrize("policy", [name for name in BUILT_IN if name != "proposed-oracle"])
def test_on_the_simulated_clock_records_are_those_of_the_simulator(config, policy):
    expected, model = simulated(config, policy)
    records, found = train(config, policy, clock="simulated")
    assert len(records) == len(expected)
    for record, other in zip(records, expected, strict=True):
        for name in other:
            if isinstance(other[name], list) and other[name] and isinstance(other[name][0], float):
                np.testing.assert_allclose(record[name], other[name], rtol=1e-4)
            elif isinstance(other[name], float):
                assert record[name] == pytest.approx(other[name], rel=1e-4), name
            elif name != "note":
                assert record[name] == other[name], name
    np.testing.assert_allclose(found, model, atol=1e-5)


@pytest.mark.parametrize("policy", ["uniform", "weighted", "full", "kvib", "clustered", "ocs", "power-of-choice"])
def test_on_the_wall_clock_cohorts_weights_and_models_are_those_of_the_simulator(config, policy):
    expected, model = simulated(config, policy)
    records, found = train(config, policy)
    for record, other in zip(records, expected, strict=True):
        for name in SAME:
            if name in other:
                np.testing.assert_allclose(record[name], other[name], rtol=1e-5)
    np.testing.assert_allclose(found, model, atol=1e-5)


@pytest.mark.parametrize("policy", ["tempo", "fedbuff"])
def test_asynchronous_policies_step_as_updates_arrive(config, policy):
    records, model = train(config, policy, rounds=20)
    *rounds, summary = records
    assert summary["rounds"] == 20
    assert rounds[-1]["loss"] < rounds[0]["loss"]
    assert np.isfinite(model).all()


@pytest.mark.parametrize("policy", ["weighted", "tempo", "proposed"])
def test_a_run_that_was_stopped_goes_on_from_its_records(config, tmp_path, monkeypatch, policy):
    monkeypatch.setattr("fedtempo.engine.run.CHECKPOINT_SECONDS", 0.0)

    settings = {"records": tmp_path / "run", "clock": "simulated"}
    with pytest.raises(StoppedError):
        train(config, policy, rounds=6, **settings, progress=stop_after_three)
    _, model = train(config, policy, rounds=6, **settings)
    _, whole = train(config, policy, rounds=6, records=tmp_path / "whole", clock="simulated")
    assert (tmp_path / "run" / RECORDS).read_bytes() == (tmp_path / "whole" / RECORDS).read_bytes()
    np.testing.assert_array_equal(model, whole)


def test_an_app_in_which_everyone_fails_ends_the_run_and_says_why(config):
    app = ClientApp()
    app.train()(lambda message, context: {}["learning rate"])
    grid = grid_of(config, "uniform", app=app)
    with pytest.raises(RuntimeError, match=r"5 rounds one after another.*KeyError\('learning rate'\)"):
        train(config, "uniform", grid, rounds=50, nodes=nodes_of(grid))


def test_a_run_waits_for_nodes_until_the_deadline_alone(config):
    grid = grid_of(config, "uniform")
    nodes, online = nodes_of(grid), set(grid.online)
    grid.online = set()
    with pytest.raises(RuntimeError, match=r"some node must be connected, got none for 0\.5 s"):
        train(config, "uniform", grid, nodes=nodes, deadline=0.5)
    threading.Timer(0.5, lambda: grid.online.update(online)).start()
    records, _ = train(config, "uniform", grid, nodes=nodes, deadline=30.0)
    assert records[-1]["rounds"] == 3


def sampler(fleet):
    return fleet.data_share


class Sampler:
    def __call__(self, fleet):
        return fleet.data_share


def test_policies_have_the_same_name_in_every_process():
    assert _name("tempo") == "tempo"
    assert _name(sampler) == f"{__name__}.sampler"
    assert _name(Sampler()) == _name(Sampler) == f"{__name__}.Sampler"


def test_step_size_and_steps_of_an_app_count_where_the_strategy_has_none(config, caplog):
    grid, model = grid_of(config, "uniform"), trainer_of(config).initial_model(stream(0, "initial model"))
    app_config = ConfigRecord({"lr": 0.5, "local-steps": 7})
    for given, sent in (({}, (0.5, 7)), ({"step_size": 0.2}, (0.2, 7))):
        strategy = TempoStrategy("uniform", cohort_size=2, nodes=nodes_of(grid), **given)
        strategy.start(grid, pack(model), 1, train_config=app_config)
        last = grid.sent[-1].content.config_records[CONFIG]
        assert (last["lr"], last["local-steps"]) == sent
    assert "train_config has lr 0.5, but step_size 0.2 counts" in caplog.text


@pytest.mark.parametrize(
    ("policy", "settings", "message"),
    [
        ("tempo", {"cohort_size": 2, "fraction_train": 0.5}, "settings of TempoStrategy must be known"),
        ("tempo", {}, "cohort_size must be given"),
        ("temp", {"cohort_size": 2}, "did you mean 'tempo'"),
        ("tempo", {"cohort_size": 2, "fleet": "fleet.csv"}, "read_fleet"),
        ("tempo", {"cohort_size": 2, "seed": -1}, "seed must be a whole number of at least 0, got -1"),
    ],
)
def test_wrong_settings_are_refused_before_anything_starts(policy, settings, message):
    with pytest.raises(InputError, match=message):
        TempoStrategy(policy, **settings)
