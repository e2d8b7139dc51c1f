"""Policies on Flower nodes: the same cohorts, weights and models as in the simulator."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
from flower_grid import InProcessGrid
from flwr.app import ArrayRecord, MetricRecord
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError
from flwr.superlink.grid import http_grid
from test_run import SMALL

from fedtempo import allocate_bandwidth
from fedtempo.engine.loop import DivergedError
from fedtempo.engine.records import RECORDS
from fedtempo.experiments import runner
from fedtempo.experiments.config import for_policy, read_experiment
from fedtempo.flower.app.client_app import app as client_app
from fedtempo.flower.strategy.nodes import FlowerClients
from fedtempo.flower.app.emulated import meet
from fedtempo.flower.strategy.evaluation import EVALUATION_LOSSES, loss_of
from fedtempo.flower.strategy.judge import Job
from fedtempo.flower.link.shaped import Upload
from fedtempo.flower.strategy.messages import ARRAYS, COHORT, COHORT_SIZE, CONFIG, ROUND
from fedtempo.flower.strategy.messenger import notice_ends_of_uploads
from fedtempo.flower.app.run_config import MODEL, pack
from fedtempo.flower.strategy.tempo_strategy import TempoStrategy
from fedtempo.policies.registry import BUILT_IN
from fedtempo.randomness import stream

SAME = ("members", "counts", "weights")


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL + "[policy.statistical]\nlosses = [2.2, 2.1]\nmax_rounds = 4\n")
    return path


def grid_of(config, policy, seed=0, app=client_app, clients=None):
    experiment, _ = read_experiment(config)
    clients = clients or runner.load_data(experiment.data).num_clients
    run_config = {"config": str(config), "preset": "paper", "policy": policy, "seed": seed}
    return InProcessGrid(app, [{"partition-id": number} for number in range(clients)], run_config)


def train(
    config, policy, grid=None, *, rounds=3, seed=0, tells=("loss", "accuracy"), nonsense=False, whole=False, **settings
):
    """Return the records and the model of a run on Flower nodes, or the whole of Flower's result."""
    experiment, _ = read_experiment(config)
    training, options = for_policy(experiment, policy)
    data, trainer = runner.load_data(experiment.data), runner.load_trainer(experiment.model, experiment.data)
    fleet, _ = runner.make_fleet(experiment, data, 32.0 * trainer.num_parameters)
    records = []
    settings = {"options": options, "fleet": fleet, "seed": seed, "deadline": 5.0} | asdict(training) | settings
    stop = settings.pop("progress", lambda loop, record: None)
    evaluate_fn = settings.pop("evaluate_fn", None)

    def progress(loop, record):
        records.append(record)
        stop(loop, record)

    strategy = TempoStrategy(policy, progress=progress, **settings)

    def evaluate(server_round, arrays):
        found = trainer.evaluate(arrays[MODEL].numpy())
        told = {"loss": found.loss, "accuracy": found.accuracy}
        return MetricRecord({name: told[name] for name in tells} | ({"loss": np.nan} if nonsense else {}))

    result = strategy.start(
        grid=grid or grid_of(config, policy, seed),
        initial_arrays=pack(trainer.initial_model(stream(seed, "initial model"))),
        num_rounds=rounds,
        evaluate_fn=evaluate_fn or evaluate,
    )
    return records, result if whole else result.arrays[MODEL].numpy()


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


