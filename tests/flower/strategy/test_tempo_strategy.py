"""Policies on Flower nodes: the same cohorts, weights and models as in the simulator."""

import threading

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.clientapp import ClientApp

from fedtempo import InputError
from fedtempo.engine.records import RECORDS, read_records
from fedtempo.flower.app.model_arrays import pack
from fedtempo.flower.strategy.layout import ALL_BUFFERS
from fedtempo.flower.strategy.messages import CONFIG
from fedtempo.flower.strategy.settings import policy_name
from fedtempo.flower.strategy.tempo_strategy import TempoStrategy
from fedtempo.policies.registry import BUILT_IN
from support.flower_runs import (
    StoppedError,
    grid_of,
    nodes_of,
    problem_of,
    simulated,
    simulation_like,
    stop_after,
    train,
)
from support.marks import slow_after
from support.runs import SMALL

SAME = ("members", "counts", "weights")
ON_NODES = [name for name in BUILT_IN if name != "proposed-oracle"]  # which must know what no node reports


@pytest.mark.parametrize("policy", ON_NODES)
def test_on_the_simulated_clock_records_are_those_of_the_simulator(config, policy):
    expected, model = simulated(config, policy)
    run = train(config, policy, clock="simulated")
    assert_same_records(run.rounds, expected)
    np.testing.assert_allclose(run.model, model, atol=1e-5)


def assert_same_records(found, expected):
    for record, other in zip(found, expected, strict=True):
        for name in other.keys():  # noqa: SIM118
            if isinstance(other[name], list) and other[name] and isinstance(other[name][0], float):
                np.testing.assert_allclose(record[name], other[name], rtol=1e-4)
            elif isinstance(other[name], float):
                assert record[name] == pytest.approx(other[name], rel=1e-4), name
            elif name != "note":
                assert record[name] == other[name], name


@pytest.fixture
def normalised(config):
    """A configuration whose model, of a user's own, has batch normalisation, with rules for its steps."""
    rules = 'clip_norm = 1.0\nproximal = 0.1\nlocal_schedule = "linear"\n'
    own = SMALL.replace('kind = "softmax"', 'kind = "support.modules:normed"').replace("[stop]", f"{rules}[stop]")
    config.write_text(own)
    return config


@pytest.mark.parametrize("policy", ["weighted", "tempo", "fedbuff", "power-of-choice"])
def test_statistics_of_batch_normalisation_are_those_of_the_simulator(normalised, policy):
    simulation = simulation_like(normalised, policy, rounds=4)
    expected = list(simulation.rounds())
    run = train(normalised, policy, rounds=4, clock="simulated")
    assert_same_records(run.rounds, expected)
    buffers = run.result.arrays[ALL_BUFFERS].numpy()
    np.testing.assert_allclose(buffers, simulation.state.buffers, atol=1e-5)
    assert np.abs(buffers - np.r_[np.zeros(12), np.ones(12)]).max() > 1e-2
    assert simulation.clients.workers.trainer.num_buffers == 24


@pytest.mark.parametrize(
    "policy", ["uniform", "weighted", "full", "kvib", "clustered", "ocs", "power-of-choice", "fedacg"]
)
def test_on_the_wall_clock_cohorts_weights_and_models_are_those_of_the_simulator(config, policy):
    expected, model = simulated(config, policy)
    run = train(config, policy)
    for record, other in zip(run.rounds, expected, strict=True):
        for name in SAME:
            np.testing.assert_allclose(record[name], other[name], rtol=1e-5)
    np.testing.assert_allclose(run.model, model, atol=1e-5)


@pytest.mark.parametrize("policy", ["tempo", "fedbuff", "fedasync", "ca2fl", "fadas", "routing"])
def test_asynchronous_policies_step_as_updates_arrive(config, policy):
    run = train(config, policy, rounds=20)
    assert run.summary.rounds == 20
    assert run.rounds[-1].loss < run.rounds[0].loss
    assert np.isfinite(run.model).all()


@pytest.mark.parametrize(
    ("policy", "after"),
    slow_after(
        3,
        [("weighted", 3), ("tempo", 3), ("proposed", 3), *((name, 2) for name in ON_NODES), ("tempo", 1), ("tempo", 5)],
    ),
)
def test_a_run_that_was_stopped_goes_on_from_its_records(config, tmp_path, monkeypatch, policy, after):
    monkeypatch.setattr("fedtempo.engine.run.CHECKPOINT_SECONDS", 0.0)
    settings = {"records": tmp_path / "run", "clock": "simulated"}
    with pytest.raises(StoppedError):
        train(config, policy, rounds=6, **settings, progress=stop_after(after))
    model = train(config, policy, rounds=6, **settings).model
    whole = train(config, policy, rounds=6, records=tmp_path / "whole", clock="simulated").model
    assert (tmp_path / "run" / RECORDS).read_bytes() == (tmp_path / "whole" / RECORDS).read_bytes()
    np.testing.assert_array_equal(model, whole)


@pytest.mark.parametrize("policy", slow_after(1, ["weighted", "uniform", "full", "kvib", "clustered", "ocs"]))
def test_on_the_wall_clock_a_stopped_run_goes_on_with_the_same_cohorts_and_model(config, tmp_path, policy):
    """Its seconds differ from run to run, so what does not depend on them is compared."""
    with pytest.raises(StoppedError):
        train(config, policy, rounds=5, records=tmp_path / "run", progress=stop_after(2))
    model = train(config, policy, rounds=5, records=tmp_path / "run").model
    whole = train(config, policy, rounds=5, records=tmp_path / "whole").model
    stopped, undisturbed = (read_records(tmp_path / name / RECORDS).rounds for name in ("run", "whole"))
    assert [[one[name] for name in SAME] for one in stopped] == [[one[name] for name in SAME] for one in undisturbed]
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
    assert train(config, "uniform", grid, nodes=nodes, deadline=30.0).summary.rounds == 3


def sampler(fleet):
    return fleet.data_share


class Sampler:
    def __call__(self, fleet):
        return fleet.data_share


def test_policies_have_the_same_name_in_every_process():
    assert policy_name("tempo") == "tempo"
    assert policy_name(sampler) == f"{__name__}.sampler"
    assert policy_name(Sampler()) == policy_name(Sampler) == f"{__name__}.Sampler"


def test_step_size_and_steps_of_an_app_count_where_the_strategy_has_none(config, caplog):
    grid, model = grid_of(config, "uniform"), problem_of(config).initial_model(0)
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
