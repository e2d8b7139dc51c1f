"""A small federation to try tempo on, and a policy's setting and round by themselves."""

import math

import numpy as np
import pytest

from fedtempo import Fleet, simulate
from fedtempo.data.federation import FederatedData
from fedtempo.data.synthetic import synthetic_data
from fedtempo.policies.policy import PolicySetting, RoundContext

SIZE = 10
DATA = synthetic_data(alpha=1.0, beta=1.0, num_clients=SIZE, num_samples=1000, seed=1)
TIMES = {"compute_time": np.linspace(0.1, 2.0, SIZE), "upload_time": np.linspace(1.5, 0.2, SIZE)}
SAME = {"compute_time": 1.0, "upload_time": 1.0}  # for all
SHARE = np.array([0.05, 0.2, 0.15, 0.1, 0.25, 0.05, 0.12, 0.08])
OPTIONS: dict[str, dict] = {
    "plain": {}, "rounds": {"overlap": False}, "no memory": {"memory": False}, "small memory": {"memory_bits": 8},
    "unbiased": {"largest_factor": math.inf}, "steps": {"choose_local_steps": True},
}  # fmt: skip
EACH = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def run(policy="tempo", data=DATA, times=TIMES, *, rounds=40, **more):
    usual = {"cohort_size": 3, "local_steps": 5, "max_rounds": rounds, "evaluate_every": rounds, "schedule": "constant"}
    return simulate(data, **times, policy=policy, **usual | {"step_size": 0.02} | more)


def start_loss(data=DATA):
    """The loss of w₀ = 0, which gives each class the same chance."""
    return math.log(data.num_classes)


def noise(clients):
    inputs, labels = np.random.default_rng(0).random((20, 3), dtype=np.float32), np.arange(20) % 2
    offsets = np.linspace(0, 20, clients + 1).astype(np.int64)
    return FederatedData(inputs, labels, offsets, inputs, labels, 2, (3,), "noise")


def setting(share, **more):
    fleet = {"gradient_bound": 1.0, "compute_time": 0.0, "upload_time": 1.0} | more.pop("fleet", {})
    return PolicySetting(fleet=Fleet(np.asarray(share), **fleet), **{"cohort_size": 3} | more)


def context(available=None, rng=None, round_index=0):
    rng = rng or np.random.default_rng(0)
    return RoundContext(
        round_index=round_index, time=0.0, step_size=0.1, local_steps=1, rng=rng, available=available
    )  # fmt: skip
