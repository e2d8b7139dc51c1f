"""Trainers: the fast ones equal the readable one, and no client's result depends on its company."""

import numpy as np
import pytest
import torch

from fedtempo.learning.aggregation import Aggregator
from fedtempo.learning.trainer import LOCAL_SCHEDULES, LocalWork
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


def test_a_softmax_regression_as_a_layer_of_torch(data):
    trainer = trainers(data)["softmax"]
    model = np.random.default_rng(0).normal(size=610).astype(np.float32)
    layer = trainer.module_with(model)
    outputs = layer(torch.from_numpy(data.inputs.copy())).detach()
    loss = torch.nn.functional.cross_entropy(outputs, torch.from_numpy(data.labels.copy()))
    assert isinstance(layer, torch.nn.Linear)
    assert float(loss) == pytest.approx(trainer.evaluate(model).loss, rel=1e-5)


SHIFTS = np.repeat(np.array([[0.05], [-0.03]], np.float32), 610, axis=1)  # whatever the order of parameters
RULES = {
    "clipped": {"clip_norm": 0.5},
    "proximal": {"proximal": 3.0},
    "linear": {"local_schedule": "linear"},
    "cosine": {"local_schedule": "cosine"},
    "shifted": {"gradient_share": 0.6, "shifts": SHIFTS[:1]},
    "all": {
        "clip_norm": 0.5,
        "proximal": 3.0,
        "local_schedule": "cosine",
        "decay": 0.1,
        "gradient_share": 0.7,
        "shifts": SHIFTS,
        "shift_of": np.array([1, 0]),
    },
}


@pytest.mark.parametrize("rule", RULES)
def test_all_trainers_follow_the_rules_of_steps(data, rule):
    updates, paths = {}, {}
    for name, trainer in trainers(data).items():
        result = trainer.train(
            trainer.initial_model(np.random.default_rng(0))[None], work_of(data, [2, 5], **RULES[rule])
        )
        updates[name] = np.array([as_classes(update, name, data) for update in result.update])
        paths[name] = np.array([result.largest_gradient_norm, result.mean_gradient_norm, result.mean_loss])
    plain = trainers(data)["readable"].train(np.zeros((1, 610), np.float32), work_of(data, [2, 5]))
    assert np.abs(updates["readable"].reshape(2, -1) - plain.update).max() > 1e-3, "the rule makes a difference"
    for name in ("softmax", "torch"):
        np.testing.assert_allclose(updates[name], updates["readable"], atol=1e-6)
        np.testing.assert_allclose(paths[name], paths["readable"], rtol=1e-4)


@pytest.mark.parametrize("name", ["readable", "softmax", "torch"])
def test_no_step_is_longer_than_its_clipped_gradient(data, name):
    """The norms that are reported are those before clipping; a bound beyond them changes nothing."""
    trainer = trainers(data)[name]
    model = trainer.initial_model(np.random.default_rng(0))[None]
    clipped = trainer.train(model, work_of(data, [1, 4], steps=1, clip_norm=0.25))
    np.testing.assert_allclose(clipped.update_norm, 0.1 * 0.25, rtol=1e-5)
    free, wide = (trainer.train(model, work_of(data, [1, 4], clip_norm=bound)) for bound in (0.0, 1e6))
    assert clipped.largest_gradient_norm.min() > 0.25
    np.testing.assert_allclose(wide.update, free.update, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", ["readable", "softmax", "torch"])
def test_the_proximal_term_keeps_clients_at_the_start_as_it_grows(data, name):
    """One step is -η g / (1 + η μ); with μ towards infinity there is no update, however many steps."""
    trainer = trainers(data)[name]
    model = trainer.initial_model(np.random.default_rng(0))[None]
    plain, near = (trainer.train(model, work_of(data, [3], steps=1, proximal=mu)) for mu in (0.0, 4.0))
    np.testing.assert_allclose(near.update, plain.update / 1.4, rtol=1e-5)
    assert near.largest_gradient_norm == pytest.approx(plain.largest_gradient_norm)
    lengths = [
        trainer.train(model, work_of(data, [3], steps=20, proximal=mu)).update_norm[0] for mu in (0, 1, 1e2, 1e8)
    ]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < 1e-6 < lengths[0]


@pytest.mark.parametrize("steps", [1, 2, 7, 50])
def test_factors_of_a_falling_schedule_add_up_to_half_the_steps(data, steps):
    both = work_of(data, [0, 1], steps=50)
    for schedule in LOCAL_SCHEDULES:
        work = LocalWork(
            start=both.start, rows=both.rows, local_steps=np.array([steps, 50]), step_size=np.array([0.2, 0.1]),
            local_schedule=schedule,
        )  # fmt: skip
        sizes = work.step_sizes[0, :steps] / 0.2
        assert sizes[0] == 1
        assert sizes.sum() == pytest.approx(steps if schedule == "constant" else (steps + 1) / 2)
        assert (np.diff(sizes) <= 0).all()
        assert work.step_sizes.shape == (2, 50)
        assert (work.step_sizes >= 0).all()
