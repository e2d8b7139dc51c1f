"""Trainers: the fast ones equal the readable one, and no client's result depends on its company."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from fedtempo.checks import InputError
from fedtempo.data.federation import FederatedData
from fedtempo.data.synthetic import synthetic_data
from fedtempo.learning.aggregation import Aggregator
from fedtempo.learning.batches import Batches, philox
from fedtempo.learning.lenet import LeNetTrainer
from fedtempo.learning.memory import Memory
from fedtempo.learning.models import LeNet5
from fedtempo.learning.readable import ReadableSoftmax
from fedtempo.learning.softmax import SoftmaxTrainer
from fedtempo.learning.torch_module import TorchTrainer
from fedtempo.learning.trainer import LocalWork


@pytest.fixture(scope="module")
def data():
    return synthetic_data(alpha=1.0, beta=1.0, num_clients=8, num_samples=900, seed=3)


def linear_module():
    module = nn.Linear(60, 10)
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    return module


def trainers(data):
    return {
        "readable": ReadableSoftmax(data),
        "softmax": SoftmaxTrainer(data),
        "torch": TorchTrainer(data, linear_module),
    }


def work_of(data, clients, *, seed=0, round_index=0, steps=5, size=0.1, decay=0.0):
    clients = np.array(clients)
    batches = Batches(data.offsets, batch_size=24, seed=seed)
    return LocalWork(
        start=np.zeros(len(clients), dtype=np.int64),
        rows=batches.draw(clients, round_index, steps),
        local_steps=np.full(len(clients), steps),
        step_size=np.full(len(clients), size),
        weight_decay=decay,
    )


def as_classes(model, name, data):
    """Bring parameters to the rows [w_c, b_c] of each class: torch keeps all weights before all biases."""
    if name != "torch":
        return model.reshape(data.num_classes, -1)
    return np.c_[model[:-10].reshape(10, 60), model[-10:]]


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_after_20_rounds_all_trainers_have_the_same_model(data, decay):
    models, outcomes = {}, {}
    for name, trainer in trainers(data).items():
        model = trainer.initial_model(np.random.default_rng(0))
        aggregator = Aggregator(data.data_share)
        for r in range(20):
            clients = np.random.default_rng(r).choice(8, 3, replace=False)
            result = trainer.train(
                model[None], work_of(data, clients, round_index=r, steps=10, size=0.1 / (1 + r), decay=decay)
            )
            model, *_ = aggregator.apply(model, clients, result.update, np.full(3, 1 / 3), 0.1)
        models[name] = as_classes(model, name, data)
        evaluation = trainer.evaluate(model)
        outcomes[name] = np.array([
            evaluation.loss, evaluation.accuracy, *result.largest_gradient_norm, *result.mean_gradient_norm,
            *result.mean_loss, *result.update_norm, *trainer.client_losses(model, np.array([2, 5])),
        ])  # fmt: skip
    assert np.abs(models["readable"]).max() > 0.1
    for name in ("softmax", "torch"):
        np.testing.assert_allclose(models[name], models["readable"], atol=1e-5)
        np.testing.assert_allclose(outcomes[name], outcomes["readable"], rtol=1e-4)


@pytest.mark.parametrize("name", ["softmax", "torch"])
def test_a_client_gets_the_same_bytes_whoever_else_is_in_the_call(data, name):
    trainer = trainers(data)[name]
    rng = np.random.default_rng(1)
    models = rng.normal(size=(3, trainer.num_parameters)).astype(np.float32) * 0.1
    alone = trainer.train(models[1:2], work_of(data, [4], round_index=7))
    many = work_of(data, [0, 4, 4, 6], round_index=7)
    many = LocalWork(
        start=np.array([0, 1, 2, 1]), rows=many.rows, local_steps=many.local_steps, step_size=many.step_size
    )
    together = trainer.train(models, many)
    np.testing.assert_array_equal(together.update[1], alone.update[0])
    assert together.largest_gradient_norm[1] == alone.largest_gradient_norm[0]
    assert np.any(together.update[2] != alone.update[0])


@pytest.mark.parametrize("name", ["readable", "softmax", "torch"])
def test_each_client_has_its_own_steps_and_step_size(data, name):
    trainer = trainers(data)[name]
    model = trainer.initial_model(np.random.default_rng(0))[None]
    both = work_of(data, [1, 1], steps=6)
    uneven = LocalWork(start=both.start, rows=both.rows, local_steps=np.array([6, 2]), step_size=np.array([0.1, 0.05]))
    result = trainer.train(model, uneven)
    short = trainer.train(model, work_of(data, [1], steps=6, size=0.05))
    assert np.linalg.norm(result.update[1]) < np.linalg.norm(short.update[0])
    first_step = LocalWork(
        start=both.start[:1], rows=both.rows[:1], local_steps=np.array([1]), step_size=np.array([0.1])
    )
    one = trainer.train(model, first_step)
    assert one.largest_gradient_norm[0] == pytest.approx(one.mean_gradient_norm[0])
    assert one.update_norm[0] == pytest.approx(0.1 * one.mean_gradient_norm[0], rel=1e-5)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_the_generator_gives_the_published_answers(counter, key, words):
    counter = np.array(counter, dtype=np.uint64)
    philox(counter, np.array(key, dtype=np.uint64))
    assert counter.tolist() == words


def test_batches_depend_on_seed_round_and_client_alone(data):
    batches = Batches(data.offsets, batch_size=24, seed=5)
    rows = batches.draw(np.array([2, 6]), 3, 4)
    np.testing.assert_array_equal(rows[1], batches.draw(np.array([6]), 3, 4)[0])
    assert np.any(rows[1] != batches.draw(np.array([6]), 4, 4)[0])
    assert np.any(rows[1] != Batches(data.offsets, batch_size=24, seed=6).draw(np.array([6]), 3, 4)[0])
    for client, drawn in zip((2, 6), rows, strict=True):
        assert data.offsets[client] <= drawn.min()
        assert drawn.max() < data.offsets[client + 1]
    counts = np.bincount(batches.draw(np.array([0]), 0, 2000).ravel())[: data.sizes[0]]
    expected = 2000 * 24 / data.sizes[0]
    assert np.sum((counts - expected) ** 2 / expected) < data.sizes[0] + 5 * np.sqrt(2 * data.sizes[0])


def image_data():
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(10), 12)
    images = 0.1 * rng.random((120, 28, 28), dtype=np.float32)
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 6] = 1.0  # a bar whose height tells the classes apart
    inputs = images.reshape(120, 784)
    return FederatedData(inputs, labels, np.arange(0, 121, 30), inputs[:50], labels[:50], 10, (1, 28, 28), "made up")


@pytest.mark.parametrize("kind", [LeNetTrainer, lambda data: TorchTrainer(data, LeNet5)])
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
    for decay in (0.0, 0.1):
        model = torch_trainer.initial_model(rng)
        rows = rng.integers(130, size=(3, 1, batch))
        work = LocalWork(
            start=np.array([1, 0, 1]), rows=rows, local_steps=np.ones(3, dtype=np.int64),
            step_size=np.array([0.1, 0.1, 0.3]), weight_decay=decay,
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


def test_a_module_with_buffers_is_refused(data):
    with pytest.raises(InputError, match="buffers"):
        TorchTrainer(data, lambda: nn.Sequential(nn.BatchNorm1d(60), nn.Linear(60, 10)))


def test_modules_that_do_not_fit_are_refused(data):
    for module, said in (
        (nn.Linear(60, 10), "function that makes a module"),
        (lambda: nn.Linear(61, 10), "must take inputs of shape"),
        (lambda: nn.Linear(60, 9), "10 numbers for a sample"),
    ):
        with pytest.raises(InputError, match=said):
            TorchTrainer(data, module)


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


def test_aggregation_adds_weighted_updates_and_momentum():
    updates = np.array([[1.0, 0.0], [0.0, 2.0]], dtype=np.float32)
    aggregator = Aggregator(np.array([0.5, 0.5]), momentum=0.5)
    members, weights = np.array([0, 1]), np.array([0.25, 0.5])
    model, norm, *_ = aggregator.apply(np.zeros(2, dtype=np.float32), members, updates, weights, 0.1)
    np.testing.assert_allclose(model, [0.25, 1.0])
    assert norm == pytest.approx(np.hypot(0.25, 1.0))
    model, *_ = aggregator.apply(model, members[:0], updates[:0], weights[:0], 0.1)  # nobody came: momentum goes on
    np.testing.assert_allclose(model, [0.375, 1.5])


@pytest.mark.parametrize("settings", [{"momentum": 0.5}, {"memory": True}])
def test_old_directions_keep_in_step_with_a_smaller_step_size(settings):
    """Where every step size and so every update is 1/10, the server's step is 1/10 too."""
    members, weights = np.array([0, 1]), np.array([0.5, 0.5])
    first, second = np.array([[1.0, 0.0], [0.0, 2.0]], np.float32), np.array([[2.0, 1.0], [1.0, 0.0]], np.float32)
    steps = []
    for scale in (1.0, 0.1):
        aggregator, model = Aggregator(np.array([0.5, 0.5]), **settings), np.zeros(2, dtype=np.float32)
        aggregator.apply(model, members, first, weights, 1.0)
        step, *_ = aggregator.apply(model, members[:1], np.float32(scale) * second[:1], weights[:1], scale)
        steps.append(step)
    np.testing.assert_allclose(steps[1], 0.1 * steps[0], rtol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.5}, {"memory": True}])
