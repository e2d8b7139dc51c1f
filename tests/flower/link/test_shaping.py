"""Lanes of the link on a clock that is late."""

import pytest

from fedtempo.flower.link.shaping import Client
from support.uplink import MBIT


class LateLoop:
    """A clock on which each timer fires 4 ms late."""

    def __init__(self):
        self.now, self.timers = 0.0, []

    def time(self):
        return self.now

    def call_at(self, when, action):
        self.timers.append((when, action))

    def run(self):
        while self.timers:
            when, action = self.timers.pop(0)
            self.now = max(self.now, when) + 0.004
            action()


class Bytes:
    """A connection that has so many bytes to send."""

    def __init__(self, client, size):
        self.client, self.left, self.sent = client, size, []
        client.connections.append(self)

    @property
    def ready(self):
        return self.left > 0

    waiting = ready

    def take(self, size):
        size = min(size, self.left)
        self.left -= size
        return bytes(size)

    def deliver(self, piece):
        self.sent.append(self.client.loop.now)


def test_late_timers_do_not_slow_a_lane_down_and_connections_take_turns():
    loop = LateLoop()
    client = Client(loop, rate=MBIT, trickle=1.0, control_size=0)  # 1250 bytes in 10 ms
    first, second = Bytes(client, 125_000), Bytes(client, 62_500)
    client.lane.wake()
    loop.run()
    assert first.sent[-1] == pytest.approx(1.5, abs=0.005)
    assert second.sent[-1] == pytest.approx(1.0, abs=0.005)
    assert len(first.sent) == 100
