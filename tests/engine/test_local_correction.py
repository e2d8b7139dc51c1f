"""SCAFFOLD's correction from the server's memory: against the formulas of its paper, and in whole runs."""

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.learning.aggregation import Aggregator
from fedtempo.learning.readable import ReadableSoftmax
from fedtempo.learning.trainer import whole_steps
from fedtempo.policies.policy import BufferedPlan, RoundPlan, Stateless
from support.simulations import goes_on_alike, loop_of

COHORTS = ([3, 7, 9], [0, 3, 11], [1, 7, 2], [3, 9, 5])
CORRECTED = {"server_memory": True, "local_correction": True, "schedule": "constant"}


class Cohorts(Stateless):
    """First everybody, weighted by data; then cohorts whose updates count alike."""

    def __init__(self, data):
        self.share = data.data_share

    def plan(self, context):
        if context.round_index == 0:
            return RoundPlan(members=np.arange(self.share.size), weights=self.share)
        members = np.sort(COHORTS[context.round_index - 1])
        return RoundPlan(members=members, weights=np.full(3, 1 / 3))


def scaffold(data, rows_of, model, size=0.1, steps=5):
    """Return the models of SCAFFOLD, option II, with a server's step of 1 and a mean c weighted by data.

    y_i ← y_i - η (g_i(y_i) - c_i + c); c_i⁺ = c_i - c + (x - y_i)/(E η); x ← x + mean (y_i - x);
    c ← c + Σ p (c_i⁺ - c_i). At first c and all c_i are 0, and everybody takes part, weighted by data.
    """
    board, share = ReadableSoftmax(data), data.data_share
    x = model.astype(np.float64)
    own, mean, models = np.zeros((12, x.size)), np.zeros(x.size), []
    for r, members in enumerate([list(range(12)), *COHORTS]):
        weights, step, change = (share if r == 0 else np.full(12, 1 / 3)), np.zeros_like(x), np.zeros_like(x)
        for i in sorted(members):
            y = x.copy()
            for batch in rows_of(i, r):
                _, gradient = board.loss_and_gradient(y.reshape(10, 61), board.inputs[batch], data.labels[batch])
                y = y - size * (gradient.ravel() - own[i] + mean)
            new = own[i] - mean + (x - y) / (steps * size)
            step, change, own[i] = step + weights[i] * (y - x), change + share[i] * (new - own[i]), new
        x, mean = x + step, mean + change
        models.append(x.copy())
    return models


def test_models_are_those_of_the_paper(data, times):
    loop = loop_of(data, times, Cohorts(data), rounds=5, **CORRECTED)
    batches = loop.clients.workers.batches

    def rows_of(client, round_index):
        return batches.draw(np.array([client]), round_index, 5)[0]

    expected = scaffold(data, rows_of, loop.model)
    plain = loop_of(data, times, Cohorts(data), rounds=5, schedule="constant", server_memory=True)
    for model, _, _ in zip(expected, loop.rounds(), plain.rounds(), strict=True):
        np.testing.assert_allclose(loop.model, model, atol=2e-5)
    assert np.abs(loop.model - plain.model).max() > 1e-3, "the correction makes a difference"


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_what_is_remembered_are_gradients_alone(data, times, schedule):
    """y_i = w_i - w over η, less what the correction moved: the weighted sum of gradients along the path."""
    loop = loop_of(data, times, Cohorts(data), rounds=2, local_schedule=schedule, **CORRECTED)
    rounds = loop.rounds()
    next(rounds)
    before, members = loop.model.copy(), sorted(COHORTS[0])
    deviation = loop.aggregator.deviation(np.array(members))
    np.testing.assert_allclose(data.data_share @ loop.aggregator.deviation(np.arange(12)), 0, atol=1e-5)
    next(rounds)
    steps = float(whole_steps(schedule, np.array([5]))[0])
    board = ReadableSoftmax(data)
    factors = {"constant": np.ones(5), "linear": 1 - np.arange(5) / 5}.get(
        schedule, (1 + np.cos(np.pi * np.arange(5) / 5)) / 2
    )
    assert factors.sum() == pytest.approx(steps)
    for client, correction in zip(members, deviation, strict=True):
        y, gradients = before.astype(np.float64), np.zeros(before.size)
        for batch, factor in zip(loop.clients.workers.batches.draw(np.array([client]), 1, 5)[0], factors, strict=True):
            _, gradient = board.loss_and_gradient(y.reshape(10, 61), board.inputs[batch], data.labels[batch])
            gradients -= factor * gradient.ravel()
            y = y - 0.1 * factor * (gradient.ravel() + correction)
        np.testing.assert_allclose(loop.aggregator.remembered.direction(client), gradients, atol=2e-4)