def test_an_update_that_was_begun_with_a_larger_step_size_tells_the_same_direction(settings):
    members, weights, share = np.array([0, 1]), np.array([0.5, 0.5]), np.array([0.5, 0.5])
    updates, start = np.array([[1.0, 0.0], [0.0, 2.0]], np.float32), np.zeros(2, dtype=np.float32)
    usual = Aggregator(share, **settings).apply(start, members, updates, weights, 0.1)
    then = np.array([0.1, 0.4])
    late = Aggregator(share, **settings).apply(start, members, updates * [[1], [4]], weights, 0.1, then)
    np.testing.assert_allclose(late.model, usual.model, rtol=1e-6)
    np.testing.assert_allclose(late.residual_norm, usual.residual_norm, rtol=1e-6)


@pytest.mark.parametrize("bits", [32, 8])
def test_a_client_that_is_forgotten_might_never_have_told(bits):
    rng, share = np.random.default_rng(8), np.array([0.2, 0.3, 0.5])
    old, new = rng.normal(size=(2, 3, 300)).astype(np.float32)
    model, steps = np.zeros(300, dtype=np.float32), []
    for tell, forget in (((0, 1, 2), [1]), ((0, 2), [1]), ((0, 2), [])):
        server = Aggregator(share, memory=True, bits=bits)
        for i in tell:
            server.apply(model, np.array([i]), old[i : i + 1], np.zeros(1), 1.0)
        server.forget(np.array(forget, dtype=np.int64))
        assert sorted(server.remembered) == [0, 2]
        steps.append(server.apply(model, np.array([1]), new[1:2], np.array([0.4]), 1.0))
    for one in steps[:2]:
        np.testing.assert_allclose(one.model, steps[2].model, atol=1e-5)
        np.testing.assert_allclose(one.residual_norm, steps[2].residual_norm, rtol=1e-5)


