"""Times that change from round to round: the same whenever they are asked for, and as the models say."""

import itertools
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from fedtempo import InputError
from fedtempo.randomness import stream
from fedtempo.simulator.channel import ChannelState, StaticChannel, TraceChannel
from fedtempo.simulator.markov import FadingChannel, WithAbsences, mean_inverse_rate
from fedtempo.simulator.times import TimesSpec, benchmark_times, draw_times
from fedtempo.simulator.traces import PACKET_BITS, RateTrace, read_mahimahi, read_rate_csv, upload_seconds

DATA = Path(os.environ.get("FEDTEMPO_DATA", ""), "traces")
needs_traces = pytest.mark.skipif(
    "FEDTEMPO_DATA" not in os.environ or not any(DATA.glob("*.up")),
    reason="FEDTEMPO_DATA does not name a folder with traces/*.up",
)
needs_scores = pytest.mark.skipif(
    "FEDTEMPO_DATA" not in os.environ or not (DATA / "benchmark2score.json").exists(),
    reason="FEDTEMPO_DATA does not name a folder with traces/benchmark2score.json",
)

PACKETS = RateTrace.of_packets([3, 3, 7, 20, 20, 20, 41])
RATES = RateTrace.of_rates([5.0, 6.0, 8.0, 8.5], [1.0, 0.0, 3.0, 0.5])


def static(size, seed=0):
    compute, upload = np.random.default_rng(seed).exponential(size=(2, size))
    return StaticChannel(compute, upload)


def make(kind, size, seed):
    state = static(size).at(0, 0.0)
    fading = FadingChannel(state.compute_time, state.upload_time, correlation=0.9, seed=seed)
    return {
        "static": lambda: StaticChannel(state.compute_time, state.upload_time),
        "traces": lambda: TraceChannel(state.compute_time, [PACKETS, RATES], model_bits=2e5, seed=seed),
        "fading": lambda: fading,
        "dropouts": lambda: WithAbsences(static(size), present_share=0.4, seed=seed),
        "absences": lambda: WithAbsences(fading, present_share=0.6, absence_rounds=4.0, seed=seed),
    }[kind]()


def same(one, other):
    pairs = [
        (one.compute_time, other.compute_time),
        (one.upload_time, other.upload_time),
        (one.available, other.available),
    ]
    return all((a is None and b is None) or np.array_equal(a, b) for a, b in pairs)


KINDS = ["static", "traces", "fading", "dropouts", "absences"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 7])
def test_the_answer_does_not_depend_on_what_was_asked_before(kind, size):
    channel = make(kind, size, seed=3)
    in_order = [channel.at(r, 1.7 * r) for r in range(30)]
    asked_at_random = make(kind, size, seed=3)
    for r in np.random.default_rng(1).integers(30, size=60):
        assert same(asked_at_random.at(int(r), 1.7 * r), in_order[r])
    resumed = make(kind, size, seed=3)
    assert all(same(resumed.at(r, 1.7 * r), in_order[r]) for r in range(17, 30))
    carried_over = pickle.loads(pickle.dumps(channel))
    assert all(same(carried_over.at(r, 1.7 * r), in_order[r]) for r in (29, 4))


@pytest.mark.parametrize("kind", KINDS[1:])
def test_another_seed_gives_other_times(kind):
    one, again, other = (make(kind, 20, seed) for seed in (5, 5, 6))
    assert all(same(one.at(r, 2.0 * r), again.at(r, 2.0 * r)) for r in range(5))
    assert not any(same(one.at(r, 2.0 * r), other.at(r, 2.0 * r)) for r in range(5))


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_run_is_given_cannot_be_overwritten(kind):
    state = make(kind, 4, seed=1).at(3, 5.0)
    assert "4 clients" in repr(state)
    for values in (state.compute_time, state.upload_time, state.available):
        if values is not None:
            with pytest.raises(ValueError, match="read-only"):
                values[0] = 1


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


