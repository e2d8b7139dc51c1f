"""Messages to nodes: ends of uploads, and replies that cannot be read."""

import time

import pytest
from flwr.app import MetricRecord
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError
from flwr.superlink.grid import http_grid
from google.protobuf.message import DecodeError

from fedtempo.flower.app.client_app import app as client_app
from fedtempo.flower.inner.uploads import notice_ends_of_uploads
from fedtempo.flower.strategy.failures import FailureKind
from fedtempo.flower.strategy.notes import failures_in
from support.flower_grid import InProcessGrid
from support.flower_runs import grid_of, nodes_of, train


def test_the_end_of_an_upload_is_noticed_soon():
    """By itself Flower would look after 1, 3 and 7 seconds, and 500 times at most."""
    assert notice_ends_of_uploads(0.2, 0.5)
    complete = time.monotonic() + 3.2

    def pull(object_id):
        if time.monotonic() < complete:
            raise ObjectUnavailableError(object_id)
        return b"update"

    assert http_grid.pull_objects(["one"], pull) == {"one": b"update"}
    assert time.monotonic() < complete + 2.0
    assert http_grid.pull_objects.keywords["max_tries_per_object"] is None


class SpoiledGrid(InProcessGrid):
    """A grid on which what one node trained cannot be made a message of."""

    problem = None

    def pull_messages(self, message_ids):
        found = super().pull_messages(message_ids)
        if any(message.metadata.src_node_id == 1014 for message in found):
            raise self.problem
        return found


def garbage():
    """Return what Flower raises where it opens a record whose bytes are none, though its head is right."""
    whole = MetricRecord({"loss": 1.0}).deflate()
    with pytest.raises(DecodeError) as raised:
        MetricRecord.inflate(whole[:-3] + b"\xff" * 9)
    return raised.value


@pytest.mark.parametrize("problem", [ValueError("of no type"), RecursionError("of no end"), garbage()], ids=repr)
def test_a_reply_that_flower_cannot_read_is_refused(config, problem):
    like = grid_of(config, "full")
    contexts = list(like.contexts.values())
    grid = SpoiledGrid(client_app, [one.node_config for one in contexts], contexts[0].run_config)
    grid.problem = problem
    run = train(config, "full", grid, rounds=2, nodes=nodes_of(grid))
    assert run.summary.rounds == 2
    assert [record.failed for record in run.rounds] == [[2], [2]]
    failure = failures_in(run.rounds[0])[2]
    assert failure.kind is FailureKind.REFUSED
    assert str(failure).startswith("refused: a reply must be readable")


def test_what_goes_wrong_on_the_network_is_not_taken_for_an_odd_reply(config):
    grid = grid_of(config, "full")

    def broken(message_ids):
        raise ConnectionError("the SuperLink is gone")

    nodes, grid.pull_messages = nodes_of(grid), broken
    with pytest.raises(ConnectionError):
        train(config, "full", grid, rounds=2, nodes=nodes)