def test_a_server_that_has_forgotten_everyone_starts_anew():
    """Sums over nobody are 0 but for rounding, and their ratio is no mean."""
    rng, share = np.random.default_rng(9), np.array([0.3, 0.1, 0.6])
    updates, model = rng.normal(size=(3, 50)).astype(np.float32), np.zeros(50, dtype=np.float32)
    server = Aggregator(share, memory=True)
    for i in range(3):
        server.apply(model, np.array([i]), updates[i : i + 1], np.zeros(1), 1.0)
    server.forget(np.array([1, 0, 2]))
    again, fresh = (
        one.apply(model, np.array([1]), updates[1:2], np.array([0.4]), 1.0)
        for one in (server, Aggregator(share, memory=True))
    )
    np.testing.assert_array_equal(again.model, fresh.model)


def test_memory_stays_unbiased_and_takes_the_noise_away():
    rng = np.random.default_rng(6)
    share, updates = np.array([0.2, 0.3, 0.5]), rng.normal(size=(3, 4)).astype(np.float32)
    start = np.zeros(4, dtype=np.float32)
    full = share @ updates
    for old_noise in (1.0, 0.0):
        old = updates + old_noise * rng.normal(size=(3, 4)).astype(np.float32)
        expected = np.zeros(4)
        for client in range(3):  # K = 1 with q = 1/3
            aggregator = Aggregator(share, memory=True)
            for i in range(3):
                aggregator.apply(start, np.array([i]), old[i : i + 1], np.zeros(1), 1.0)
            step, *_ = aggregator.apply(
                start, np.array([client]), updates[client : client + 1], np.array([share[client] * 3]), 1.0
            )
            expected += step / 3
            if old_noise == 0:
                np.testing.assert_allclose(step, full, atol=1e-6)
        np.testing.assert_allclose(expected, full, atol=1e-5)


