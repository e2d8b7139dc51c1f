"""Times that change from round to round: the same whenever they are asked for."""

import pickle

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.randomness import stream
from fedtempo.simulator.absences import WithAbsences
from fedtempo.simulator.channel import ChannelState, StaticChannel, TraceChannel, UnknownTimes, Untold
from fedtempo.simulator.fading import FadingChannel
from fedtempo.simulator.traces import RateTrace, upload_seconds
from support.channels import PACKETS, RATES, static


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


def test_times_that_nobody_knows_are_the_same_times():
    plain, hidden = make("absences", 5, seed=2), UnknownTimes(make("absences", 5, seed=2))
    for r in (0, 7):
        assert same(hidden.at(r, 2.0 * r), plain.at(r, 2.0 * r))
        assert (hidden.at(r, 2.0 * r).known, plain.at(r, 2.0 * r).known) == (False, True)
    outside = WithAbsences(UnknownTimes(static(5)), present_share=0.5, seed=2)
    assert not outside.at(3, 0.0).known, "absences leave the rest of a state as it is"
    assert Untold is UnknownTimes, "its name until 0.1"


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
