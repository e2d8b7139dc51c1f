"""A sampler of one's own beside built-in policies: who answers fast is drawn more often."""

import numpy as np

import fedtempo
from fedtempo.data.synthetic import synthetic_data


def fast_first(fleet: fedtempo.Fleet) -> np.ndarray:
    """Return the probability of each client in one draw; weights p/(K q) keep the model unbiased."""
    score = fleet.data_share / np.sqrt(fleet.compute_time + fleet.upload_time)
    return score / score.sum()


rng = np.random.default_rng(0)
problem = fedtempo.Problem(
    synthetic_data(alpha=1.0, beta=1.0, num_clients=50, num_samples=5000, seed=0),
    compute_time=rng.exponential(size=50),
    upload_time=rng.exponential(size=50),
)
found = fedtempo.compare(
    problem, {"mine": fast_first, "weighted": "weighted"}, seeds=3, target_loss=1.3, cohort_size=5, step_size=0.05
)
print(found)
print(fedtempo.check_policy(fast_first))
