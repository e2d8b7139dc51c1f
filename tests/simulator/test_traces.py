"""Traces of rates: uploads as in a simulation of each packet or interval, and files that are refused."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtempo import InputError
from fedtempo.randomness import stream
from fedtempo.simulator.times import benchmark_times
from fedtempo.simulator.traces import PACKET_BITS, RateTrace, read_mahimahi, read_rate_csv, upload_seconds
from support.channels import DATA, PACKETS, RATES

needs_traces = pytest.mark.skipif(
    "FEDTEMPO_DATA" not in os.environ or not any(DATA.glob("*.up")),
    reason="FEDTEMPO_DATA does not name a folder with traces/*.up",
)


def packet_by_packet(arrival_ms, start, bits):
    """Wait for one packet after another, lap after lap."""
    arrival = np.asarray(arrival_ms) / 1000
    left, lap = bits, 0
    while True:
        for time in arrival:
            if lap > 0 or time > start:
                left -= PACKET_BITS
                if left <= 0:
                    return lap * arrival[-1] + (time - start)
        lap += 1


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=12).filter(any).map(sorted),
    st.lists(st.one_of(st.floats(0, 200), st.integers(0, 200).map(float)), min_size=1, max_size=9),
    st.one_of(st.floats(1, 4e5), st.integers(1, 30).map(lambda packets: float(PACKET_BITS * packets))),
)
def test_packets_arrive_as_in_a_simulation_of_each(arrival, start_ms, bits):
    trace = RateTrace.of_packets(arrival)
    start = np.array(start_ms) / 1000
    expected = [packet_by_packet(arrival, s, bits) for s in start % trace.period]
    taken = trace.delivery_seconds(start, bits)
    assert np.all(taken > 0)
    np.testing.assert_allclose(taken, expected, rtol=1e-12, atol=1e-15)


def second_by_second(lengths, mbps, start, bits):
    """Send at one rate after another, lap after lap."""
    now, left, begin = start, bits, 0.0
    while True:
        for length, rate in zip(lengths, mbps, strict=True):
            end = begin + length
            if end > now:
                if rate > 0 and left <= 1e6 * rate * (end - now):
                    return now + left / (1e6 * rate) - start
                left -= 1e6 * rate * (end - now)
                now = end
            begin = end


@given(
    st.lists(st.tuples(st.floats(0.1, 9), st.one_of(st.just(0.0), st.floats(0.01, 50))), min_size=2, max_size=8),
    st.floats(0, 1),
    st.floats(1e-3, 30),
)
def test_a_varying_rate_delivers_as_in_a_simulation_of_each_interval(intervals, phase, laps):
    lengths, mbps = (list(column) for column in zip(*intervals, strict=True))
    if not any(mbps):
        mbps[0] = 1.0
    lengths[-1] = lengths[-2]
    trace = RateTrace.of_rates(np.append(0.0, np.cumsum(lengths[:-1])), mbps)
    start, bits = phase * 0.999 * trace.period, laps * float(trace.bits[-1])
    taken = trace.delivery_seconds(np.array([start, start + 3 * trace.period]), bits)
    # Where the last bit falls on the edge of a silent interval rounding decides on its side: so a bit more, a bit less.
    earliest, latest = (second_by_second(lengths, mbps, start, bits * (1 + slack)) for slack in (-1e-9, 1e-9))
    assert np.all(taken >= earliest - 1e-6)
    assert np.all(taken <= latest + 1e-6)


def test_traces_wrap_around_and_skip_silence():
    # 1 Mbit/s for 1 s, nothing for 2 s, 3 Mbit/s for 0.5 s, 0.5 Mbit/s for 0.5 s: 2.75 Mbit in 4 s.
    assert RATES.period == pytest.approx(4.0)
    assert RATES.mean_mbps == pytest.approx(2.75 / 4)
    for start, megabits, seconds in [
        (0.0, 0.5, 0.5),
        (0.0, 1.0, 1.0),  # the last bit before the silence does not wait for its end
        (0.0, 2.5, 3.5),
        (0.0, 2.75, 4.0),
        (1.5, 0.3, 1.6),
        (3.5, 0.5, 0.75),  # over the end
        (0.25, 2.75 * 1000 + 0.25, 4000.25),  # a thousand laps
    ]:
        assert RATES.delivery_seconds(np.array([start]), megabits * 1e6) == pytest.approx(seconds)
    silent_at_its_end = RateTrace.of_rates([0.0, 1.0, 2.0], [1.0, 0.0, 0.0])
    assert silent_at_its_end.delivery_seconds(np.array([0.5]), 0.5e6) == pytest.approx(0.5)
    assert silent_at_its_end.delivery_seconds(np.array([0.5]), 1.5e6) == pytest.approx(3.5)


def test_an_upload_takes_some_time_however_short():
    start = np.array([0.0, 0.3, 3.9999])
    assert np.all(RATES.delivery_seconds(start, 1e-12) > 0)


def test_trace_files_are_read(tmp_path):
    packets = tmp_path / "some.up"
    packets.write_text("3\n3\n7\n\n20\n20\n20\n41\n")
    np.testing.assert_array_equal(read_mahimahi(packets).time, PACKETS.time)
    np.testing.assert_array_equal(read_mahimahi(packets).bits, PACKETS.bits)
    assert read_mahimahi(packets).mean_mbps == pytest.approx(7 * 12e-3 / 0.041)
    rates = tmp_path / "some.csv"
    rates.write_text("mbps, time\n1,5\n0,6\n3,8\n0.5,8.5\n")
    np.testing.assert_array_equal(read_rate_csv(rates).time, RATES.time)
    np.testing.assert_array_equal(read_rate_csv(rates).bits, RATES.bits)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "at least one line"),
        ("\n \n", "at least one line"),
        ("1\ntwo\n", "must be a number, got 'two' in line 2"),
        ("1 2\n", "must be a number"),
        ("5\n3\n", "order of time"),
        ("-1\n3\n", "zero or positive, and finite, got -1 in line 1"),
        ("1\nnan\n", "finite, got nan in line 2"),
        ("0\n0\n", "must last some time"),
        (b"\xff\xfe1\n", "UTF-8"),
    ],
)
def test_bad_packet_traces_are_refused_in_one_sentence(tmp_path, text, said):
    path = tmp_path / "bad.up"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=said) as refused:
        read_mahimahi(path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "an empty file"),
        ("time,rate\n0,1\n", "columns must be time and mbps, got time, rate"),
        ("time,mbps\n", "at least one line"),
        ("time,mbps\n0,fast\n", "mbps must be a number, got 'fast' in line 2"),
        ("time,mbps\n0,1\n1,\n", "mbps must be a number, got an empty cell in line 3"),
        ("time,mbps\n0,1\n1\n", "2 cells, got 1 in line 3"),
        ("time,mbps\n0,1\n2,1\n1,1\n", "time must increase"),
        ("time,mbps\n0,1\n0,1\n", "time must increase"),
        ("time,mbps\n0,0\n1,0\n", "rate of 0 throughout"),
        ("time,mbps\n0,-1\n", "mbps must be zero or positive"),
        ("time,mbps\n0,inf\n", "finite"),
    ],
)
def test_bad_rate_files_are_refused_in_one_sentence(tmp_path, text, said):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as refused:
        read_rate_csv(path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("read", [read_mahimahi, read_rate_csv, lambda path: benchmark_times(path, 1, 1.0, stream(0))])
def test_files_that_are_not_there_or_not_files_are_refused(tmp_path, read):
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "nowhere")
    with pytest.raises(InputError, match="readable"):
        read(tmp_path)


@needs_traces
def test_recorded_traces_deliver_as_in_a_simulation_of_each_packet():
    for path in DATA.glob("*.up"):
        trace = read_mahimahi(path)
        arrival = np.array(path.read_text().split(), dtype=float)
        start = np.random.default_rng(2).uniform(0, trace.period, 4)
        for bits in (1e5, 3e7):
            expected = [packet_by_packet(arrival, s, bits) for s in start]
            np.testing.assert_allclose(trace.delivery_seconds(start, bits), expected, rtol=1e-9)
        assert trace.delivery_seconds(start, 20 * trace.bits[-1]) == pytest.approx(20 * trace.period, rel=0.1)


def test_upload_seconds():
    np.testing.assert_allclose(upload_seconds(8e6, [1.0, 4.0]), [8.0, 2.0])
    assert upload_seconds(1e6, 0.5) == pytest.approx(2.0)
    for bits, rate, said in [
        (0, 1.0, "model_bits"),
        (1, [1.0, 0.0], "rate_mbps must be positive"),
        (1, [], "at least"),
    ]:
        with pytest.raises(InputError, match=said):
            upload_seconds(bits, rate)
