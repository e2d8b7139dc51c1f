"""The compiled LeNet: it learns, and one step of it is one of torch."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from fedtempo.checks import InputError
from fedtempo.data.federation import FederatedData
from fedtempo.learning.lenet import LeNetTrainer
from fedtempo.learning.networks import LeNet5
from fedtempo.learning.softmax import SoftmaxTrainer
from fedtempo.learning.torch_module import TorchTrainer
from fedtempo.learning.trainer import LocalWork
from support.marks import slow_after
from support.trainers import work_of


def image_data():
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(10), 12)
    images = 0.1 * rng.random((120, 28, 28), dtype=np.float32)
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 6] = 1.0  # a bar whose height tells the classes apart
    inputs = images.reshape(120, 784)
    return FederatedData(inputs, labels, np.arange(0, 121, 30), inputs[:50], labels[:50], 10, (1, 28, 28), "made up")


@pytest.mark.parametrize("kind", slow_after(1, [LeNetTrainer, lambda data: TorchTrainer(data, LeNet5)]))
def test_lenet_learns_and_starts_from_a_seed(kind):
    data = image_data()
    trainer = kind(data)
    before = torch.random.get_rng_state()
    model = trainer.initial_model(np.random.default_rng(4))
    assert torch.equal(before, torch.random.get_rng_state())
    np.testing.assert_array_equal(model, trainer.initial_model(np.random.default_rng(4)))
    assert np.any(model != trainer.initial_model(np.random.default_rng(5)))
    assert trainer.num_parameters == 61_706
    first = trainer.evaluate(model).loss
    for r in range(8):
        result = trainer.train(model[None], work_of(data, range(4), round_index=r, steps=10, size=0.2))
        model = model + result.update.mean(axis=0)
    assert trainer.evaluate(model).loss < 0.9 * first


@pytest.mark.parametrize("classes", [10, 26])
@pytest.mark.parametrize("batch", [1, 7, 24])
def test_one_step_of_the_compiled_lenet_is_one_step_of_torch(classes, batch):
    """Steps are compared one at a time: from a tie in pooling, rounding may send two runs along different ways."""
    rng = np.random.default_rng(8)
    inputs, labels = rng.normal(size=(130, 784)).astype(np.float32), np.arange(130) % classes
    data = FederatedData(
        inputs, labels, np.array([0, 40, 130]), inputs[:70], labels[:70], classes, (1, 28, 28), "noise"
    )
    fast, torch_trainer = LeNetTrainer(data), TorchTrainer(data, lambda: LeNet5(classes))
    assert fast.num_parameters == torch_trainer.num_parameters
    for rule in ({}, {"weight_decay": 0.1}, {"clip_norm": 0.3, "proximal": 2.0}):
        model = torch_trainer.initial_model(rng)
        rows = rng.integers(130, size=(3, 1, batch))
        work = LocalWork(
            start=np.array([1, 0, 1]), rows=rows, local_steps=np.ones(3, dtype=np.int64),
            step_size=np.array([0.1, 0.1, 0.3]), **rule,
        )  # fmt: skip
        models = np.array([model, 1.5 * model])
        got, wanted = (trainer.train(models, work) for trainer in (fast, torch_trainer))
        np.testing.assert_allclose(got.update, wanted.update, atol=2e-7)
        for name in ("largest_gradient_norm", "mean_gradient_norm", "mean_loss", "update_norm"):
            np.testing.assert_allclose(getattr(got, name), getattr(wanted, name), rtol=1e-5)
        seen, expected = fast.evaluate(model), torch_trainer.evaluate(model)
        assert seen.loss == pytest.approx(expected.loss, rel=1e-6)
        assert seen.accuracy == expected.accuracy
        both = np.array([1, 0])
        np.testing.assert_allclose(fast.client_losses(model, both), torch_trainer.client_losses(model, both), rtol=1e-6)


def test_initial_weights_have_the_spread_of_torch():
    data = image_data()
    models = [
        np.array([trainer.initial_model(np.random.default_rng(seed)) for seed in range(20)])
        for trainer in (LeNetTrainer(data), TorchTrainer(data, LeNet5))
    ]
    ends = [0, 150, 156, 2556, 2572, 50572, 50692, 60772, 60856, 61696, 61706]
    for first, end in pairwise(ends):
        largest = [np.abs(model[:, first:end]).max() for model in models]
        spread = [model[:, first:end].std() for model in models]
        assert largest[0] == pytest.approx(largest[1], rel=0.05)
        assert spread[0] == pytest.approx(spread[1], rel=0.1)


def test_images_of_another_shape_are_refused(data):
    with pytest.raises(InputError, match="shape"):
        LeNetTrainer(data)


@pytest.mark.parametrize("trainer", [LeNetTrainer, SoftmaxTrainer])
def test_tokens_and_labels_that_are_no_classes_are_refused(trainer):
    images = np.zeros((20, 28, 28))
    real = FederatedData.from_arrays(images, np.linspace(0, 1, 20), clients=2, split="iid")
    with pytest.raises(InputError, match=r"the labels of model \w+ must be one class for each sample, got float32"):
        trainer(real)
    tokens = FederatedData.from_arrays(images.astype(int), np.arange(20) % 2, clients=2, split="iid")
    with pytest.raises(InputError, match=r"the inputs of model \w+ must be real numbers, got whole numbers; make them"):
        trainer(tokens)


def test_the_trained_model_as_a_module_of_torch():
    data = image_data()
    trainer = LeNetTrainer(data)
    model = trainer.initial_model(np.random.default_rng(2))
    module = trainer.module_with(model)
    assert isinstance(module, LeNet5)
    outputs = module(torch.from_numpy(data.inputs.reshape(-1, 1, 28, 28).copy())).detach()
    loss = torch.nn.functional.cross_entropy(outputs, torch.from_numpy(data.labels.copy()))
    assert float(loss) == pytest.approx(trainer.evaluate(model).loss, rel=1e-5)
