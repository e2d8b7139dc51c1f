"""Modules of torch as trainers: equal runs, buffers, optimisers, types, and modules that come back."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from fedtempo.checks import InputError
from fedtempo.learning.torch_module import TorchTrainer
from fedtempo.learning.trainer import LocalWork
from support.modules import Tied, Viewing, image_federation, normed, normed_inputs
from support.trainers import linear_module, work_of


def first_model(trainer):
    return trainer.initial_model(np.random.default_rng(0))


def test_a_module_with_dropout_and_frozen_weights_gives_equal_runs(data):
    def module():
        made = nn.Sequential(nn.Linear(60, 20), nn.Dropout(0.5), nn.Linear(20, 10))
        made[0].weight.requires_grad = False
        return made

    trainer = TorchTrainer(data, module)
    model = trainer.initial_model(np.random.default_rng(0))[None]
    first = trainer.train(model, work_of(data, [1, 4]))
    torch.rand(7)
    again = trainer.train(model, work_of(data, [4, 1]))
    np.testing.assert_array_equal(first.update, again.update[::-1])
    frozen = first.update[:, : 60 * 20]
    assert not frozen.any()
    assert first.update[:, 60 * 20 :].any()


def test_dropout_of_a_client_does_not_depend_on_the_steps_of_others(data):
    trainer = TorchTrainer(data, lambda: nn.Sequential(nn.Linear(60, 20), nn.Dropout(0.5), nn.Linear(20, 10)))
    model, work = first_model(trainer)[None], work_of(data, [1, 4])
    fewer = replace(work, local_steps=np.array([3, work.rows.shape[1]]))
    alone = replace(
        work, start=work.start[:1], rows=work.rows[:1, :3], local_steps=np.array([3]), step_size=work.step_size[:1]
    )
    np.testing.assert_array_equal(trainer.train(model, fewer).update[0], trainer.train(model, alone).update[0])


def test_statistics_of_batch_normalisation_are_those_of_a_clients_batches(data):
    """With momentum 1 they are those of the last batch, by hand."""
    trainer = TorchTrainer(data, normed_inputs)
    assert trainer.num_buffers == 120
    buffers = trainer.initial_buffers(np.random.default_rng(0))
    np.testing.assert_array_equal(buffers, np.r_[np.zeros(60), np.ones(60)])
    work = work_of(data, [1, 4])
    result = trainer.train(first_model(trainer)[None], work)
    for k in range(2):
        last = data.inputs[work.rows[k, -1]].astype(np.float64)
        np.testing.assert_allclose(result.buffers[k], np.r_[last.mean(0), last.var(0, ddof=1)], rtol=1e-4, atol=1e-6)


def test_evaluation_takes_the_statistics_that_it_is_given(data):
    trainer = TorchTrainer(data, normed_inputs)
    model, rng = first_model(trainer), np.random.default_rng(1)
    buffers = np.r_[rng.normal(size=60), rng.uniform(0.5, 2.0, size=60)]
    scaled = (data.inputs - buffers[:60]) / np.sqrt(buffers[60:] + 1e-5)
    weights, bias = model[120:720].reshape(10, 60), model[720:]
    logits = torch.from_numpy(scaled @ weights.T + bias)
    labels = torch.from_numpy(data.labels.copy())
    found = trainer.evaluate(model, buffers)
    assert found.loss == pytest.approx(float(cross_entropy(logits, labels)), rel=1e-5)
    assert found.loss != pytest.approx(trainer.evaluate(model).loss, rel=1e-2), "without any: those at the start"
    clients = np.array([3, 0])
    ends = [slice(data.offsets[i], data.offsets[i + 1]) for i in clients]
    expected = [float(cross_entropy(logits[rows], labels[rows])) for rows in ends]
    np.testing.assert_allclose(trainer.client_losses(model, clients, buffers), expected, rtol=1e-5)


def test_no_client_sees_the_statistics_or_counters_of_another(data):
    def module():
        return nn.Sequential(nn.BatchNorm1d(60, momentum=None), nn.Linear(60, 10))  # averages over what it counted

    trainer = TorchTrainer(data, module)
    models = first_model(trainer)[None]
    alone, together = (trainer.train(models, work_of(data, clients)) for clients in ([4], [1, 4]))
    np.testing.assert_array_equal(alone.update[0], together.update[1])
    np.testing.assert_array_equal(alone.buffers[0], together.buffers[1])
    work = work_of(data, [4])
    batches = data.inputs[work.rows[0]].astype(np.float64)
    np.testing.assert_allclose(alone.buffers[0, :60], batches.mean(axis=(0, 1)), rtol=1e-4, atol=1e-6)


def test_buffers_go_with_the_model_that_a_client_starts_from(data):
    trainer = TorchTrainer(data, normed)
    models = np.array([first_model(trainer), 2 * first_model(trainer)])
    buffers = np.array([np.full(24, 0.5), np.full(24, 2.0)])
    both = work_of(data, [3, 3])
    work = LocalWork(
        start=np.array([1, 0]), rows=both.rows, local_steps=both.local_steps, step_size=both.step_size, buffers=buffers
    )
    result = trainer.train(models, work)
    kept = 0.9**5  # of what was there, by the usual momentum of 0.1
    shares = np.abs(result.buffers[0] - result.buffers[1])
    assert shares.min() > 0
    single = work_of(data, [3], buffers=buffers[1:])
    np.testing.assert_array_equal(trainer.train(models[1:], single).buffers[0], result.buffers[0])
    assert kept * 2.0 < result.buffers[0, 12:].min()


@pytest.mark.parametrize("batch", [2, 24])
def test_clients_with_a_single_sample_train_with_batch_normalisation(batch):
    data = image_federation(clients=80)
    trainer = TorchTrainer(data, lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(192), nn.Linear(192, 3)))
    work = work_of(data, [0, 7])
    work = LocalWork(
        start=work.start, rows=work.rows[:, :, :batch], local_steps=work.local_steps, step_size=work.step_size
    )
    result = trainer.train(first_model(trainer)[None], work)
    assert np.isfinite(result.update).all()
    assert np.isfinite(result.buffers).all()


def test_a_batch_of_one_sample_says_what_batch_normalisation_needs(data):
    trainer, whole = TorchTrainer(data, normed), work_of(data, [1])
    work = LocalWork(
        start=whole.start, rows=whole.rows[:, :, :1], local_steps=whole.local_steps, step_size=whole.step_size
    )
    with pytest.raises(InputError, match="batch_size must be at least 2 where batch normalisation"):
        trainer.train(first_model(trainer)[None], work)
    images = TorchTrainer(image_federation(), lambda: nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(192, 3)))
    rows = np.zeros((1, 5, 1), dtype=np.int64)
    work = LocalWork(start=whole.start, rows=rows, local_steps=whole.local_steps, step_size=whole.step_size)
    assert np.isfinite(images.train(first_model(images)[None], work).update).all(), "pixels are values enough"


def plain_loop(trainer, data, model, rows, size, make):
    """Return the update of one client as any PyTorch loop would have it."""
    module = trainer.module_with(model).train()
    optimiser = make(module.parameters(), size)
    inputs, labels = torch.from_numpy(data.inputs.copy()), torch.from_numpy(data.labels.copy())
    for batch in torch.from_numpy(rows):
        optimiser.zero_grad()
        cross_entropy(module(inputs[batch]), labels[batch]).backward()
        optimiser.step()
    return nn.utils.parameters_to_vector(module.parameters()).detach().numpy() - model


@pytest.mark.parametrize(
    ("optimiser", "make"),
    [
        (None, lambda weights, size: torch.optim.SGD(weights, lr=size)),
        ("Adam", lambda weights, size: torch.optim.Adam(weights, lr=size)),
        ("sgd", lambda weights, size: torch.optim.SGD(weights, lr=size)),
        (
            lambda weights: torch.optim.SGD(weights, lr=9.0, momentum=0.9, nesterov=True),
            lambda weights, size: torch.optim.SGD(weights, lr=size, momentum=0.9, nesterov=True),
        ),
    ],
)
def test_optimisers_do_what_they_do_in_a_plain_loop_anew_for_each_client(data, optimiser, make):
    trainer = TorchTrainer(data, normed, optimiser=optimiser)
    model, work = first_model(trainer), work_of(data, [1, 4, 1], size=0.01)
    result = trainer.train(model[None], work)
    for k in range(3):
        expected = plain_loop(trainer, data, model, work.rows[k], 0.01, make)
        np.testing.assert_array_equal(result.update[k], expected)
    assert all(weight.grad is None for weight in trainer.module.parameters())


def test_an_optimiser_follows_the_local_schedule_and_the_proximal_term(data):
    seen = []

    class Noting(torch.optim.SGD):
        def step(self):
            seen.append(self.param_groups[0]["lr"])
            super().step()

    trainer = TorchTrainer(data, linear_module, optimiser=lambda weights: Noting(weights, lr=1.0))
    seen.clear()
    work = work_of(data, [1], steps=4, size=0.2, local_schedule="linear", proximal=2.0)
    by_optimiser = trainer.train(first_model(trainer)[None], work)
    assert seen == pytest.approx([0.2, 0.15, 0.1, 0.05])
    plain = TorchTrainer(data, linear_module)
    np.testing.assert_allclose(plain.train(first_model(plain)[None], work).update, by_optimiser.update, atol=1e-8)


@pytest.fixture
def without_onednn():
    """Some virtual machines announce instructions for bfloat16 that they do not have."""
    torch._C._set_mkldnn_enabled(False)
    yield
    torch._C._set_mkldnn_enabled(True)


@pytest.mark.usefixtures("without_onednn")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_modules_of_other_types_train_in_their_own(data, dtype):
    trainer = TorchTrainer(data, lambda: linear_module().to(dtype))
    single = TorchTrainer(data, linear_module)
    assert trainer.inputs.dtype == dtype
    work = work_of(data, [1, 4])
    model = np.full(610, 0.1, dtype=np.float32)  # which bfloat16 cannot hold
    result, expected = (one.train(model[None], work) for one in (trainer, single))
    assert result.update.dtype == np.float32
    close = 1e-6 if dtype == torch.float64 else 2e-2
    np.testing.assert_allclose(result.update, expected.update, atol=close)
    assert trainer.evaluate(model).loss == pytest.approx(single.evaluate(model).loss, rel=close)
    still = trainer.train(model[None], work_of(data, [1], size=1e-12))
    assert np.abs(still.update).max() < 1e-6, "an update is what training changed, not what rounding did at the start"


@pytest.mark.usefixtures("without_onednn")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_losses_and_norms_of_modules_in_16_bits_are_not_rounded_to_16_bits(data, dtype):
    """Where all outputs are 0 the loss is ln 10 for each sample."""
    trainer, single = TorchTrainer(data, lambda: linear_module().to(dtype)), TorchTrainer(data, linear_module)
    zeros = np.zeros(610, np.float32)
    assert trainer.evaluate(zeros).loss == pytest.approx(np.log(10), rel=1e-6)
    np.testing.assert_allclose(trainer.client_losses(zeros, np.arange(8)), np.log(10), rtol=1e-6)
    work = work_of(data, np.arange(8), steps=1, clip_norm=1.0, decay=0.1, proximal=0.1)
    found, expected = (one.train(zeros[None], work) for one in (trainer, single))
    np.testing.assert_allclose(found.mean_loss, np.log(10), rtol=1e-6)
    norms = found.mean_gradient_norm
    np.testing.assert_allclose(norms, expected.mean_gradient_norm, rtol=5e-3)
    assert (torch.from_numpy(norms).to(dtype).double().numpy() != norms).all(), "16 bits hold none of them"


@pytest.mark.usefixtures("without_onednn")
def test_labels_are_not_rounded_to_16_bits(data):
    real = replace(data, labels=np.full((len(data.labels), 1), 1003.0), test_labels=data.test_labels[:, None] * 1.0,
                   num_classes=0)  # fmt: skip
    trainer = TorchTrainer(real, lambda: nn.Linear(60, 1).bfloat16(), loss=mse_loss)
    assert trainer.evaluate(np.zeros(61, np.float32)).loss == pytest.approx(1003**2, rel=1e-6)


def test_shared_parameters_stand_once_and_stay_shared(data):
    trainer = TorchTrainer(data, Tied)
    assert trainer.num_parameters == 60 * 60 + 60 + 60 + 610
    model = first_model(trainer)
    result = trainer.train(model[None], work_of(data, [1]))
    module = trainer.module_with(model + result.update[0])
    assert module.second.weight is module.first.weight
    np.testing.assert_array_equal(
        nn.utils.parameters_to_vector(module.parameters()).detach().numpy(), model + result.update[0]
    )


def test_parameters_that_no_output_depends_on_stay(data):
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(60, 10), nn.Linear(5, 5)

        def forward(self, inputs):
            return self.used(inputs)

    trainer = TorchTrainer(data, Idle)
    update = trainer.train(first_model(trainer)[None], work_of(data, [1])).update[0]
    assert update[:610].any()
    assert not update[610:].any()


def test_a_module_that_views_its_maps_is_trained_as_it_lies_in_memory():
    data = image_federation()
    trainer = TorchTrainer(data, Viewing)
    model = first_model(trainer)
    before = trainer.evaluate(model).loss
    update = trainer.train(model[None], work_of(data, [0, 1, 2, 3], steps=20)).update.mean(axis=0)
    assert trainer.evaluate(model + update).loss < before


def test_the_trained_module_comes_back_with_its_buffers(data):
    trainer = TorchTrainer(data, normed)
    model = first_model(trainer)
    result = trainer.train(model[None], work_of(data, [1]))
    model, buffers = model + result.update[0], result.buffers[0]
    module = trainer.module_with(model, buffers)
    assert not module.training
    assert module is not trainer.module
    loss = cross_entropy(module(torch.from_numpy(data.inputs.copy())).detach(), torch.from_numpy(data.labels.copy()))
    assert float(loss) == pytest.approx(trainer.evaluate(model, buffers).loss, rel=1e-5)
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    trainer.module_with(model)
    assert torch.equal(before, torch.random.get_rng_state())


def test_random_buffers_of_a_module_follow_the_seed_of_its_weights(data):
    class Features(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("directions", torch.randn(60, 30))
            self.register_buffer("order", torch.randperm(60))
            self.last = nn.Linear(30, 10)

        def forward(self, inputs):
            return self.last(torch.cos(inputs[:, self.order] @ self.directions))

    trainer = TorchTrainer(data, Features)
    one, same, other = (trainer.initial_buffers(np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 0.1
    again = TorchTrainer(data, Features)
    model = trainer.initial_model(np.random.default_rng(1))
    assert trainer.evaluate(model, one) == again.evaluate(model, one)


def test_a_function_that_returns_one_module_again_and_again_is_refused(data):
    kept = nn.Linear(60, 10)
    trainer = TorchTrainer(data, lambda: kept)
    with pytest.raises(InputError, match="make a new module in each call"):
        first_model(trainer)


class Places(nn.Module):
    """A module that keeps a table for later batches, as masks and positions are kept."""

    def __init__(self):
        super().__init__()
        self.last, self.table = nn.Linear(60, 10), None

    def forward(self, inputs):
        if self.table is None:
            self.table = torch.linspace(0.5, 1.5, inputs.shape[1])
        return self.last(inputs) * self.table[:10]


def test_what_a_module_keeps_from_an_evaluation_serves_training(data):
    trainer = TorchTrainer(data, Places)
    model = first_model(trainer)
    trainer.module.table = None
    trainer.evaluate(model)
    assert trainer.train(model[None], work_of(data, [1])).update.any()
