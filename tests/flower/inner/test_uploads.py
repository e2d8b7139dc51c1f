"""How soon Flower's grid sees that an upload is complete."""

import sys
import time

from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError
from flwr.superlink.grid import http_grid

from fedtempo.flower.inner.uploads import notice_ends_of_uploads


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


def test_where_flower_has_changed_nothing_is_bound(monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr.superlink.grid", None)
    assert not notice_ends_of_uploads(0.2, 0.5)