def broken(how):
    """Return an app whose client 2 does something wrong when it trains."""

    def spoil(message, context, call_next):
        reply = call_next(message, context)
        if message.metadata.message_type != "train" or context.node_config["partition-id"] != 2:
            return reply
        if how == "raises":
            raise RuntimeError("no more memory")
        if how == "silent":
            return reply
        model = reply.content[ARRAYS][MODEL].numpy().copy()
        spoiled = {
            "not a number": np.where(np.arange(model.size) == 3, np.nan, model).astype(np.float32),
            "infinite": np.full_like(model, np.inf),
            "wrong shape": model[:-1],
            "absurd": model + 1e6,
        }
        if how == "no model":
            del reply.content[ARRAYS]
        elif how == "other name":
            reply.content[ARRAYS] = ArrayRecord({"weights": reply.content[ARRAYS][MODEL]})
        elif how == "whole numbers":
            reply.content[ARRAYS] = ArrayRecord([np.ones(model.shape, dtype=np.int64)])
        else:
            reply.content[ARRAYS] = pack(spoiled[how])
        return reply

    app = ClientApp()
    app.train()(lambda message, context: spoil(message, context, client_app))
    app.evaluate()(client_app)
    return app


@pytest.mark.parametrize(
    "how",
    [
        "raises",
        "silent",
        "not a number",
        "infinite",
        "wrong shape",
        "absurd",
        "no model",
        "other name",
        "whole numbers",
    ],
)
def test_what_must_not_reach_the_model_does_not(config, how):
    """Everyone trains in each round; the model is then as if client 2 had failed, and the records say why."""
    grid = grid_of(config, "full", app=broken(how))
    grid.silent = {1014} if how == "silent" else set()
    records, model = train(
        config, "full", grid, rounds=2, nodes=nodes_of(grid), deadline=3.0 if how == "silent" else 60.0
    )
    *rounds, _ = records
    assert [record["failed"] for record in rounds] == [[2], [2]]
    said = rounds[0]["note"]["failures"]["2"]
    assert {"raises": "no more memory", "silent": "no reply"}.get(how, "refused") in said
    assert np.isfinite(model).all()
    assert np.abs(model).max() < 10


def test_a_client_that_cannot_compute_is_not_chosen_by_its_norm(config):
    """Optimal client sampling asks all for the norms of their updates first; client 2 raises there."""
    grid = grid_of(config, "ocs", app=broken("raises"))
    *rounds, summary = train(config, "ocs", grid, rounds=4, nodes=nodes_of(grid))[0]
    assert summary["rounds"] == 4
    assert not any(2 in record["members"] for record in rounds)
    assert all(np.isfinite(record["weights"]).all() for record in rounds)


def nodes_of(grid):
    return {node: context.node_config["partition-id"] for node, context in grid.contexts.items()}


def test_a_round_waits_for_the_silent_until_the_deadline_alone(config):
    grid = grid_of(config, "full")
    grid.silent = {1000}
    began = time.monotonic()
    records, _ = train(config, "full", grid, rounds=2, nodes=nodes_of(grid), deadline=0.7)
    assert 1.4 <= time.monotonic() - began < 10
    assert [record["failed"] for record in records[:-1]] == [[0], [0]]


def test_who_is_away_is_not_asked_and_comes_back(config):
    grid = grid_of(config, "uniform")
    grid.online -= {1000, 1007}
    away, _ = train(config, "uniform", grid, rounds=5, nodes=nodes_of(grid))
    assert not {0, 1} & {client for record in away[:-1] for client in record["members"]}
    grid.online |= {1000, 1007}
    back, _ = train(config, "uniform", grid, rounds=30, nodes=nodes_of(grid))
    assert {0, 1} <= {client for record in back[:-1] for client in record["members"]}


class StoppedError(Exception):
    """The server dies."""


def stop_after_three(loop, record):
    if loop.rounds_done == 3:
        raise StoppedError


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


def test_clients_in_flight_when_the_server_died_are_reported_as_lost(config, tmp_path, monkeypatch):
    monkeypatch.setattr("fedtempo.engine.run.CHECKPOINT_SECONDS", 0.0)
    grid = grid_of(config, "tempo")
    grid.silent, seen = {1000}, []

    def stop(loop, record):
        seen.append(0 in loop.clients.in_flight)
        if seen[-2:] == [True, True]:  # the checkpoint of the round before knows it
            raise StoppedError

    settings = {"records": tmp_path / "run", "nodes": nodes_of(grid), "deadline": 5.0}
    with pytest.raises(StoppedError):
        train(config, "tempo", grid, rounds=30, **settings, progress=stop)
    grid.silent = set()
    records, _ = train(config, "tempo", grid, rounds=30, **settings)
    first = records[0]
    assert first["failed"] == [0]
    assert first["note"]["failures"] == {"0": "lost"}
    assert records[-1]["rounds"] == 30


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


