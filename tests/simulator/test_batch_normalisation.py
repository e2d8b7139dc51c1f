"""Modules with batch normalisation in the simulator: averaged statistics, asynchronous policies, resumed runs."""

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from fedtempo.api.simulate import simulate
from fedtempo.checks import InputError
from fedtempo.data.federation import FederatedData
from fedtempo.data.synthetic import synthetic_data
from fedtempo.learning.torch_module import TorchTrainer
from fedtempo.policies.policy import RoundPlan
from fedtempo.simulator.problem import make_trainer, model_bits
from support.modules import normed, normed_inputs
from support.resuming import carried_over, lines
from support.simulations import loop_of

pytestmark = pytest.mark.usefixtures("one_thread")
TIMES = {"compute_time": np.linspace(0.1, 1.0, 10), "upload_time": np.linspace(1.0, 0.3, 10)}


@pytest.fixture(scope="module")
def one_thread():
    with threadpool_limits(limits=1):
        yield


@pytest.fixture(scope="module")
def small_data():
    """Clients alike: of unlike ones, averaged statistics fit nobody."""
    data = synthetic_data(alpha=1.0, beta=1.0, num_clients=10, num_samples=800, seed=0)
    order = np.random.default_rng(0).permutation(len(data.labels))
    return replace(data, inputs=data.inputs[order], labels=data.labels[order])


@pytest.fixture(scope="module")
def trainer(small_data):
    return TorchTrainer(small_data, normed)


def test_two_clients_statistics_are_averaged_by_their_data():
    """With momentum 1 each client reports those of its last batch: here all batches are alike."""
    rows = np.repeat([[1.0], [4.0]], [30, 10], axis=0).astype(np.float32) * np.ones(60, dtype=np.float32)
    labels = np.arange(40) % 10
    data = FederatedData(rows, labels, [0, 30, 40], rows[:5], labels[:5], 10, (60,), "two constants")
    loop = loop_of(
        data, {"compute_time": 1.0, "upload_time": 1.0}, "full", rounds=2, trainer=TorchTrainer(data, normed_inputs)
    )
    assert np.array_equal(loop.state.buffers, np.r_[np.zeros(60), np.ones(60)])
    records = list(loop.rounds())
    np.testing.assert_allclose(loop.state.buffers[:60], 0.75 * 1.0 + 0.25 * 4.0)
    np.testing.assert_allclose(loop.state.buffers[60:], 0.0, atol=1e-12)
    assert np.isfinite(records[-1].loss)


@pytest.mark.parametrize(("average", "mean"), [(True, 1.0), (False, 0.5)])
def test_statistics_follow_those_who_report_where_a_member_fails(average, mean):
    """In a mean they stand in for who failed; otherwise its share stays as it was, 0."""
    rows = np.repeat([[1.0], [4.0]], 20, axis=0).astype(np.float32) * np.ones(60, dtype=np.float32)
    labels = np.arange(40) % 10
    data = FederatedData(rows, labels, [0, 20, 40], rows[:5], labels[:5], 10, (60,), "two constants")

    class Both:
        def plan(self, context):
            return RoundPlan(members=[0, 1], weights=0.5, average=average, deadline=4.0)

        def observe(self, report):
            pass

    run = simulate(
        data, policy=Both(), model=normed_inputs, compute_time=[1.0, 9.0], upload_time=1.0, link="equal",
        cohort_size=2, local_steps=2, max_rounds=1,
    )  # fmt: skip
    assert run.records[0].failed == [1]
    np.testing.assert_allclose(run.buffers, np.repeat([mean, 1.0 - mean], 60), atol=1e-12)


@pytest.mark.parametrize("policy", ["weighted", "tempo", "fedbuff", "proposed-oracle"])
def test_policies_learn_with_batch_normalisation(small_data, trainer, policy):
    options = {"beta_over_alpha": 1.0} if policy == "proposed-oracle" else {}
    loop = loop_of(
        small_data, TIMES, policy, rounds=20, trainer=trainer, schedule="constant", evaluate_every=5, options=options
    )
    records = [record for record in loop.rounds() if record.loss is not None]
    assert records[-1].loss < records[0].loss
    first = trainer.initial_buffers(np.random.default_rng(0))
    assert np.abs(loop.state.buffers - first).max() > 0.05
    assert (loop.state.buffers[12:] > 0).all()
    last = trainer.evaluate(loop.model, loop.state.buffers)
    assert (last.loss, last.accuracy) == (records[-1].loss, records[-1].accuracy)


@pytest.mark.parametrize("policy", ["weighted", "tempo", "fedbuff"])
def test_a_run_carried_over_after_any_round_ends_with_the_same_bytes(small_data, trainer, policy):
    def make(again=False):
        return loop_of(small_data, TIMES, policy, rounds=6, trainer=trainer, local_schedule="cosine", proximal=0.1)

    whole = list(lines(make()))
    for after in (1, 2, 4):
        assert carried_over(make, after) == whole


def test_buffers_are_uploaded_too(small_data, trainer):
    assert model_bits(trainer) == 32 * (trainer.num_parameters + 24)
    assert model_bits(make_trainer("softmax", small_data)) == 32 * 610


def test_a_loss_that_is_no_number_at_the_start_is_bad_input(small_data):
    class Nonsense(type(make_trainer("softmax", small_data))):
        def evaluate(self, model):
            return type(super().evaluate(model))(np.nan, 0.0)

    with pytest.raises(InputError, match="the loss must be a number at the start, got nan; look at"):
        simulate(small_data, **TIMES, model=Nonsense(small_data), cohort_size=2, max_rounds=2)
