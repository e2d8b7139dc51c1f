"""Clients of real federations: slow, silent, wrong about numbers, or sending what no model is."""

import json
import math
import threading
import time

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord
from flwr.clientapp import ClientApp

from fedtempo.engine.records import RECORDS
from fedtempo.flower.app.client_app import app as client_app
from fedtempo.flower.app.model_arrays import MODEL, pack
from fedtempo.flower.strategy.failures import FailureKind
from fedtempo.flower.strategy.messages import ARRAYS, ASK, CONFIG, MEASUREMENTS
from fedtempo.flower.strategy.notes import failures_in
from support.flower_runs import grid_of, nodes_of, train


def spoiled(spoil, whom=lambda number, context: context.node_config["partition-id"] == 2):
    """Return the ready app, of which some train replies are spoiled: by their number, or by whose they are."""
    replies = []

    def train_and_spoil(message, context):
        reply = client_app(message, context)
        if message.content.config_records[CONFIG].get(ASK) is None:
            replies.append(context.node_id)
            if whom(len(replies), context):
                spoil(reply)
        return reply

    app = ClientApp()
    app.train()(train_and_spoil)
    app.evaluate()(client_app)
    return app


def send(data, stype="numpy.ndarray"):
    def spoil(reply):
        model = reply.content[ARRAYS][MODEL]
        reply.content[ARRAYS] = ArrayRecord({MODEL: Array(model.dtype, model.shape, stype, data or model.data)})

    return spoil


@pytest.mark.parametrize(
    "spoil", [send(None, "torch"), send(b" "), send(b"PK\x03\x04 no archive"), send(b"\x93NUMPY")],
    ids=["other kind", "empty", "archive", "cut off"],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(config, spoil):
    grid = grid_of(config, "full", app=spoiled(spoil))
    run = train(config, "full", grid, rounds=2, nodes=nodes_of(grid))
    assert run.summary.rounds == 2
    assert [record.failed for record in run.rounds] == [[2], [2]]
    assert failures_in(run.rounds[0])[2].kind is FailureKind.REFUSED


@pytest.mark.parametrize("policy", ["proposed", "tempo", "oort"])
def test_numbers_that_cannot_be_count_as_not_reported(config, policy, tmp_path):
    def spoil(reply):
        reply.content[MEASUREMENTS] = MetricRecord(
            {
                "compute-seconds": math.inf,
                "largest-gradient-norm": math.nan,
                "mean-gradient-norm": -1.0,
                "loss": math.inf,
            }
        )

    grid = grid_of(config, policy, app=spoiled(spoil, lambda number, context: number % 2 == 0))
    run = train(config, policy, grid, rounds=6, nodes=nodes_of(grid), records=tmp_path)
    assert run.summary.rounds == 6
    for line in (tmp_path / RECORDS).read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} in the records"))


def absurd(reply):
    reply.content[ARRAYS] = pack(reply.content[ARRAYS][MODEL].numpy() + np.float32(1e6))


@pytest.mark.parametrize("policy", ["tempo", "fedbuff", "uniform"])
def test_the_very_first_update_may_be_absurd(config, policy):
    grid = grid_of(config, policy, app=spoiled(absurd, lambda number, context: number == 1))
    run = train(config, policy, grid, rounds=5, nodes=nodes_of(grid))
    assert run.rounds[0].failed
    assert np.abs(run.model).max() < 10


def test_updates_of_nothing_do_not_make_the_others_absurd(config):
    def nothing(reply):
        reply.content[ARRAYS] = pack(0 * reply.content[ARRAYS][MODEL].numpy())

    grid = grid_of(config, "full", app=spoiled(nothing, lambda number, context: number <= 7))
    run = train(config, "full", grid, rounds=1, nodes=nodes_of(grid))
    assert run.rounds[0].failed == []
    assert np.abs(run.model).max() > 0


@pytest.mark.slow
def test_who_is_silent_when_asked_costs_the_chosen_nothing(config):
    """Optimal client sampling asks everyone first, and fetches then; both must end by the deadline."""
    grid = grid_of(config, "ocs")
    grid.silent, grid.delay = {1000}, 0.4
    run = train(config, "ocs", grid, rounds=3, nodes=nodes_of(grid), deadline=4.0)
    assert run.summary.rounds == 3
    assert all(record.failed == [] for record in run.rounds)
    assert all(record.round_time < 6 for record in run.rounds)


def test_without_a_link_uploads_are_what_computing_leaves(config):
    grid = grid_of(config, "full")
    grid.delay = 0.5
    run = train(config, "full", grid, rounds=1, nodes=nodes_of(grid), deadline=60.0, link="shared")
    assert all(0.4 < seconds < 30 for seconds in run.rounds[0].upload_time)


def test_nothing_is_asked_for_once_a_run_has_ended(config):
    grid = grid_of(config, "fedbuff")
    train(config, "fedbuff", grid, rounds=2, nodes=nodes_of(grid), deadline=60.0)
    end = time.monotonic() + 10
    while waiting := [one for one in threading.enumerate() if "_wait_for" in one.name]:
        assert time.monotonic() < end, waiting
        time.sleep(0.1)