def test_paths_of_other_lengths_have_the_same_mean_gradient():
    """Clients with equal gradients are not corrected, however many local steps each has made."""
    share, paths = np.array([0.5, 0.3, 0.2]), np.array([50.0, 10.0, 2.0])
    server, gradient = Aggregator(share, memory=True), np.array([1.0, -2.0], np.float32)
    updates = (-0.1 * paths[:, np.newaxis] * gradient).astype(np.float32)
    server.apply(np.zeros(2, np.float32), np.arange(3), updates, share, 0.1)
    server.note_paths(np.arange(3), paths)
    np.testing.assert_allclose(server.deviation(np.arange(3)), 0, atol=1e-6)
    server.apply(np.zeros(2, np.float32), np.array([1]), -3 * updates[1:2], share[1:2], 0.1)
    server.note_paths(np.array([1]), paths[1:2])
    found = server.deviation(np.arange(3))
    mean = (0.5 * 50 * gradient - 3 * 0.3 * 10 * gradient + 0.2 * 2 * gradient) / (share @ paths)
    np.testing.assert_allclose(found, [mean - gradient, mean + 3 * gradient, mean - gradient], rtol=1e-5)


def test_who_never_reported_is_not_corrected(data, times):
    loop = loop_of(data, times, "weighted", rounds=2, **CORRECTED)
    with pytest.raises(ValueError, match="memory"):
        loop.aggregator.deviation(np.array([0]))
    record = next(loop.rounds())
    heard = record["members"]
    others = np.setdiff1d(np.arange(12), heard)
    assert not loop.aggregator.deviation(others).any()
    assert loop.aggregator.deviation(np.array(heard)).any() == (len(heard) > 1)


def test_the_correction_is_downloaded_with_the_model(data, times):
    slow = times | {"download_time": np.full(12, 5.0)}
    plain, corrected = (
        list(loop_of(data, slow, "full", rounds=2, server_memory=True, **more).rounds())
        for more in ({}, {"local_correction": True})
    )
    assert corrected[0]["round_time"] == plain[0]["round_time"], "there is none yet"
    assert corrected[1]["round_time"] == pytest.approx(plain[1]["round_time"] + 5.0)


def test_without_a_memory_it_is_refused_by_name(data, times):
    with pytest.raises(InputError, match="local_correction must go with a memory of last updates") as refused:
        loop_of(data, times, "weighted", local_correction=True)
    assert "server_memory" in refused.value.remedy
    assert loop_of(data, times, "tempo", local_correction=True), "its policy has a memory"


class Overlapping(Stateless):
    """Steps of one arrival: those in flight started from corrections of then."""

    def plan(self, context):
        idle = np.array([3 * context.round_index % 12, (3 * context.round_index + 1) % 12])
        start = idle[context.available[idle]] if context.available is not None else idle
        return BufferedPlan(start=start, weights=np.full(len(start), 0.5), wait_for=1)


@pytest.mark.parametrize("policy", ["weighted", "tempo", Overlapping()])
def test_a_stopped_run_goes_on_to_the_byte(data, times, policy):
    goes_on_alike(lambda: loop_of(data, times, policy, rounds=6, **CORRECTED), stops=(1, 3, 5))


def test_corrected_steps_of_all_clients_drift_less(data, times):
    """With every client's gradient known, paths of 40 steps end nearer to where steps on the whole loss would."""
    losses = [
        list(loop_of(data, times, "weighted", rounds=30, local_steps=40, step_size=0.02, server_memory=True,
                     schedule="constant", local_correction=on).rounds())[-1]["loss"]
        for on in (False, True)
    ]  # fmt: skip
    assert losses[1] < losses[0]