def test_clients_follow_their_traces_from_their_own_offsets():
    size, seed, bits = 500, 8, 1e5
    channel = TraceChannel(np.zeros(size), [PACKETS, RATES], model_bits=bits, seed=seed, total_bandwidth=2.0)
    choice = stream(seed, "trace choice").integers(2, size=size)
    offset = stream(seed, "trace offsets").random(size)
    for time in (0.0, 12.3):
        upload_time = channel.at(0, time).upload_time
        for client in range(size):
            trace = (PACKETS, RATES)[choice[client]]
            alone = trace.delivery_seconds(np.array([offset[client] * trace.period + time]), bits)
            assert upload_time[client] == pytest.approx(2.0 * float(alone[0]), rel=1e-12)
    mean_rate = np.array([trace.mean_mbps for trace in (PACKETS, RATES)])[choice]
    np.testing.assert_allclose(channel.nominal_upload_time, 2.0 * upload_seconds(bits, mean_rate))
    constant = TraceChannel(np.zeros(3), [RateTrace.of_rates([0.0], [4.0])], model_bits=2e6, seed=1)
    np.testing.assert_allclose(constant.at(5, 77.7).upload_time, upload_seconds(2e6, 4.0))


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


@pytest.mark.parametrize(("snr", "deepest"), [(10.0, 1e-3), (1e-3, 1e-3), (1e5, 1e-6), (3.0, 1.0), (1e20, 1e-20)])
def test_the_mean_of_a_fading_upload_is_a_known_integral(snr, deepest):
    def integrand(log_gain):
        gain = np.exp(log_gain)
        return gain * np.exp(-gain) / np.log1p(snr * gain)

    edges = np.linspace(np.log(deepest), np.log(700), 30)
    above = sum(quad(integrand, a, b, epsabs=0)[0] for a, b in itertools.pairwise(edges))
    below = (1 - np.exp(-deepest)) / np.log1p(snr * deepest)
    assert mean_inverse_rate(snr, deepest) == pytest.approx(above + below, rel=1e-9)


@pytest.mark.parametrize("correlation", [0.0, 0.8, 1.0])
def test_fading_keeps_the_nominal_mean_time_in_every_round(correlation):
    nominal = np.full(200_000, 3.0)
    channel = FadingChannel(nominal, nominal, correlation=correlation, seed=4)
    for r in (0, 1, 12):
        upload_time = channel.at(r, 0.0).upload_time
        spread = upload_time.std() / np.sqrt(nominal.size)
        assert abs(upload_time.mean() - 3.0) < 4 * spread
        assert spread < 0.05
        np.testing.assert_array_equal(channel.at(r, 0.0).compute_time, nominal)


def gains(channel, r, snr, nominal, deepest):
    """Read |h|² back out of the upload times."""
    return np.expm1(nominal / channel.at(r, 0.0).upload_time / mean_inverse_rate(snr, deepest)) / snr


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.95])
def test_fading_is_a_stationary_gauss_markov_chain(correlation):
    size, snr, deepest = 100_000, 10.0, 1e-9
    nominal = np.linspace(0.1, 5.0, size)
    channel = FadingChannel(nominal, nominal, correlation=correlation, seed=5, deepest_fade_db=-90.0)
    gain = np.array([gains(channel, r, snr, nominal, deepest) for r in range(9)])
    # |h|² ~ Exp(1) in each round, and its correlation over k rounds is the square of that of h, ρ^2k.
    assert gain.mean(axis=1) == pytest.approx(np.ones(9), abs=0.015)
    assert gain.std(axis=1) == pytest.approx(np.ones(9), abs=0.03)
    assert np.quantile(gain[8], [0.01, 0.5]) == pytest.approx([0.01005, np.log(2)], rel=0.1)
    for lag in (1, 3, 8):
        assert np.corrcoef(gain[0], gain[lag])[0, 1] == pytest.approx(correlation ** (2 * lag), abs=0.015)
    neighbours = np.corrcoef(gain[0, :-1], gain[0, 1:])[0, 1]
    assert neighbours == pytest.approx(0, abs=0.015)  # clients fade independently


def test_no_fade_is_deeper_than_the_deepest():
    nominal = np.ones(10_000)
    channel = FadingChannel(nominal, nominal, correlation=0.5, seed=6, snr_db=0.0, deepest_fade_db=-10.0)
    longest = 1 / np.log1p(0.1) / mean_inverse_rate(1.0, 0.1)
    assert channel.at(2, 0.0).upload_time.max() == pytest.approx(longest)


def lengths_of_runs(present):
    """Return the mean lengths of presences and absences that begin and end within the rounds; a column is a client."""
    found = {True: [], False: []}
    for column in present.T:
        edges = np.flatnonzero(np.diff(column)) + 1
        for begin, end in itertools.pairwise(edges):
            found[bool(column[begin])].append(end - begin)
    return np.mean(found[True]), np.mean(found[False])


