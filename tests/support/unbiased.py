"""Policies whose aggregate is unbiased, and what tests of them share."""

import itertools

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import brentq

from fedtempo import Fleet, simulate
from fedtempo.policies.clustered import ClusteredSampling
from fedtempo.policies.kvib import KVib
from fedtempo.policies.ocs import OptimalClientSampling
from fedtempo.policies.policy import PolicySetting, Probe, RoundContext, RoundPlan, RoundReport
from fedtempo.theory.inclusion import SMALLEST
from support.rounds import TIMES

POLICIES = {
    "ocs": (OptimalClientSampling, {}),
    "ocs-candidates": (OptimalClientSampling, {"candidates": 5}),
    "aocs": (OptimalClientSampling, {"approximate": True}),
    "clustered": (ClusteredSampling, {}),
    "kvib": (KVib, {}),
    "kvib-gamma": (KVib, {"theta": 0.1, "gamma": 1e-3}),
}
SHARE = np.array([0.05, 0.4, 0.2, 0.1, 0.25])
NORM = np.array([3.0, 0.5, 1.0, 0.0, 2.0])


class Scripted:
    """In the place of a random generator: gives what the test wants."""

    def __init__(self, uniform, chosen=None):
        self.uniform, self.chosen = np.asarray(uniform, dtype=np.float64), chosen

    def random(self, size):
        assert self.uniform.shape == (size,)
        return self.uniform

    def choice(self, clients, size, *, replace):
        assert not replace
        assert len(self.chosen) == size
        assert np.isin(self.chosen, clients).all()
        return np.array(self.chosen)


def make(policy, share, cohort_size, **options):
    fleet = Fleet(np.asarray(share, dtype=np.float64), 1.0, 1.0, 1.0)
    return policy(PolicySetting(fleet=fleet, cohort_size=cohort_size, options=options))


def context(rng, *, round_index=0, **more):
    return RoundContext(round_index=round_index, time=0.0, step_size=0.1, local_steps=5, rng=rng, **more)


def plan_round(policy, rng, norms, **more):
    """Let a policy plan a round, with the answer that an engine would give to its probe."""
    plan = policy.plan(context(rng, **more))
    if isinstance(plan, Probe):
        assert plan.ask == "update_norm"
        answers = np.asarray(norms, dtype=np.float64)[plan.clients]
        plan = policy.plan(context(rng, asked=plan.clients, answers=answers, **more))
    assert isinstance(plan, RoundPlan)
    return plan


def report_of(plan, norms, failed=None):
    size = len(plan.members)
    norm = np.asarray(norms, dtype=np.float64)[plan.members]
    return RoundReport(
        plan=plan, round_index=0, round_time=1.0, compute_time=np.ones(size), upload_time=np.ones(size),
        step_size=np.ones(size), local_steps=np.ones(size, dtype=np.int64), largest_gradient_norm=norm,
        mean_gradient_norm=norm, update_norm=norm, mean_loss=norm, residual_norm=norm,
        failed=np.zeros(size, dtype=bool) if failed is None else failed, aggregate_norm=1.0, direction_norm=1.0,
        loss=None, accuracy=None,
    )  # fmt: skip


def lots(inclusion):
    """Yield for each set of included clients its probability, and random numbers that lead to it."""
    for bits in itertools.product([True, False], repeat=len(inclusion)):
        yield np.prod(np.where(bits, inclusion, 1 - inclusion)), np.where(bits, 0.0, 1 - 1e-16)


def water_level(importance, expected):
    """The same problem by its multiplier: π_i = min(1, λ u_i) with λ such that Σ π_i = m."""
    u = np.asarray(importance, dtype=np.float64)
    if expected >= len(u):
        return np.ones(len(u))
    u = np.maximum(u, SMALLEST * u.max()) if u.max() > 0 else np.ones(len(u))
    log_level = brentq(
        lambda x: np.minimum(1, np.exp(x) * u).sum() - expected,
        np.log(expected / u.sum() / 2), np.log(2 / u.min()), xtol=1e-14, rtol=1e-14,
    )  # fmt: skip
    return np.minimum(1, np.exp(log_level) * u)


importances = st.lists(st.one_of(st.just(0.0), st.floats(-12, 12).map(lambda x: 10**x)), min_size=1, max_size=12)


def run(data, name, **more):
    cls, options = POLICIES[name]
    return simulate(
        data, **TIMES, policy=cls, options=options,
        **{"cohort_size": 3, "local_steps": 10, "max_rounds": 15, "seed": 0} | more,
    )  # fmt: skip
