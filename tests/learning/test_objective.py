"""Losses and metrics of one's own: regression, sequences, several labels at once, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedtempo.checks import InputError
from fedtempo.data.federation import FederatedData
from fedtempo.learning import torch_module
from fedtempo.learning.torch_module import TorchTrainer
from support.trainers import linear_module, work_of


def federation(inputs, labels, *, tokens=False):
    """Data of three clients whose labels are no classes; the last 20 samples are held out."""
    return FederatedData(
        inputs=inputs[:180], labels=labels[:180], offsets=[0, 30, 100, 180], test_inputs=inputs[180:],
        test_labels=labels[180:], num_classes=0, input_shape=inputs.shape[1:], name="made up", tokens=tokens,
    )  # fmt: skip


@pytest.fixture
def line():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(200, 4)).astype(np.float32)
    return federation(inputs, (inputs @ [1.0, -2.0, 0.5, 0.0]).astype(np.float32)[:, None])


def train(trainer, data, steps=40, size=0.1):
    """Return the model after some rounds with everyone."""
    model = trainer.initial_model(np.random.default_rng(0))
    for r in range(4):
        result = trainer.train(model[None], work_of(data, [0, 1, 2], round_index=r, steps=steps, size=size))
        model = model + result.update.mean(axis=0)
    return model


def test_regression_with_a_metric_beyond_0_to_1(line, monkeypatch):
    """Means over batches of unequal size count by their samples."""
    monkeypatch.setattr(torch_module, "SAMPLES_AT_ONCE", 50)
    trainer = TorchTrainer(
        line,
        lambda: nn.Linear(4, 1),
        loss=functional.mse_loss,
        metric=lambda y, labels: -1e3 * (y - labels).abs().mean(),
    )
    first = trainer.initial_model(np.random.default_rng(0))
    weights, bias = first[:4].astype(np.float64), float(first[4])
    errors, held = (
        x @ weights + bias - y[:, 0] for x, y in ((line.inputs, line.labels), (line.test_inputs, line.test_labels))
    )
    found = trainer.evaluate(first)
    assert found.loss == pytest.approx(np.mean(errors**2), rel=1e-5)
    assert found.accuracy == pytest.approx(-1e3 * np.abs(held).mean(), rel=1e-5)
    parts = [np.mean(errors[begin:end] ** 2) for begin, end in ((0, 30), (100, 180))]
    np.testing.assert_allclose(trainer.client_losses(first, np.array([0, 2])), parts, rtol=1e-5)
    assert trainer.evaluate(train(trainer, line)).loss < 1e-3


def r_squared(outputs, labels):
    return 1 - (outputs - labels).square().sum() / (labels - labels.mean(0)).square().sum()


@pytest.mark.parametrize("at_once", [1, 7, 19, 512])
def test_a_metric_that_is_no_mean_sees_all_test_samples_at_once(line, monkeypatch, at_once):
    monkeypatch.setattr(torch_module, "SAMPLES_AT_ONCE", at_once)
    given = {"loss": functional.mse_loss, "metric": lambda y, z: r_squared(y, z) if len(z) > 1 else 0.0}
    trainer = TorchTrainer(line, lambda: nn.Linear(4, 1), **given)
    model = np.array([1.0, -1.0, 0.5, 0.0, 0.1], np.float32)
    errors, spread = line.test_inputs @ model[:4] + 0.1 - line.test_labels[:, 0], np.var(line.test_labels)
    assert trainer.evaluate(model).accuracy == pytest.approx(1 - np.mean(errors**2) / spread, rel=1e-5)


class Several(nn.Module):
    """Outputs of several parts, each with a row for each sample."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 1)

    def forward(self, inputs):
        found = self.last(inputs)
        return {"mean": found, "more": (found.squeeze(), inputs)}


def test_a_metric_of_several_outputs_sees_all_test_samples_at_once(line, monkeypatch):
    monkeypatch.setattr(torch_module, "SAMPLES_AT_ONCE", 19)  # which leaves one: squeezed, it has no dimension
    seen = []
    trainer = TorchTrainer(
        line, Several, loss=lambda y, z: functional.mse_loss(y["mean"], z),
        metric=lambda y, z: seen.append((y["mean"].shape, y["more"][0].shape, y["more"][1].shape)) or 1.0,
    )  # fmt: skip
    trainer.evaluate(np.zeros(5, np.float32))
    assert seen[-1] == ((20, 1), (20,), (20, 4))


def test_a_metric_needs_a_row_of_outputs_for_each_sample(line):
    def transposed():
        return nn.Sequential(nn.Linear(4, 3), nn.Flatten(0), nn.Unflatten(0, (3, -1)))

    given = {"loss": lambda y, z: y.mean(), "metric": lambda y, z: 0.0}
    with pytest.raises(InputError, match=r"a row of outputs for each sample.*got 3 rows for 20 samples"):
        TorchTrainer(line, transposed, **given)


def test_regression_without_a_metric_has_no_accuracy(line):
    trainer = TorchTrainer(line, lambda: nn.Linear(4, 1), loss=functional.mse_loss)
    assert math.isnan(trainer.evaluate(trainer.initial_model(np.random.default_rng(0))).accuracy)


def test_regression_in_double_precision_casts_labels_too(line):
    trainer = TorchTrainer(line, lambda: nn.Linear(4, 1).double(), loss=functional.mse_loss)
    assert trainer.labels.dtype == torch.float64
    assert trainer.evaluate(train(trainer, line)).loss < 1e-3


