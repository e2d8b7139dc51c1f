"""Bits, running mean, optimisers of the server and its direction on clients, in whole runs."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.engine.settings import TrainingSettings
from fedtempo.engine.upload_sizes import UploadSizes
from fedtempo.fleet import Fleet
from fedtempo.learning.quantisation import upload_share
from fedtempo.learning.readable import ReadableSoftmax
from fedtempo.learning.softmax import SoftmaxTrainer
from fedtempo.learning.trainer import LOCAL_SCHEDULES, schedule_factor
from fedtempo.policies.policy import BufferedPlan, RoundPlan, Stateless
from fedtempo.policies.registry import BUILT_IN
from fedtempo.theory.bits import BITS
from support.simulations import OPTIONS, goes_on_alike, loop_of, run

LEVERS = {
    "8 bits": {"upload_bits": 8},
    "2 bits": {"upload_bits": 2},
    "auto": {"upload_bits": "auto"},
    "top": {"upload_top": 0.1},
    "top with feedback": {"upload_top": 0.1, "error_feedback": True},
    "4 bits with feedback": {"upload_bits": 4, "error_feedback": True},
    "mean": {"server_average": 0.8},
    "mean of its own": {"server_average": "auto"},
    "adam": {"server_optimiser": "adam"},
    "yogi": {"server_optimiser": "yogi"},
    "fedexp": {"server_optimiser": "fedexp"},
    "correction": {"local_correction": True, "server_memory": True},
    "amsgrad": {"server_optimiser": "amsgrad"},
    "direction": {"local_direction": 0.5},
    "all": {"upload_bits": "auto", "server_average": 0.8, "local_direction": 0.3, "server_momentum": 0.5},
}


@pytest.mark.parametrize("lever", LEVERS)
@pytest.mark.parametrize("policy", BUILT_IN)
def test_every_policy_takes_every_lever(data, times, policy, lever):
    result = run(data, times, policy, rounds=4, step_size=0.02, options=OPTIONS.get(policy, {}), **LEVERS[lever])
    again = run(data, times, policy, rounds=4, step_size=0.02, options=OPTIONS.get(policy, {}), **LEVERS[lever])
    assert result.records == again.records
    assert np.isfinite(result.summary["loss"])
    bits = "upload_bits" in LEVERS[lever]
    assert all(("upload_bits" in record) == bits for record in result.records)


def test_records_without_levers_are_what_they_were(data, times):
    record = run(data, times, rounds=1).records[0]
    assert "upload_bits" not in record
    assert "quantisation_noise" not in record


@pytest.mark.parametrize("bits", [2, 8])
def test_uploads_take_the_time_of_their_bytes(data, times, bits):
    whole, fewer = (run(data, times, "weighted", rounds=3, upload_bits=b, link="shared") for b in (32, bits))
    share = upload_share(bits, 610)
    for one, other in zip(whole.records, fewer.records, strict=True):
        np.testing.assert_allclose(np.array(other["upload_time"]) / one["upload_time"], share)
        assert other["round_time"] < one["round_time"]
        assert other["upload_bits"] == [bits] * len(other["members"])
        assert all(0 < noise < 30 for noise in other["quantisation_noise"])
    as_short = run(data, times | {"upload_time": times["upload_time"] * share}, "weighted", rounds=3, link="shared")
    assert [r["round_time"] for r in as_short.records] == [r["round_time"] for r in fewer.records]


class OwnBits(Stateless):
    """Two clients upload with different bits, in rounds or in steps."""

    def __init__(self, steps):
        self.steps = steps

    def plan(self, context):
        both, weights, bits = np.array([1, 2]), np.array([0.5, 0.5]), np.array([4, 32])
        if not self.steps:
            return RoundPlan(members=both, weights=weights, upload_bits=bits)
        return BufferedPlan(start=both, weights=weights, wait_for=2, upload_bits=bits)


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("usual", [32, 8, "auto"])
def test_a_plan_may_choose_bits_for_each_client(data, times, steps, usual):
    result = run(data, times, OwnBits(steps), rounds=1, upload_bits=usual, link="shared")
    record, share = result.records[0], np.array([upload_share(4, 610), 1.0])
    assert sorted(zip(record["members"], record["upload_bits"], strict=True)) == [(1, 4), (2, 32)]
    tau, t = times["compute_time"][[1, 2]], times["upload_time"][[1, 2]] * share
    ends = max(tau.max() + t[np.argmax(tau)], tau.min() + t.sum())
    assert record["round_time"] == pytest.approx(ends)


@pytest.mark.parametrize("wrong", [1, 5, 64, [4, 7]])
def test_bits_that_no_upload_has_are_refused(wrong):
    with pytest.raises(InputError, match="upload_bits"):
        RoundPlan(members=[0, 1], weights=[1.0, 1.0], upload_bits=wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"upload_bits": 5},
        {"upload_bits": "some"},
        {"upload_bits": True},
        {"upload_top": 1.5},
        {"upload_top": 0.1, "upload_bits": 8},
        {"upload_top": 0.1, "upload_bits": "auto"},
        {"error_feedback": True},
        {"error_feedback": True, "upload_bits": "auto"},
        {"server_average": 1.5},
        {"server_average": -0.1},
        {"server_average": "some"},
        {"server_optimiser": "adagrad"},
        {"server_step_size": -1.0},
        {"local_direction": 1.0},
        {"local_correction": True, "local_direction": 0.5},
    ],
)
def test_settings_that_are_none_are_refused_by_name(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        TrainingSettings(cohort_size=2, **wrong)


def test_quantised_aggregation_is_unbiased(data, times):
    """The mean over many seeds of the rounding alone is the aggregate without rounding."""
    from fedtempo.learning.quantisation import Quantiser

    models = []
    for seed in range(400):
        loop = loop_of(data, times, "full", upload_bits=2)
        loop.clients.workers.quantiser = Quantiser(seed)
        next(loop.rounds())
        models.append(loop.model.astype(np.float64))
    exact = loop_of(data, times, "full")
    next(exact.rounds())
    spread = np.std(models, axis=0)
    off = (np.mean(models, axis=0) - exact.model) / np.maximum(spread / np.sqrt(400), 1e-9)
    assert np.abs(off).max() < 5, "of 610 means, none is five deviations off"
    assert np.mean(off**2) == pytest.approx(1, abs=0.25)
    assert spread.max() > 1e-4


def test_auto_takes_few_bits_where_links_are_slow_and_more_where_computers_are():
    def chosen(compute, upload):
        fleet = Fleet(np.full(4, 0.25), 1.0, compute, upload)
        return UploadSizes(TrainingSettings(cohort_size=4, upload_bits="auto"), fleet, 10_000, 0).bits

    assert chosen(0.0, 1.0) in (2, 3, 4)
    assert chosen(1e6, 1.0) >= 16
    found = [chosen(compute, 1.0) for compute in (0.0, 1.0, 10.0, 100.0, 1e4, 1e9)]
    assert found == sorted(found)
    assert set(found) <= set(BITS)


def test_auto_learns_the_noise_that_clients_report(data, times):
    loop = loop_of(data, times, "weighted", upload_bits="auto", rounds=5)
    assert loop.sizes.state.noise is None
    records = list(loop.rounds())
    noise = loop.sizes.state.noise
    assert (np.diff(noise) <= 0).all()
    assert noise[BITS.index(records[-1]["upload_bits"][0])] > 0


def test_the_mean_of_models_is_evaluated_and_training_goes_on_from_the_last(data, times):
    loop = loop_of(data, times, "weighted", server_average=1.0, rounds=4)
    plain = loop_of(data, times, "weighted", rounds=4)
    models = []
    for record, _ in zip(loop.rounds(), plain.rounds(), strict=True):
        models.append(plain.model)
        np.testing.assert_array_equal(loop.state.model, plain.model)
        np.testing.assert_allclose(loop.model, np.mean(models, axis=0), atol=1e-6)
        assert record["loss"] == loop.clients.evaluate(loop.model, loop.buffers).loss


def test_clients_follow_the_servers_last_direction(data, times):
    """FedCM: x ← x - η (α g + (1 - α) Δ), Δ the mean pseudo-gradient of the round before, for each local step."""
    first = loop_of(data, times, "full", local_direction=0.4, schedule="constant", rounds=2)
    before = first.model.copy()
    rounds = first.rounds()
    next(rounds)
    pseudo_gradient = (before - first.model) / (0.1 * 5)
    np.testing.assert_allclose(first.state.direction, -pseudo_gradient, atol=1e-6)
    middle = first.model.copy()
    next(rounds)
    trainer, share = first.clients.workers.trainer, data.data_share
    rows = first.clients.workers.batches.draw(np.arange(12), 1, 5)
    reference = np.zeros_like(middle, dtype=np.float64)
    board = ReadableSoftmax(data)
    for client in range(12):
        w = middle.astype(np.float64).reshape(trainer.shape)
        for batch in rows[client]:
            _, gradient = board.loss_and_gradient(w, board.inputs[batch], data.labels[batch])
            w = w - 0.1 * (0.6 * gradient + 0.4 * pseudo_gradient.reshape(w.shape))
        reference += share[client] * (w.ravel() - middle)
    np.testing.assert_allclose(first.model, middle + reference, atol=1e-5)


class HalfSteps(Stateless):
    """All clients, by steps of another size than the schedule's."""

    def __init__(self, data, factor):
        self.share, self.factor = data.data_share, factor

    def plan(self, context):
        size = self.factor * context.step_size
        return RoundPlan(members=np.arange(self.share.size), weights=self.share, step_size=size)


