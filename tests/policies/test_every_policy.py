"""What holds for every policy: equal runs for equal seeds, also after a stop, and little memory for a client."""

import tracemalloc

import numpy as np
import pytest

from fedtempo import Fleet
from fedtempo.data.federation import FederatedData
from fedtempo.engine.settings import StopSettings, TrainingSettings
from fedtempo.learning.trainer import Evaluation, LocalResult
from fedtempo.policies.registry import BUILT_IN
from fedtempo.simulator.api import assemble
from fedtempo.simulator.channel import StaticChannel
from support.simulations import run, simulation


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
    import json

    whole = list(simulation(data, times, policy).rounds())
    for stop in range(1, len(whole) - 1):
        first = simulation(data, times, policy)
        rounds = first.rounds()
        begun = [next(rounds) for _ in range(stop)]
        values, arrays = first.state()
        second = simulation(data, times, policy)
        second.restore(json.loads(json.dumps(values)), {name: array.copy() for name, array in arrays.items()})
        assert begun + list(second.rounds()) == whole


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
    fleet = Fleet(data.data_share, 1.0, compute, upload)
    running = assemble(
        data=data, trainer=Idle(), fleet=fleet, channel=StaticChannel(compute, upload), policy=policy, options={},
        seed=0, stop=StopSettings(max_rounds=3), training=TrainingSettings(cohort_size=10, local_steps=1, batch_size=1),
    )  # fmt: skip
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held <= 200 * size
    if policy != "full":
        assert len(list(running.rounds())) == 4
