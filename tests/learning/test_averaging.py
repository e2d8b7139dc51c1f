"""The running mean of server models."""

import numpy as np
import pytest

from fedtempo.learning.averaging import GROWTH, ServerAverage

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


def test_auto_weighs_models_by_a_power_of_their_number_and_lags_by_a_tenth():
    average = averaged("auto")
    n = np.arange(1, len(MODELS) + 1)
    # w̄ = Σ c_n w_n with c_n ∝ Γ(n + η)/Γ(n), which is n (n + 1) … (n + η - 1).
    weights = np.array([np.prod(one + np.arange(GROWTH), dtype=np.float64) for one in n])
    weights /= weights.sum()
    np.testing.assert_allclose(average.model(MODELS[-1]), weights @ MODELS, atol=1e-5)
    many = np.arange(1, 10_001, dtype=np.float64)
    assert np.average(10_000 - many, weights=(many / 10_000) ** GROWTH) / 10_000 == pytest.approx(0.1, rel=0.01)


def test_along_a_memory_auto_returns_the_last_model_and_begins_anew_after_it():
    average = averaged("auto")
    average.add(MODELS[0], np.empty(0), along_memory=True)
    assert average.state.model is None
    average.add(MODELS[1], np.empty(0))
    np.testing.assert_array_equal(average.model(MODELS[2]), MODELS[1])
    fixed = ServerAverage(0.8)
    for model in MODELS[:3]:
        fixed.add(model, np.empty(0), along_memory=True)
    np.testing.assert_allclose(fixed.model(MODELS[3]), MODELS[:3].mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("past", [0.0, 0.9, "auto"])
def test_a_new_start_forgets(past):
    average = averaged(past)
    average.reset()
    np.testing.assert_array_equal(average.model(MODELS[3]), MODELS[3])