@pytest.mark.parametrize("schedule", LOCAL_SCHEDULES)
@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_a_direction_is_that_of_one_local_step(data, times, schedule, factor):
    """Tiny steps stay where they start, so the direction is a mean gradient there, however steps shrink."""
    settings = {"schedule": "constant", "step_size": 1e-6, "local_direction": 0.5}
    loop = loop_of(data, times, HalfSteps(data, factor), local_schedule=schedule, rounds=1, **settings)
    board, before = ReadableSoftmax(data), loop.model.astype(np.float64).reshape(10, 61)
    rows = loop.clients.workers.batches.draw(np.arange(12), 0, 5)
    next(loop.rounds())
    expected = np.zeros(610)
    for share, batches in zip(data.data_share, rows, strict=True):
        found = [board.loss_and_gradient(before, board.inputs[rows], data.labels[rows])[1] for rows in batches]
        expected -= share * np.average(found, axis=0, weights=schedule_factor(schedule, np.arange(5) / 5)).ravel()
    np.testing.assert_allclose(loop.state.direction, expected, atol=1e-4)


@pytest.mark.parametrize("setting", [{"local_direction": 0.5}, {"local_correction": True, "server_memory": True}])
def test_nothing_is_added_to_gradients_that_an_optimiser_scales(data, times, setting):
    """With Adam on clients, half of the server's direction in each step ends at eighty times the loss without."""
    trainer = SoftmaxTrainer(data)
    trainer.optimiser = "adam"
    with pytest.raises(InputError, match=f"{next(iter(setting))} must go with plain SGD on clients"):
        loop_of(data, times, "weighted", trainer=trainer, **setting)


