"""What holds for every policy: equal runs for equal seeds, also after a stop, and little memory for a client."""

import tracemalloc
from copy import deepcopy

import numpy as np
import pytest

from fedtempo.data.federation import FederatedData
from fedtempo.learning.trainer import Evaluation, LocalResult
from fedtempo.policies.builtin import BUILT_IN
from support.rounds import carry_over, written
from support.simulations import goes_on_alike, loop_of, run, simulation


@pytest.mark.parametrize("policy", BUILT_IN)
def test_the_same_seed_gives_the_same_run_and_another_seed_another(data, times, policy):
    first, again, other = run(data, times, policy), run(data, times, policy), run(data, times, policy, seed=1)
    assert first.records == again.records
    np.testing.assert_array_equal(first.model, again.model)
    assert first.summary["rounds"] == 6
    if policy != "full":
        assert [r["members"] for r in first.records] != [r["members"] for r in other.records]


@pytest.mark.parametrize("policy", BUILT_IN)
def test_a_run_carried_over_at_any_round_goes_on_as_if_nothing_had_happened(data, times, policy):
    goes_on_alike(lambda: simulation(data, times, policy))


@pytest.mark.parametrize("policy", BUILT_IN)
def test_nothing_changes_but_the_state(data, times, policy):
    """Whatever else a policy has is a setting, or is derived once and stays."""
    running = simulation(data, times, policy)
    rounds = running.rounds()
    next(rounds)
    held = {name: value for name, value in vars(running.policy).items() if name != "state"}
    before = deepcopy(held)
    list(rounds)
    assert {name for name in vars(running.policy) if name != "state"} == set(held)
    for name, value in before.items():
        assert vars(running.policy)[name] is held[name]
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(held[name], value)


@pytest.mark.parametrize("policy", BUILT_IN)
def test_a_state_is_of_its_own_kind_and_holds_all_that_a_policy_has(data, times, policy):
    """Written and read back, every field is what it was; two policies share nothing."""
    first, second = (simulation(data, times, policy) for _ in range(2))
    fresh = written(second.policy)
    list(first.rounds())
    assert written(second.policy) == fresh
    carry_over(first.policy, second.policy)
    assert type(second.policy.state) is type(first.policy.state)
    assert written(second.policy) == written(first.policy)


class Idle:
    """A trainer without work: what remains is the loop's own."""

    num_parameters = 1

    def initial_model(self, rng):
        return np.zeros(1, dtype=np.float32)

    def train(self, models, work):
        zeros = np.zeros(len(work.start))
        update = zeros[:, None].astype(np.float32)
        return LocalResult(update=update, largest_gradient_norm=zeros, mean_gradient_norm=zeros, mean_loss=zeros)

    def evaluate(self, model):
        return Evaluation(1.0, 0.0)


@pytest.mark.parametrize("policy", ["uniform", "weighted", "full"])
def test_a_client_takes_at_most_200_bytes_beside_its_data(policy):
    size = 200_000
    inputs, labels = np.zeros((size, 1), dtype=np.float32), np.arange(size) % 2
    data = FederatedData(inputs, labels, np.arange(size + 1), inputs[:2], labels[:2], 2, (1,), "nothing")
    rng = np.random.default_rng(0)
    tracemalloc.start()
    compute, upload = rng.exponential(size=(2, size))
    times = {"compute_time": compute, "upload_time": upload}
    training = {"cohort_size": 10, "local_steps": 1, "batch_size": 1}
    running = loop_of(data, times, policy, trainer=Idle(), rounds=3, **training)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held <= 200 * size
    if policy != "full":
        assert len(list(running.rounds())) == 3
