"""Flower nodes as clients: who fails, who is not available, and what members share of the link."""

import time

import numpy as np
import pytest
from flwr.app import ArrayRecord, MetricRecord
from flwr.clientapp import ClientApp

from fedtempo import allocate_bandwidth
from fedtempo.flower.app.client_app import app as client_app
from fedtempo.flower.app.model_arrays import MODEL, pack
from fedtempo.flower.link.shaping import Upload
from fedtempo.flower.strategy.failures import Failure, FailureKind
from fedtempo.flower.strategy.messages import ARRAYS, COHORT, COHORT_SIZE, CONFIG, ROUND
from fedtempo.flower.strategy.notes import failures_in, uploads_in
from support.flower_runs import StoppedError, grid_of, nodes_of, problem_of, train


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
        pytest.param("silent", marks=pytest.mark.slow),
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
    run = train(config, "full", grid, rounds=2, nodes=nodes_of(grid), deadline=3.0 if how == "silent" else 60.0)
    assert [record.failed for record in run.rounds] == [[2], [2]]
    failure = failures_in(run.rounds[0])[2]
    kinds = {"raises": FailureKind.ERROR, "silent": FailureKind.NO_REPLY}
    assert failure.kind is kinds.get(how, FailureKind.REFUSED)
    assert how != "raises" or "no more memory" in failure.detail
    assert np.isfinite(run.model).all()
    assert np.abs(run.model).max() < 10


def test_a_client_that_cannot_compute_is_not_chosen_by_its_norm(config):
    """Optimal client sampling asks all for the norms of their updates first; client 2 raises there."""
    grid = grid_of(config, "ocs", app=broken("raises"))
    run = train(config, "ocs", grid, rounds=4, nodes=nodes_of(grid))
    assert run.summary.rounds == 4
    assert not any(2 in record.members for record in run.rounds)
    assert all(np.isfinite(record.weights).all() for record in run.rounds)


def test_a_round_waits_for_the_silent_until_the_deadline_alone(config):
    grid = grid_of(config, "full")
    grid.silent = {1000}
    began = time.monotonic()
    run = train(config, "full", grid, rounds=2, nodes=nodes_of(grid), deadline=0.7)
    assert 1.4 <= time.monotonic() - began < 10
    assert [record.failed for record in run.rounds] == [[0], [0]]


def test_who_is_not_connected_is_not_asked_and_comes_back(config):
    grid = grid_of(config, "uniform")
    grid.online -= {1000, 1007}
    without = train(config, "uniform", grid, rounds=5, nodes=nodes_of(grid)).rounds
    assert not {0, 1} & {client for record in without for client in record.members}
    grid.online |= {1000, 1007}
    back = train(config, "uniform", grid, rounds=30, nodes=nodes_of(grid)).rounds
    assert {0, 1} <= {client for record in back for client in record.members}


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
    run = train(config, "tempo", grid, rounds=30, **settings)
    assert run.rounds[0].failed == [0]
    assert failures_in(run.rounds[0]) == {0: Failure(FailureKind.LOST)}
    assert run.summary.rounds == 30


def test_members_of_a_round_know_what_they_share(config):
    grid = grid_of(config, "full")
    train(config, "full", grid, rounds=2, nodes=nodes_of(grid))
    configs = [message.content.config_records[CONFIG] for message in grid.sent]
    names = {config[ROUND]: {other[COHORT] for other in configs if other[ROUND] == config[ROUND]} for config in configs}
    assert [len(names[number]) for number in (1, 2)] == [1, 1]
    assert names[1] != names[2]
    assert {config[COHORT_SIZE] for config in configs} == {len(grid.online)}


class NotedLink:
    """A link that takes note of how it is called, and serves one upload after another, two seconds each."""

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
    rounds = train(config, "uniform", uplink=uplink, link=link, duplicates="physical", rounds=4).rounds
    fleet = problem_of(config).fleet
    for record, (members, mode, shares) in zip(rounds, uplink.allotted, strict=True):
        assert (members, mode) == (record.members, link)
        assert set(uploads_in(record)) == set(members)
        if link == "paper":
            expected = allocate_bandwidth(fleet.compute_time[members], fleet.upload_time[members], 1.0).bandwidth
            np.testing.assert_allclose(shares, expected, rtol=1e-6)
        else:
            assert shares is None
        if link == "shared":
            np.testing.assert_allclose(record.upload_time, 2.0)  # what they waited for others does not count
    assert uplink.asked == [members for members, _, _ in uplink.allotted]


def test_clients_that_start_one_by_one_share_the_link(config):
    uplink = NotedLink()
    train(config, "tempo", uplink=uplink, link="paper", rounds=5)
    assert {mode for _, mode, _ in uplink.allotted} == {"shared"}


@pytest.mark.slow
def test_the_clock_goes_on_for_those_in_flight_while_the_server_evaluates(config):
    """Two clients at once, 0.4 s each; were the clock to stop, all but the first would seem to come at once."""
    grid = grid_of(config, "fedbuff")
    grid.delay = 0.4

    def evaluate(server_round, arrays):
        time.sleep(0.5)
        return MetricRecord({"loss": 1.0})

    run = train(config, "fedbuff", grid, rounds=6, options={"concurrency": 2}, cohort_size=1, evaluate_fn=evaluate)
    assert sum(record.round_time for record in run.rounds) > 1.1


def test_who_is_late_loses_its_share_of_the_link(config):
    grid, uplink = grid_of(config, "full"), NotedLink()
    grid.silent = {1014}
    rounds = train(config, "full", grid, rounds=2, nodes=nodes_of(grid), deadline=1.5, uplink=uplink).rounds
    assert all(2 in asked for asked in uplink.asked)
    assert all(set(uploads_in(record)) == {0, 1, *range(3, 10)} for record in rounds)
