"""Trainers: the fast ones equal the readable one, and no client's result depends on its company."""

import numpy as np
import pytest

from fedtempo.learning.aggregation import Aggregator
from fedtempo.learning.trainer import LocalWork
from support.trainers import trainers, work_of


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
