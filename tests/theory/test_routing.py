"""Routing of tasks: the stationary q against a general minimiser and closed forms."""

import numpy as np
import pytest
from scipy.optimize import minimize

from fedtempo.theory.routing import optimal_routing, routing_time


def fleet(seed, size):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(size)), *rng.exponential(size=(2, size))


@pytest.mark.parametrize("staleness", [0.0, 0.25, 2.0])
@pytest.mark.parametrize(("seed", "size", "in_flight"), [(0, 3, 1), (1, 4, 2), (2, 6, 4), (3, 12, 3), (4, 12, 20)])
def test_no_other_q_takes_less_time(seed, size, in_flight, staleness):
    p, tau, t = fleet(seed, size)
    q = optimal_routing(p, tau, t, in_flight, staleness)
    assert q.sum() == pytest.approx(1)
    assert (q > 0).all()
    best = routing_time(q, p, tau, t, in_flight, staleness)

    def time_of(logits):
        other = np.exp(logits - logits.max())
        return routing_time(other / other.sum(), p, tau, t, in_flight, staleness)

    for start in (np.log(p), np.log(q) + 0.5 * np.sin(np.arange(size))):
        found = minimize(time_of, start, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 3000})
        assert best <= found.fun * (1 + 1e-7)


def test_one_in_flight_without_staleness_is_the_papers_limit():
    """Y is then the time of one client on its own, so q is in proportion to p/√(τ + t)."""
    p, tau, t = fleet(5, 20)
    expected = p / np.sqrt(tau + t)
    np.testing.assert_allclose(optimal_routing(p, tau, t, 1, 0.0), expected / expected.sum(), rtol=1e-4)


def test_where_the_link_is_always_busy_uploads_alone_count():
    p, _, t = fleet(6, 20)
    expected = p / np.sqrt(t)
    np.testing.assert_allclose(optimal_routing(p, np.zeros(20), t, 5, 0.0), expected / expected.sum(), rtol=1e-4)


def test_staleness_is_what_the_network_says():
    """Σ q D = M - 1 + 1: an update counts itself among the steps that come while it is in flight."""
    _, tau, t = fleet(7, 8)
    q = np.full(8, 1 / 8)
    plain, with_staleness = (routing_time(q, q, tau, t, 6, kappa) for kappa in (0.0, 1.0))
    assert with_staleness == pytest.approx(plain * (1 + 6)), "with q = p the weights are 1 and D has the mean M"


def test_equal_clients_are_drawn_by_their_data_and_such_without_data_never():
    p = np.array([0.5, 0.0, 0.3, 0.2])
    q = optimal_routing(p, np.ones(4), np.ones(4), 3)
    np.testing.assert_allclose(q, p, rtol=1e-5)
    assert optimal_routing(p, np.ones(4), np.zeros(4), 3).sum() == pytest.approx(1), "uploads that take no time"