@pytest.mark.parametrize(("share", "absence"), [(0.7, 5.0), (0.3, 2.5), (0.5, 1.0), (0.8, None), (0.25, None)])
def test_presences_have_the_stated_share_and_lengths(share, absence):
    channel = WithAbsences(static(200), present_share=share, absence_rounds=absence, seed=9)
    present = np.array([channel.at(r, 0.0).available for r in range(600)])
    away = 1 / share if absence is None else absence
    assert present[0].mean() == pytest.approx(share, abs=0.12)
    assert present.mean() == pytest.approx(share, abs=0.02)
    assert lengths_of_runs(present) == pytest.approx((away * share / (1 - share), away), rel=0.05)
    if absence is None:  # dropouts: what was says nothing about what comes
        assert np.mean(present[1:] & present[:-1]) == pytest.approx(share**2, abs=0.02)


def test_clients_may_differ_in_how_often_they_are_there():
    share = np.repeat([0.1, 0.5, 1.0], 100)
    channel = WithAbsences(static(300), present_share=share, absence_rounds=np.maximum(1, (1 - share) / share), seed=2)
    present = np.mean([channel.at(r, 0.0).available for r in range(400)], axis=0).reshape(3, 100)
    assert present.mean(axis=1) == pytest.approx([0.1, 0.5, 1.0], abs=0.02)
    assert np.all(present[2] == 1)


def test_somebody_is_always_there_and_nobody_is_favoured():
    share, size, rounds = 0.1, 3, 6000
    channel = WithAbsences(static(size), present_share=share, seed=3)
    present = np.array([channel.at(r, 0.0).available for r in range(rounds)])
    assert np.all(present.any(axis=1))
    expected = share + (1 - share) ** size / size
    assert present.mean(axis=0) == pytest.approx(np.full(size, expected), abs=0.025)
    alone = WithAbsences(static(1), present_share=0.01, absence_rounds=200.0, seed=3)
    assert all(alone.at(r, 0.0).available[0] for r in range(50))


def test_absences_add_up_and_leave_somebody_who_is_allowed():
    inner = WithAbsences(static(5), present_share=0.4, seed=1)
    outer = WithAbsences(inner, present_share=0.2, seed=2)
    for r in range(100):
        allowed, there = inner.at(r, 0.0).available, outer.at(r, 0.0).available
        assert there.any()
        assert not np.any(there & ~allowed)


@pytest.mark.parametrize(
    ("spec", "mean", "median"),
    [
        (TimesSpec("exponential", mean=2.0), 2.0, 2 * np.log(2)),
        (TimesSpec("uniform", low=0.22, high=5.04), 2.63, 2.63),
        (TimesSpec("constant", value=0.5), 0.5, 0.5),
        (TimesSpec("lognormal", median=3.0, sigma=0.5), 3 * np.exp(0.125), 3.0),
    ],
)
def test_drawn_times_follow_their_distribution(spec, mean, median):
    times = draw_times(spec, 100_000, stream(1, "times"))
    assert times.mean() == pytest.approx(mean, rel=0.02)
    assert np.median(times) == pytest.approx(median, rel=0.02)
    np.testing.assert_array_equal(draw_times(spec, 3, stream(1, "times")), draw_times(spec, 3, stream(1, "times")))
    assert draw_times(spec, 1, stream(1, "times")).shape == (1,)


@pytest.mark.parametrize(
    ("kind", "parameters", "said"),
    [
        ("gamma", {}, "kind must be one of constant, exponential, lognormal, uniform, got 'gamma'"),
        ("exponential", {}, "must have a number mean, got none"),
        ("exponential", {"mean": 0.0}, "mean must be positive"),
        ("exponential", {"mean": "1"}, "number mean, got '1'"),
        ("exponential", {"mean": True}, "number mean, got True"),
        ("exponential", {"mean": 1.0, "low": 0.0}, "must have mean alone, got low too"),
        ("uniform", {"low": 1.0}, "must have a number high"),
        ("uniform", {"low": 2.0, "high": 1.0}, "low must not exceed high"),
        ("uniform", {"low": -1.0, "high": 1.0}, "low must be zero or positive"),
        ("constant", {"value": np.inf}, "value must be zero or positive, and finite"),
        ("lognormal", {"median": 0.0, "sigma": 1.0}, "median must be positive"),
    ],
)
def test_bad_distributions_are_refused(kind, parameters, said):
    with pytest.raises(InputError, match=said):
        TimesSpec(kind, **parameters)