def test_several_labels_at_once():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(200, 4)).astype(np.float32)
    data = federation(inputs, (inputs[:, :3] > 0).astype(np.float32))
    loss = functional.binary_cross_entropy_with_logits
    trainer = TorchTrainer(
        data, lambda: nn.Linear(4, 3), loss=loss, metric=lambda y, z: ((y > 0) == (z > 0.5)).float().mean()
    )
    assert trainer.evaluate(train(trainer, data, size=1.0)).accuracy > 0.9


class NextCharacter(nn.Module):
    """A small recurrent network: logits (sample, place, character)."""

    def __init__(self):
        super().__init__()
        self.letters, self.memory, self.last = nn.Embedding(5, 8), nn.GRU(8, 16, batch_first=True), nn.Linear(16, 5)

    def forward(self, text):
        return self.last(self.memory(self.letters(text))[0])


def test_the_next_character_at_every_place():
    text = np.arange(200)[:, None] % 5 + np.arange(8)
    data = federation(text[:, :-1] % 5, text[:, 1:] % 5, tokens=True)
    trainer = TorchTrainer(
        data, NextCharacter, loss=lambda y, z: functional.cross_entropy(y.flatten(0, 1), z.flatten()),
        metric=lambda y, z: (y.argmax(-1) == z).float().mean(), optimiser="adam",
    )  # fmt: skip
    assert trainer.inputs.dtype == torch.int64
    assert trainer.evaluate(train(trainer, data, size=0.02)).accuracy > 0.9


def test_a_loss_of_ones_own_for_classes_keeps_the_accuracy(data):
    own, usual = TorchTrainer(data, linear_module, loss=nn.CrossEntropyLoss()), TorchTrainer(data, linear_module)
    model = np.random.default_rng(0).normal(size=610).astype(np.float32)
    found, expected = own.evaluate(model), usual.evaluate(model)
    assert found.accuracy == expected.accuracy
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)
    np.testing.assert_array_equal(*(one.train(model[None], work_of(data, [1])).update for one in (own, usual)))


@pytest.mark.parametrize("loss", [functional.mse_loss, lambda y, z: (y - z).square().mean()])
def test_outputs_that_losses_would_set_against_each_label_are_refused(line, loss):
    flat = replace(line, labels=line.labels[:, 0], test_labels=line.test_labels[:, 0])
    said = r"outputs must have the shape of the labels, .*got \(2, 1\) beside \(2,\); give labels\[:, None\], or end"
    with pytest.raises(InputError, match=said):
        TorchTrainer(flat, lambda: nn.Linear(4, 1), loss=loss)
    squeezed, column = (
        TorchTrainer(flat, lambda: nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), loss=loss),
        TorchTrainer(line, lambda: nn.Linear(4, 1), loss=loss),
    )
    assert squeezed.evaluate(np.ones(5, np.float32)).loss == column.evaluate(np.ones(5, np.float32)).loss


@pytest.mark.parametrize("classes", [1, 2])
def test_numbers_for_each_class_have_a_shape_of_their_own(classes):
    inputs, labels = np.eye(4, dtype=np.float32), np.arange(4) % classes
    data = FederatedData(inputs, labels, [0, 2, 4], inputs, labels, classes, (4,), "made up")
    trainer = TorchTrainer(data, lambda: nn.Linear(4, classes), loss=functional.cross_entropy)
    assert trainer.evaluate(np.zeros(5 * classes, np.float32)).loss == pytest.approx(math.log(classes))


def no_numbers(outputs, labels):
    return outputs.sum() * math.nan


class FailsLater:
    """The mean squared error, until somebody says that it fails."""

    fails = False

    def __call__(self, outputs, labels):
        if self.fails:
            raise ValueError("no more")
        return functional.mse_loss(outputs, labels)


@pytest.mark.parametrize("name", ["loss", "metric"])
def test_a_function_that_fails_in_an_evaluation_is_named(line, name):
    function = FailsLater()
    trainer = TorchTrainer(line, lambda: nn.Linear(4, 1), **{"loss": functional.mse_loss, name: function})
    function.fails = True
    model = trainer.initial_model(np.random.default_rng(0))
    with pytest.raises(InputError, match=f"the {name} must return one number .*, got ValueError: no more"):
        trainer.evaluate(model)
    if name == "loss":
        with pytest.raises(InputError, match=r"the loss must take .* got ValueError: no more"):
            trainer.train(model[None], work_of(line, [0]))


def test_a_metric_is_tried_on_test_samples_first(line):
    seen = []
    TorchTrainer(
        line, lambda: nn.Linear(4, 1), loss=functional.mse_loss, metric=lambda y, z: seen.append(len(z)) or 1.0
    )
    assert seen == [20], "all of them, since some metrics need more than two"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loss": "mse"}, "loss must be a function of outputs and labels, got 'mse'"),
        ({"loss": no_numbers}, "the loss must be finite at the start, got nan"),
        ({"loss": lambda y, z: (y - z) ** 2}, r"the loss must return one number.*a tensor of shape \(2, 1\).*mean"),
        ({"loss": lambda y, z: 1.0}, "the loss must return one number.*got float"),
        (
            {"loss": lambda y, z: y.detach().mean()},
            "the loss must return one number, a tensor that follows from the out",
        ),
        ({"loss": lambda y: y.mean()}, "the loss must take the module's outputs and the labels, got TypeError"),
        ({}, "loss must be given where labels are no classes, got none; such as"),
        ({"loss": functional.mse_loss, "metric": lambda y, z: y}, "the metric must return one number.*got"),
    ],
)
def test_functions_that_do_not_fit_are_refused(line, given, said):
    with pytest.raises(InputError, match=said):
        TorchTrainer(line, lambda: nn.Linear(4, 1), **given)
