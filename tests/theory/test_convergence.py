"""Theorem 1: its formula, the variance that it rests on, and the bound against real training."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from fedtempo import (
    Fleet,
    InputError,
    LearningProblem,
    aggregation_weights,
    convergence_bound,
    draw_cohort,
    optimal_sampling,
    rounds_to_gap,
    sampling_variance,
    statistical_sampling,
    total_time_objective,
    uniform_sampling,
    weighted_sampling,
)


def test_the_bound_is_the_formula_of_the_paper(small_fleet):
    mu, smooth, steps, noise, gamma, distance = 0.5, 2.0, 5, np.array([1.0, 2.0, 0.5, 0.1]), 0.3, 4.0
    problem = LearningProblem(
        strong_convexity=mu, smoothness=smooth, local_steps=steps, gradient_noise=noise, heterogeneity=gamma,
        initial_distance=distance,
    )  # fmt: skip
    p, bound, q = small_fleet.data_share, small_fleet.gradient_bound, np.array([0.4, 0.1, 0.2, 0.3])
    alpha = 8 * smooth * steps / mu**2
    b = np.sum(p**2 * noise**2) + 8 * np.sum(p * bound**2) * steps**2
    beta = (
        2 * smooth / (mu**2 * steps) * b
        + 12 * smooth**2 / (mu**2 * steps) * gamma
        + 4 * smooth**2 / (mu * steps) * distance**2
    )
    expected = (alpha * np.sum(p**2 * bound**2 / (3 * q)) + beta) / 17
    found = convergence_bound(small_fleet, q, cohort_size=3, num_rounds=17, problem=problem)
    assert found == pytest.approx(expected, rel=1e-13)
    assert rounds_to_gap(small_fleet, q, cohort_size=3, gap=expected * 1.0001, problem=problem) == 17
    assert rounds_to_gap(small_fleet, q, cohort_size=3, gap=expected * 0.9999, problem=problem) == 18
    assert rounds_to_gap(small_fleet, q, cohort_size=3, gap=1e9, problem=problem) == 1


def test_many_local_steps_shift_the_schedule(small_fleet):
    settings = {"strong_convexity": 1.0, "smoothness": 1.0, "gradient_noise": 0.0, "heterogeneity": 0.0}
    few, many = (LearningProblem(**settings, local_steps=steps, initial_distance=1.0) for steps in (2, 50))
    assert (few.step_offset, many.step_offset) == (8.0, 50.0)
    assert few.step_size(0) == pytest.approx(0.25)
    assert many.step_size(10) == pytest.approx(2 / 60)
    still = LearningProblem(**settings, local_steps=50, initial_distance=0.0)
    assert many.beta(small_fleet) - still.beta(small_fleet) == pytest.approx(1.0 * 50 / (2 * 50))


def test_the_objective_is_time_times_rounds(small_fleet):
    q, size, ratio = np.array([0.4, 0.1, 0.2, 0.3]), 3, 0.9
    c = size * small_fleet.upload_time / 1.7 + small_fleet.compute_time
    a = small_fleet.data_share * small_fleet.gradient_bound
    expected = np.sum(q * c) * (np.sum(a**2 / (size * q)) + ratio)
    assert total_time_objective(small_fleet, q, cohort_size=size, beta_over_alpha=ratio) == pytest.approx(expected)


def test_the_variance_over_every_cohort_is_below_that_of_the_bound(small_fleet):
    """E‖w⁺ - w̄⁺‖² = (Σ p²‖Δ‖²/q - ‖Δ̄‖²)/K: the step of the proof in which the sampling enters."""
    rng = np.random.default_rng(40)
    update = rng.normal(size=(4, 6))
    fleet = Fleet(small_fleet.data_share, np.linalg.norm(update, axis=1), 1.0, 1.0)
    mean = fleet.data_share @ update
    for q in (uniform_sampling(fleet), weighted_sampling(fleet), statistical_sampling(fleet)):
        variance = 0.0
        for draws in itertools.product(range(4), repeat=3):
            cohort = np.array(draws)
            step = aggregation_weights(cohort, q, fleet.data_share) @ update[cohort]
            variance += q[cohort].prod() * np.sum((step - mean) ** 2)
        bound = sampling_variance(fleet, q, cohort_size=3)
        assert variance == pytest.approx(bound - mean @ mean / 3, rel=1e-12)


@dataclass
class Ridge:
    """ℓ2-regularised least squares on unequal clients, whose μ, L, w*, F* and Γ are known in closed form."""

    inputs: np.ndarray  # client, sample, feature
    outputs: np.ndarray  # client, sample
    share: np.ndarray
    decay: float = 0.5

    def __post_init__(self):
        samples, features = self.inputs.shape[1:]
        self.hessian = np.einsum("nsf,nsg->nfg", self.inputs, self.inputs) / samples + self.decay * np.eye(features)
        self.linear = np.einsum("nsf,ns->nf", self.inputs, self.outputs) / samples
        curvature = np.linalg.eigvalsh(self.hessian)
        self.mu, self.smooth = curvature.min(), curvature.max()
        self.best = np.linalg.solve(np.tensordot(self.share, self.hessian, 1), self.share @ self.linear)
        own_best = np.linalg.solve(self.hessian, self.linear[..., None])[..., 0]
        self.gap_of_clients = self.loss(self.best) - sum(
            p * self.client_loss(i, w) for i, (p, w) in enumerate(zip(self.share, own_best, strict=True))
        )

    def client_loss(self, client, w):
        residual = self.inputs[client] @ w - self.outputs[client]
        return np.mean(residual**2) / 2 + self.decay / 2 * w @ w

    def loss(self, w):
        return sum(p * self.client_loss(i, w) for i, p in enumerate(self.share))

    def gradients(self, clients, w):
        """Return the gradient of every sample of each client at its own w: (..., sample, feature)."""
        x, y = self.inputs[clients], self.outputs[clients]
        residual = np.einsum("...sf,...f->...s", x, w) - y
        return residual[..., None] * x + self.decay * w[..., None, :]


def train(problem, q, constants, *, cohort_size, local_steps, num_rounds, repeats, unbiased=True):
    """Run Algorithm 1 many times at once; return the mean gap after each round, the largest norms and noise met."""
    rng = np.random.default_rng(41)
    clients, features = len(problem.share), problem.inputs.shape[2]
    w = np.zeros((repeats, features))
    norm, noise, gaps, step = np.zeros(clients), np.zeros(clients), [], 0
    for _ in range(num_rounds):
        cohort = draw_cohort(q, cohort_size, rng, cohorts=repeats)
        local = np.repeat(w[:, None], cohort_size, axis=1)
        for _ in range(local_steps):
            every = problem.gradients(cohort, local)
            chosen = rng.integers(every.shape[2], size=cohort.shape)
            gradient = np.take_along_axis(every, chosen[..., None, None], axis=2)[:, :, 0]
            np.maximum.at(norm, cohort, np.linalg.norm(every, axis=3).max(axis=2))
            spread = np.sum((every - every.mean(axis=2, keepdims=True)) ** 2, axis=3).mean(axis=2)
            np.maximum.at(noise, cohort, np.sqrt(spread))
            local = local - constants.step_size(step) * gradient
            step += 1
        weights = aggregation_weights(cohort, q, problem.share) if unbiased else np.full(cohort.shape, 1 / cohort_size)
        w = w + np.einsum("rk,rkf->rf", weights, local - w[:, None])
        gaps.append(np.mean([problem.loss(one) for one in w[:20]]) - problem.loss(problem.best))
    return np.array(gaps), norm, noise


def constants_of(problem, local_steps, noise):
    return LearningProblem(
        strong_convexity=problem.mu, smoothness=problem.smooth, local_steps=local_steps, gradient_noise=noise,
        heterogeneity=problem.gap_of_clients, initial_distance=float(np.linalg.norm(problem.best)),
    )  # fmt: skip


@pytest.fixture(scope="module")
def ridge():
    rng = np.random.default_rng(42)
    clients, samples, features = 6, 8, 3
    truth = rng.normal(size=(clients, features)) + 1.0
    inputs = rng.normal(size=(clients, samples, features)) * 0.4
    outputs = np.einsum("nsf,nf->ns", inputs, truth) * 3
    share = np.array([0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
    return Ridge(inputs, outputs, share)


@pytest.mark.parametrize("scheme", [uniform_sampling, weighted_sampling, statistical_sampling])
def test_one_step_obeys_the_recursion_behind_the_bound(ridge, scheme):
    """E‖w⁺ - w*‖² ≤ (1 - ημ)‖w - w*‖² + η² (Σp²σ² + 6LΓ + C), C = (4/K) Σp²G²/q, exactly over cohorts and samples."""
    rng, size = np.random.default_rng(43), 2
    schedule = constants_of(ridge, 1, 0.0)
    closest = np.inf
    for step in (0, 10, 1000):
        eta = schedule.step_size(step)
        for spread in (0.0, 0.1, 1.0, 10.0):
            w = ridge.best + spread * rng.normal(size=ridge.best.size)
            every = ridge.gradients(np.arange(len(ridge.share)), np.tile(w, (len(ridge.share), 1)))
            square = np.sum(every**2, axis=2).mean(axis=1)  # E‖g_i‖²
            mean = every.mean(axis=1)
            full = ridge.share @ mean
            bound = np.sqrt(np.sum(every**2, axis=2).max(axis=1))
            q = scheme(Fleet(ridge.share, bound, 1.0, 1.0))
            variance = (np.sum(ridge.share**2 / q * square) - full @ full) / size
            after = np.sum((w - eta * full - ridge.best) ** 2) + eta**2 * variance
            sigma = square - np.sum(mean**2, axis=1)
            noise = np.sum(ridge.share**2 * sigma) + 6 * ridge.smooth * ridge.gap_of_clients
            noise += 4 / size * np.sum(ridge.share**2 * bound**2 / q)
            limit = (1 - eta * ridge.mu) * np.sum((w - ridge.best) ** 2) + eta**2 * noise
            assert after <= limit
            closest = min(closest, limit / after)
    assert closest < 1.2, "the recursion must be nearly tight somewhere, or this shows nothing"


@pytest.mark.parametrize("scheme", ["uniform", "weighted", "optimal"])
def test_training_stays_below_the_bound(ridge, scheme):
    steps, size, rounds = 2, 2, 300
    times = Fleet(ridge.share, 1.0, np.linspace(0.1, 3, 6), np.linspace(2, 0.2, 6))
    q = {
        "uniform": uniform_sampling(times),
        "weighted": weighted_sampling(times),
        "optimal": optimal_sampling(times, cohort_size=size, beta_over_alpha=0.1),
    }[scheme]
    schedule = constants_of(ridge, steps, 0.0)
    gaps, norm, noise = train(ridge, q, schedule, cohort_size=size, local_steps=steps, num_rounds=rounds, repeats=20)
    fleet = Fleet(ridge.share, norm, 1.0, 1.0)
    constants = constants_of(ridge, steps, noise)
    bounds = [
        convergence_bound(fleet, q, cohort_size=size, num_rounds=r, problem=constants) for r in range(1, rounds + 1)
    ]
    assert np.all(gaps < bounds)
    assert gaps[-1] < gaps[0] / 20, "training must have got somewhere for the bound to mean anything"


@pytest.mark.slow
def test_biased_aggregation_breaks_the_bound(ridge):
    """The control: weights that are not Lemma 1's leave a gap that the bound's decay overtakes."""
    steps, size, rounds = 1, 2, 15_000
    q = np.array([0.02, 0.02, 0.02, 0.04, 0.1, 0.8])
    schedule = constants_of(ridge, steps, 0.0)
    gaps, norm, noise = train(
        ridge, q, schedule, cohort_size=size, local_steps=steps, num_rounds=rounds, repeats=4, unbiased=False
    )
    fleet = Fleet(ridge.share, norm, 1.0, 1.0)
    bound = convergence_bound(
        fleet, weighted_sampling(fleet), cohort_size=size, num_rounds=rounds, problem=constants_of(ridge, steps, noise)
    )
    assert gaps[-100:].mean() > bound


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"strong_convexity": 0.0}, "strong_convexity"),
        ({"smoothness": 0.1}, "at least strong_convexity"),
        ({"local_steps": 0}, "local_steps"),
        ({"heterogeneity": -1.0}, "heterogeneity"),
        ({"initial_distance": float("nan")}, "initial_distance"),
        ({"gradient_noise": -1.0}, "gradient_noise"),
        ({"gradient_noise": float("inf")}, "gradient_noise"),
        ({"gradient_noise": [[1.0]]}, "gradient_noise"),
    ],
)
def test_bad_constants_are_refused(changes, said):
    right = {
        "strong_convexity": 0.5, "smoothness": 1.0, "local_steps": 1, "gradient_noise": 1.0, "heterogeneity": 0.0,
        "initial_distance": 1.0,
    }  # fmt: skip
    with pytest.raises(InputError, match=said):
        LearningProblem(**(right | changes))