def test_faster_phones_compute_faster(tmp_path):
    path = tmp_path / "scores.json"
    path.write_text(json.dumps({"slow": 100, "fast": 400, "middling": 200.0}))
    times = benchmark_times(path, 3000, 7.0, stream(1, "phones"))
    distinct, counts = np.unique(times, return_counts=True)
    np.testing.assert_allclose(distinct, [3.0, 6.0, 12.0])  # 1/400, 1/200 and 1/100, scaled to a mean of 7
    assert counts == pytest.approx([1000, 1000, 1000], rel=0.1)
    np.testing.assert_array_equal(times, benchmark_times(path, 3000, 7.0, stream(1, "phones")))
    assert benchmark_times(path, 1, 7.0, stream(2, "phones"))[0] in distinct


@needs_scores
def test_recorded_scores_spread_sixtyfold():
    times = benchmark_times(DATA / "benchmark2score.json", 200_000, 2.0, stream(1, "phones"))
    assert times.mean() == pytest.approx(2.0, rel=0.02)
    low, high = np.quantile(times, [0.05, 0.95])
    assert high / low == pytest.approx(60, rel=0.1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be JSON"),
        ("{", "must be JSON"),
        ("[1, 2]", "must hold an object"),
        ("{}", "at least one phone"),
        ('{"a": 0}', "positive number, got 0 for 'a'"),
        ('{"a": 1, "b": "2"}', "got '2' for 'b'"),
        ('{"a": true}', "got True"),
        ('{"a": NaN}', "got nan"),
    ],
)
def test_bad_scores_are_refused_in_one_sentence(tmp_path, text, said):
    path = tmp_path / "scores.json"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as refused:
        benchmark_times(path, 5, 1.0, stream(1))
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


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


ONES = np.ones(2)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: StaticChannel([1.0], [0.0]), "upload_time must be positive and finite, got 0 for client number 0"),
        (lambda: StaticChannel([-1.0], [1.0]), "compute_time must be zero or positive"),
        (lambda: StaticChannel([1.0, np.nan], ONES), "got nan for client number 1"),
        (lambda: StaticChannel([], []), "one entry for each client"),
        (lambda: StaticChannel(ONES, [1.0]), "upload_time must have one entry for each client"),
        (lambda: StaticChannel(["a"], [1.0]), "compute_time must hold numbers"),
        (lambda: ChannelState(ONES, ONES, np.zeros(2, dtype=bool)), "at least one client"),
        (lambda: ChannelState(ONES, ONES, np.ones(2)), "true or false for each of the 2 clients"),
        (lambda: ChannelState(ONES, ONES, np.ones(3, dtype=bool)), "true or false for each of the 2 clients"),
        (lambda: TraceChannel(ONES, [], model_bits=1.0, seed=1), "at least one trace"),
        (lambda: TraceChannel(ONES, [RATES], model_bits=0.0, seed=1), "model_bits must be positive"),
        (lambda: RateTrace(np.array([0.0, 1.0]), np.array([1.0, 2.0])), "bits of a trace must start at 0"),
        (lambda: RateTrace(np.array([0.0]), np.array([0.0])), "two points or more"),
        (lambda: FadingChannel(ONES, ONES, correlation=1.1, seed=1), "correlation must lie between 0 and 1"),
        (lambda: FadingChannel(ONES, ONES, correlation=0.5, seed=1, snr_db=np.nan), "snr_db must lie between"),
        (lambda: FadingChannel(ONES, ONES, correlation=0.5, seed=1, deepest_fade_db=3.0), "deepest_fade_db must lie"),
        (lambda: WithAbsences(static(2), present_share=0.0, seed=1), "present_share must be positive"),
        (lambda: WithAbsences(static(2), present_share=1.5, seed=1), "not above 1, got 1.5"),
        (lambda: WithAbsences(static(2), present_share=[0.5], seed=1), "present_share must have one entry for each"),
        (lambda: WithAbsences(static(2), present_share=0.2, absence_rounds=3.0, seed=1), "absence_rounds must be"),
        (lambda: WithAbsences(static(2), present_share=0.9, absence_rounds=0.5, seed=1), "absence_rounds must be"),
        (lambda: make("fading", 2, 1).at(-1, 0.0), "round_index must be zero or positive"),
    ],
)
def test_bad_input_is_refused(build, said):
    with pytest.raises(InputError, match=said):
        build()