@pytest.mark.parametrize(
    ("trait", "said"),
    [({"server_optimiser": "Adam"}, "must be one of sgd, adam"), ({"server_momentum": 1.0}, "below 1")],
)
def test_what_a_policy_says_of_its_server_is_checked(data, times, trait, said):
    policy = HalfSteps(data, 1.0)
    vars(policy).update(trait)
    with pytest.raises(InputError, match=said):
        loop_of(data, times, policy)


class SomeBits(Stateless):
    """Names bits in every other plan, while others are in flight."""

    def plan(self, context):
        idle = context.available_clients(12)[:2]
        bits = 4 if context.round_index % 2 else None
        return BufferedPlan(start=idle, weights=np.full(len(idle), 0.1), wait_for=1, upload_bits=bits)


def test_plans_with_and_without_bits_fly_together(data, times):
    records = list(loop_of(data, times, SomeBits(), rounds=8).rounds())
    pairs = [
        (bits, noise)
        for record in records
        for bits, noise in zip(record.get("upload_bits", []), record.get("quantisation_noise", []), strict=True)
    ]
    assert {bits for bits, _ in pairs} == {4, 32}
    assert all(noise > 0 for bits, noise in pairs if bits == 4)
    goes_on_alike(lambda: loop_of(data, times, SomeBits(), rounds=8), stops=(1, 4))


def test_auto_counts_downloads_before_and_after_the_first_report(data, times):
    """Next to a long download, bits cost rounds and save nothing."""
    loop = loop_of(data, times | {"download_time": np.full(12, 1e6)}, "weighted", upload_bits="auto", rounds=3)
    sizes = [set(record["upload_bits"]) for record in loop.rounds()]
    assert min(map(min, sizes)) >= 16


def test_the_direction_is_downloaded_with_the_model(data, times):
    slow = times | {"download_time": np.full(12, 5.0)}
    plain, led = (
        list(islice(loop_of(data, slow, "weighted", **more).rounds(), 2)) for more in ({}, {"local_direction": 0.5})
    )
    assert led[0]["round_time"] == plain[0]["round_time"], "there is none yet"
    assert led[1]["round_time"] == pytest.approx(plain[1]["round_time"] + 5.0)


class Shortened(OwnBits):
    """Steps of the server that are shorter than those of local training."""

    def plan(self, context):
        plan = super().plan(context)
        return replace(plan, upload_bits=None, server_factor=0.25 if self.short else 1.0)


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("memory", [False, True])
def test_a_server_factor_shortens_the_servers_step_alone(data, times, steps, memory):
    models = {}
    for short in (False, True):
        policy = Shortened(steps)
        policy.short = short
        loop = loop_of(data, times, policy, rounds=1, server_memory=memory)
        before = loop.model
        models[short] = next(loop.model - before for _ in loop.rounds())
    np.testing.assert_allclose(models[True], 0.25 * models[False], atol=1e-7)
    assert np.abs(models[False]).max() > 1e-4


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan])
def test_a_server_factor_is_positive(wrong):
    with pytest.raises(InputError, match="server_factor"):
        RoundPlan(members=[0], weights=[1.0], server_factor=wrong)
