"""Who to draw how often and with how many bits: against enumeration, closed forms and limits."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtempo import Fleet, InputError, optimal_sampling, optimal_sampling_and_bits, round_cost
from fedtempo.theory.optimum import minimise_time
from support.fleets import random_fleet

BITS = (2, 4, 8, 32)
USUAL_NOISE = (8.0, 0.2, 1e-3, 0.0)


def cost_of(fleet, size, bits):
    """Return c_i(b)."""
    return (round_cost(fleet, cohort_size=size) - fleet.ready_time) * np.asarray(bits) / 32 + fleet.ready_time


def noise_of(noise, places):
    """Return ω_i(b_i)."""
    return np.broadcast_to(noise, (len(places), np.shape(noise)[-1]))[np.arange(len(places)), places]


def objective(fleet, size, ratio, q, bits, omega):
    """Return P3 for given q and bits."""
    a = fleet.importance
    return (q @ cost_of(fleet, size, bits)) * (np.sum(a * a * (1 + omega) / q) + size * ratio)


def value_of(fleet, size, ratio, found, noise, bits=BITS):
    """Return P3 of what was found."""
    places = [bits.index(b) for b in found.bits.tolist()]
    return objective(fleet, size, ratio, found.sampling_prob, found.bits, noise_of(noise, places))


def least_of_all(fleet, size, ratio, noise, bits=BITS):
    """Return the least P3 over every combination of bits, each with its exact q."""
    least = np.inf
    for places in itertools.product(range(len(bits)), repeat=len(fleet)):
        chosen, omega = np.asarray(bits)[list(places)], noise_of(noise, list(places))
        weight = fleet.importance * np.sqrt(1 + omega)
        q = minimise_time(weight, cost_of(fleet, size, chosen), size * ratio)
        least = min(least, objective(fleet, size, ratio, q, chosen, omega))
    return least


def identical(rng, size, kinds=1):
    """Return a fleet of identical devices, or of some kinds of them."""
    kind = np.arange(size) % kinds
    norm, compute, upload = (10 ** rng.uniform(-2, 2, kinds)[kind] for _ in range(3))
    return Fleet(np.full(size, 1 / size), norm, compute, upload)


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("kinds", [0, 1, 2])  # of devices; 0: all of them differ
def test_no_combination_of_sizes_takes_less_time(kinds, part):
    rng = np.random.default_rng([30, kinds, part])
    for _ in range(25):
        clients = int(rng.integers(1, 6))
        fleet = identical(rng, clients, kinds) if kinds else random_fleet(rng, clients, decades=4)
        size, ratio = int(rng.integers(1, 9)), float(10 ** rng.uniform(-3, 3)) * float(fleet.importance.sum()) ** 2
        noise = np.sort(10 ** rng.uniform(-4, 2, (clients, 4)))[:, ::-1]
        noise = noise[0] if kinds else noise
        found = optimal_sampling_and_bits(
            fleet, cohort_size=size, beta_over_alpha=ratio, bits=BITS, quantisation_noise=noise
        )
        assert abs(found.sampling_prob.sum() - 1) < 1e-12
        assert value_of(fleet, size, ratio, found, noise) <= least_of_all(fleet, size, ratio, noise) * (1 + 1e-4)


def test_two_hundred_identical_devices_split_where_one_size_for_all_is_worse():
    """Times for all m that send 4 bits and N - m that send 8, of which enumeration looks at every m."""
    clients, size, ratio = 200, 10, 0.3
    fleet = Fleet(np.full(clients, 1 / clients), 1.0, 1.0, 1.0)
    mixed = 0
    for noise in np.linspace(1, 4, 40):
        omega = np.array([noise, 0.001])
        found = optimal_sampling_and_bits(
            fleet, cohort_size=size, beta_over_alpha=ratio, bits=(4, 8), quantisation_noise=omega
        )
        times = []
        for few in range(clients + 1):
            bits = np.where(np.arange(clients) < clients - few, 8, 4)
            each = np.where(bits == 4, *omega)
            q = minimise_time(fleet.importance * np.sqrt(1 + each), cost_of(fleet, size, bits), size * ratio)
            times.append(objective(fleet, size, ratio, q, bits, each))
        assert value_of(fleet, size, ratio, found, omega, (4, 8)) <= min(times) * (1 + 1e-9)
        mixed += len(set(found.bits.tolist())) == 2
    assert mixed


@given(st.integers(1, 40), st.integers(1, 50), st.floats(-12, 12), st.integers(0, 2**32))
def test_never_worse_than_one_size_for_all(clients, size, decades, seed):
    rng = np.random.default_rng(seed)
    fleet = random_fleet(rng, clients, decades=6)
    ratio = float(10.0**decades) * float(fleet.importance.sum()) ** 2
    found = optimal_sampling_and_bits(
        fleet, cohort_size=size, beta_over_alpha=ratio, bits=BITS, quantisation_noise=USUAL_NOISE
    )
    least = value_of(fleet, size, ratio, found, USUAL_NOISE)
    assert found.sampling_prob.min() > 0
    for bits, omega in zip(BITS, USUAL_NOISE, strict=True):
        cost = cost_of(fleet, size, np.full(clients, bits))
        q = minimise_time(fleet.importance * np.sqrt(1 + omega), cost, size * ratio)
        alone = objective(fleet, size, ratio, q, np.full(clients, bits), np.full(clients, omega))
        assert least <= alone * (1 + 1e-9)


def test_without_beta_each_client_minimises_its_own_cost():
    """C = 0: slow links send fewer bits, slow computers more; q ∝ a √((1 + ω)/c)."""
    fleet = Fleet([0.5, 0.3, 0.2], [1.0, 2.0, 1.5], [1e-3, 100.0, 1.0], [100.0, 1e-3, 1.0])
    q, bits = optimal_sampling_and_bits(
        fleet, cohort_size=2, beta_over_alpha=0.0, bits=BITS, quantisation_noise=USUAL_NOISE
    )
    costs = np.array([(1 + w) * cost_of(fleet, 2, np.full(3, b)) for b, w in zip(BITS, USUAL_NOISE, strict=True)])
    np.testing.assert_array_equal(bits, np.asarray(BITS)[costs.argmin(axis=0)])
    assert bits[0] < bits[1]
    omega = np.asarray(USUAL_NOISE)[costs.argmin(axis=0)]
    expected = fleet.importance * np.sqrt((1 + omega) / cost_of(fleet, 2, bits))
    np.testing.assert_allclose(q, expected / expected.sum(), rtol=1e-12)


def test_one_size_alone_is_the_optimum_without_a_choice():
    fleet = random_fleet(np.random.default_rng(3), 30, decades=4)
    settings = {"cohort_size": 5, "beta_over_alpha": 0.3}
    q, bits = optimal_sampling_and_bits(fleet, **settings, bits=(32,), quantisation_noise=[0.0])
    np.testing.assert_allclose(q, optimal_sampling(fleet, **settings), rtol=1e-10)
    assert (bits == 32).all()


def test_the_order_of_sizes_does_not_matter_and_noise_may_differ_by_client():
    fleet = random_fleet(np.random.default_rng(4), 12, decades=3)
    settings = {"cohort_size": 5, "beta_over_alpha": 0.3}
    first = optimal_sampling_and_bits(fleet, **settings, bits=BITS, quantisation_noise=USUAL_NOISE)
    again = optimal_sampling_and_bits(
        fleet, **settings, bits=BITS[::-1], quantisation_noise=np.tile(USUAL_NOISE[::-1], (12, 1))
    )
    np.testing.assert_array_equal(first.bits, again.bits)
    np.testing.assert_allclose(first.sampling_prob, again.sampling_prob, rtol=1e-12)


def test_links_with_a_cap_and_downloads_count_as_in_the_round():
    fleet = Fleet([0.5, 0.5], 1.0, [1.0, 1.0], [1.0, 1.0], download_time=[0.0, 3.0], bandwidth_cap=[0.01, 2.0])
    _, bits = optimal_sampling_and_bits(
        fleet, cohort_size=1, beta_over_alpha=0.0, bits=(4, 32), quantisation_noise=[0.3, 0.0]
    )
    assert bits.tolist() == [4, 32]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bits": ()}, "bits must be distinct numbers of bits from 1 to 32, got \\[\\]"),
        ({"bits": (4, 4)}, "bits must be distinct"),
        ({"bits": (4, 33)}, "bits must be distinct numbers of bits from 1 to 32"),
        ({"bits": (4, 8.5)}, "bits must"),
        ({"quantisation_noise": [1.0]}, r"quantisation_noise must have the shape \(2,\), or \(3, 2\)"),
        ({"quantisation_noise": [-1.0, 0.0]}, "quantisation_noise must be finite and not negative, got -1.0"),
        ({"quantisation_noise": [np.nan, 0.0]}, "quantisation_noise must be finite"),
        ({"cohort_size": 0}, "cohort_size must"),
        ({"beta_over_alpha": -1.0}, "beta_over_alpha must"),
    ],
)
def test_bad_input_is_one_sentence(change, said):
    fleet = random_fleet(np.random.default_rng(0), 3, decades=1)
    right = {"cohort_size": 2, "beta_over_alpha": 0.1, "bits": (4, 8), "quantisation_noise": [0.2, 0.0]}
    with pytest.raises(InputError, match=said):
        optimal_sampling_and_bits(fleet, **(right | change))