def test_members_of_a_round_are_told_what_they_share(config):
    grid = grid_of(config, "full")
    train(config, "full", grid, rounds=2, nodes=nodes_of(grid))
    configs = [message.content.config_records[CONFIG] for message in grid.sent]
    names = {config[ROUND]: {other[COHORT] for other in configs if other[ROUND] == config[ROUND]} for config in configs}
    assert [len(names[number]) for number in (1, 2)] == [1, 1]
    assert names[1] != names[2]
    assert {config[COHORT_SIZE] for config in configs} == {len(grid.online)}


def test_emulated_devices_begin_when_the_last_is_there(tmp_path):
    with ThreadPoolExecutor() as several:
        early = [several.submit(meet, tmp_path / "cohort", client, 3, 30.0) for client in range(2)]
        time.sleep(0.3)
        assert not any(one.done() for one in early)
        last = meet(tmp_path / "cohort", 2, 3, 30.0)
        assert [one.result() for one in early] == [last, last]
    assert last == max(path.stat().st_mtime for path in (tmp_path / "cohort").iterdir())
    assert last == (tmp_path / "cohort" / "2").stat().st_mtime


def test_emulated_devices_do_not_wait_for_one_that_died_beyond_their_patience(tmp_path):
    asked = time.time()
    assert asked + 0.2 <= meet(tmp_path, 0, 2, 0.2) <= time.time()


def test_the_end_of_an_upload_is_noticed_soon():
    """By itself Flower would look after 1, 3 and 7 seconds, and 500 times at most."""
    notice_ends_of_uploads()
    complete = time.monotonic() + 3.2

    def pull(object_id):
        if time.monotonic() < complete:
            raise ObjectUnavailableError(object_id)
        return b"update"

    assert http_grid.pull_objects(["one"], pull) == {"one": b"update"}
    assert time.monotonic() < complete + 2.0
    assert http_grid.pull_objects.keywords["max_tries_per_object"] is None


class NotedLink:
    """A link that takes note of what it is told, and serves one upload after another, two seconds each."""

    def __init__(self):
        self.allotted, self.asked, self.free = [], [], 0.0

    def allot(self, members, mode, shares=None):
        self.allotted.append((list(members), mode, shares))

    def measured(self, clients):
        self.asked.append(list(clients))
        uploads, start = {}, self.free
        for client in clients:
            self.free += 2.0
            uploads[client] = Upload(start, self.free, 1000)
        return uploads


@pytest.mark.parametrize("link", ["paper", "equal", "shared"])
def test_members_have_the_shares_of_the_link_and_times_are_brought_to_one_unit(config, link):
    uplink = NotedLink()
    records, _ = train(config, "uniform", uplink=uplink, link=link, duplicates="physical", rounds=4)
    experiment, _ = read_experiment(config)
    fleet, _ = runner.make_fleet(experiment, runner.load_data(experiment.data), 32.0)
    for record, (members, mode, shares) in zip(records[:-1], uplink.allotted, strict=True):
        assert (members, mode) == (record["members"], link)
        assert set(record["note"]["uploads"]) == {str(client) for client in members}
        if link == "paper":
            expected = allocate_bandwidth(fleet.compute_time[members], fleet.upload_time[members], 1.0).bandwidth
            np.testing.assert_allclose(shares, expected, rtol=1e-6)
        else:
            assert shares is None
        if link == "shared":
            np.testing.assert_allclose(record["upload_time"], 2.0)  # what they waited for others does not count
    assert uplink.asked == [members for members, _, _ in uplink.allotted]


