"""Uploads in the counters of a network device."""

import pytest

from fedtempo.flower.link.upload_meter import Counters, UploadMeter
from support.uplink import MBIT


def meter_of(rate, *pieces):
    """Return what a meter sees of pieces (seconds, bytes sent in each, bytes received in each), in looks of 20 ms."""
    now, sent, received = 100.0, 5_000, 7_000
    meter = UploadMeter(rate, now, Counters(sent, received))
    for duration, up, down in pieces:
        for _ in range(round(duration / 0.02)):
            now, sent, received = now + 0.02, sent + up, received + down
            meter.look(now, Counters(sent, received))
    return meter.upload


def test_a_meter_tells_uploads_from_polls_and_downloads():
    full = 2_500  # bytes in 20 ms at 1 Mbit/s
    poll, idle = (0.02, 1_500, 900), (0.4, 0, 0)
    assert meter_of(MBIT, *[poll, idle] * 20) is None
    assert meter_of(MBIT, *[poll, (0.1, 0, 0)] * 20) is None
    assert meter_of(MBIT, (1.0, full // 2, 100_000)) is None
    start, end, size = meter_of(
        MBIT, poll, (2.0, 0, 0), (0.4, full, 60), (0.1, 0, 0), (0.4, full, 60), (2.0, 0, 0), poll
    )
    assert (start, end, size) == (pytest.approx(102.02), pytest.approx(102.92), 40 * full)
    in_two_runs = meter_of(MBIT, (0.4, full, 60), (1.0, 0, 0), poll, (1.0, 0, 0), (0.4, full, 60))
    assert (in_two_runs.end - in_two_runs.start, in_two_runs.size) == (pytest.approx(2.82), 40 * full)
