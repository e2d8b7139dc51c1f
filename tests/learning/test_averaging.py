"""The running mean of server models."""

import numpy as np
import pytest

from fedtempo.learning.averaging import ServerAverage

MODELS = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)


def averaged(past):
    average = ServerAverage(past)
    for model in MODELS:
        average.add(model, model[:1].astype(np.float64))
    return average


def test_without_a_past_the_last_model_stands():
    average = averaged(0.0)
    assert average.state.model is None
    np.testing.assert_array_equal(average.model(MODELS[-1]), MODELS[-1])


def test_with_all_of_the_past_it_is_the_mean_of_all_models():
    average = averaged(1.0)
    np.testing.assert_allclose(average.model(MODELS[-1]), MODELS.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(average.buffers(np.zeros(1)), MODELS[:, :1].mean(axis=0), atol=1e-6)


def test_it_is_of_all_models_at_first_and_of_the_last_ones_later():
    average, expected = ServerAverage(0.8), np.zeros(3)
    for step, model in enumerate(MODELS.astype(np.float64), start=1):
        average.add(model.astype(np.float32), np.empty(0))
        expected = expected + max(0.2, 1 / step) * (model - expected)
        np.testing.assert_allclose(average.model(model), expected, atol=1e-6)
        if step <= 5:
            np.testing.assert_allclose(expected, MODELS[:step].mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("past", [0.0, 0.9])
def test_a_new_start_forgets(past):
    average = averaged(past)
    average.reset()
    np.testing.assert_array_equal(average.model(MODELS[3]), MODELS[3])