def test_clients_that_start_one_by_one_share_the_link(config):
    uplink = NotedLink()
    train(config, "tempo", uplink=uplink, link="paper", rounds=5)
    assert {mode for _, mode, _ in uplink.allotted} == {"shared"}


def test_the_clock_goes_on_for_those_in_flight_while_the_server_evaluates(config):
    """Two clients at once, 0.4 s each; were the clock to stop, all but the first would seem to come at once."""
    grid = grid_of(config, "fedbuff")
    grid.delay = 0.4

    def evaluate(server_round, arrays):
        time.sleep(0.5)
        return MetricRecord({"loss": 1.0})

    *rounds, _ = train(
        config, "fedbuff", grid, rounds=6, options={"concurrency": 2}, cohort_size=1, evaluate_fn=evaluate
    )[0]
    assert sum(record["round_time"] for record in rounds) > 1.1


@pytest.mark.parametrize(
    ("began", "looked", "arrived", "seconds"),
    [
        (10.0, 10.0, [12.0, 14.0], 5.0),  # a round: up to its end, at 15
        (10.0, 13.0, [12.0], 4.0),  # there while the server evaluated until 13: from 10 to 12, and from 13 to 15
        (10.0, 13.0, [9.0], 2.0),  # there before
        (10.0, 13.0, [14.0], 5.0),  # waited for
        (10.0, 13.0, [12.0, None], 5.0),  # one was waited for in vain
    ],
)
def test_time_in_which_all_was_there_does_not_count(monkeypatch, began, looked, arrived, seconds):
    monkeypatch.setattr(time, "monotonic", lambda: 15.0)
    jobs = [Job(0, 1.0, 1, 0.1, 0.1, np.zeros(1), 0.0, sent=1.0, arrived=at) for at in arrived]
    clients = SimpleNamespace(began=began, looked=looked, ended=0.0)
    assert FlowerClients._seconds(clients, jobs) == pytest.approx(seconds)
    assert clients.ended == 15.0


def test_who_is_late_loses_its_share_of_the_link(config):
    grid, uplink = grid_of(config, "full"), NotedLink()
    grid.silent = {1014}
    *rounds, _ = train(config, "full", grid, rounds=2, nodes=nodes_of(grid), deadline=1.5, uplink=uplink)[0]
    assert all(2 in asked for asked in uplink.asked)
    assert all(set(record["note"]["uploads"]) == set("013456789") for record in rounds)


@pytest.mark.parametrize(("tells", "known"), [(("loss",), (True, False)), (("accuracy",), (False, False))])
def test_what_nobody_tells_is_left_open(config, tmp_path, tells, known):
    records, _ = train(config, "uniform", tells=tells, records=tmp_path / "run")
    for record in records:
        assert tuple(record[name] is not None for name in ("loss", "accuracy")) == known
    assert "NaN" not in (tmp_path / "run" / RECORDS).read_text()


def test_a_loss_that_is_no_number_ends_the_run(config):
    with pytest.raises(DivergedError, match="the loss is nan"):
        train(config, "uniform", nonsense=True)


@pytest.mark.parametrize(
    ("metrics", "loss"),
    [
        ({"val_loss": 9.0, "loss": 1.0}, 1.0),
        ({"packet-loss": 9.0, "Train_Loss": 2.0}, 2.0),
        ({"nll_loss": 3.0}, 3.0),
        ({"eval_loss": 9.0, "train_loss": 4.0}, 4.0),
    ],
)
def test_the_loss_is_the_metric_with_a_usual_name_if_there_is_one(metrics, loss):
    assert loss_of(metrics) == loss
    for other in ({"accuracy": 1.0}, {"packet_loss": 0.1}, {"loss_weight": 2.0}):
        assert np.isnan(loss_of(other))
    assert loss_of({"train_loss": 9.0, "eval_loss": 4.0}, EVALUATION_LOSSES) == 4.0