@pytest.mark.parametrize(
    "settings", [{"momentum": 0.7}, {"memory": True}, {"momentum": 0.3, "memory": True, "bits": 8}]
)
def test_the_aggregator_goes_on_from_its_state(settings):
    rng = np.random.default_rng(7)
    share = np.full(5, 0.2)
    one = Aggregator(share, **settings)
    model = np.zeros(3, dtype=np.float32)
    for r in range(6):
        members = np.sort(rng.choice(5, 2, replace=False))
        updates, weights = rng.normal(size=(2, 3)).astype(np.float32), rng.random(2)
        if r == 3:
            other = Aggregator(share, **settings)
            other.restore({name: array.copy() for name, array in one.state().items()})
            again = model.copy()
        model, *_ = one.apply(model, members, updates, weights, 0.3)
        if r >= 3:
            again, *_ = other.apply(again, members, updates, weights, 0.3)
    np.testing.assert_array_equal(model, again)


@pytest.mark.parametrize("size", [1, 255, 256, 257, 1000])
def test_a_memory_of_eight_bits_is_off_by_half_a_step_of_its_block_and_takes_a_quarter(size):
    rng = np.random.default_rng(size)
    direction = (rng.standard_normal(size) * np.repeat(10.0 ** np.arange(-3, 1), 256)[:size]).astype(np.float32)
    memory, whole = Memory(8), Memory(32)
    assert memory.get(3) is None
    kept = memory.keep(3, direction)
    np.testing.assert_array_equal(memory.get(3), kept)
    np.testing.assert_array_equal(whole.keep(3, direction), direction)
    for start in range(0, size, 256):
        part = direction[start : start + 256]
        assert np.abs(kept[start : start + 256] - part).max() <= np.abs(part).max() / 254 * (1 + 1e-5)
    if size == 1000:
        assert memory.nbytes < 0.27 * whole.nbytes
    other = Memory(8)
    other.restore(memory.state())
    np.testing.assert_array_equal(other.get(3), kept)
    assert list(other) == [3]


def test_a_memory_of_eight_bits_keeps_what_is_zero_and_says_what_is_no_number():
    memory = Memory(8)
    np.testing.assert_array_equal(memory.keep(0, np.zeros(300, np.float32)), np.zeros(300))
    assert np.isnan(memory.keep(0, np.full(3, np.nan, np.float32))).all()
    with pytest.raises(InputError, match="memory_bits must be one of 8, 32, got 4"):
        Memory(4)


def test_a_rounded_memory_leaves_the_mean_of_what_is_remembered_exact():
    """However often clients tell, Σ p y is that of the rounded directions: errors do not add up."""
    rng, share = np.random.default_rng(0), np.array([0.2, 0.3, 0.5])
    server, model = Aggregator(share, memory=True, bits=8), np.zeros(600, dtype=np.float32)
    for _ in range(200):
        members = np.sort(rng.choice(3, 2, replace=False))
        updates = rng.standard_normal((2, 600)).astype(np.float32)
        model = server.apply(model, members, updates, np.full(2, 0.5), 0.1).model
    expected = sum(p * server.remembered.get(i) for i, p in enumerate(share))
    np.testing.assert_allclose(server.total_remembered, expected, atol=1e-4)
