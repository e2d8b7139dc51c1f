"""The loop: honest about time, and open to whatever a policy plans."""

import itertools
import math

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.engine.divergence import DivergedError
from fedtempo.policies.policy import Probe, Restart, RoundPlan
from support.simulations import run


def test_the_clock_and_the_weights_are_those_of_the_theory(data, times):
    from fedtempo import cohort_round_time

    result, share, time = run(data, times, "uniform"), data.data_share, 0.0
    for record in result.records:
        members, counts = np.array(record["members"]), np.array(record["counts"])
        np.testing.assert_allclose(record["weights"], counts * share[members] * 12 / 4)
        draws = np.repeat(members, counts)
        assert len(draws) == 4
        expected = cohort_round_time(times["compute_time"][draws], times["upload_time"][draws])
        assert record["round_time"] == pytest.approx(expected)
        time += record["round_time"]
        assert record["time"] == pytest.approx(time)
        np.testing.assert_allclose(record["step_size"], 0.1 / (1 + record["round"]))


def test_policies_share_batches_and_the_initial_model(data, times):
    """A client drawn by two policies in round 0 gets the same batches from the same model: the same norms."""
    full = run(data, times, "full", rounds=1).records[0]
    some = run(data, times, "uniform", rounds=1).records[0]
    for place, client in enumerate(some["members"]):
        assert some["update_norm"][place] == full["update_norm"][client]


def test_runs_end_at_a_target_or_a_limit(data, times):
    by_loss = run(data, times, rounds=100, target_loss=1.9)
    assert by_loss.summary["end"] == "target"
    assert by_loss.records[-1]["loss"] <= 1.9 < by_loss.records[-2]["loss"]
    assert by_loss.summary["time_to_loss"] == by_loss.records[-1]["time"]
    assert run(data, times, target_accuracy=0.01).summary["rounds"] == 1
    by_time = run(data, times, rounds=None, max_time=10.0)
    assert by_time.summary["end"] == "max_time"
    assert by_time.records[-2]["time"] < 10.0 <= by_time.records[-1]["time"]
    with pytest.raises(InputError, match="must have a limit"):
        run(data, times, rounds=None)


def test_the_loss_is_evaluated_when_asked(data, times):
    result = run(data, times, rounds=7, evaluate_every=3)
    assert [r["loss"] is not None for r in result.records] == [False, False, True, False, False, True, True]
    seconds, losses = result.series("loss")
    assert len(seconds) == len(losses) == 3
    assert result.summary["loss"] == losses[-1], "the last round is always evaluated"


def test_the_loss_is_evaluated_whenever_the_time_has_grown(data, times):
    every, grown = run(data, times, rounds=60), run(data, times, rounds=60, evaluate_growth=0.1)
    seconds, losses = grown.series("loss")
    assert set(zip(seconds, losses, strict=True)) < set(zip(*every.series("loss"), strict=True)), "nothing else changes"
    assert seconds[0] == every.records[0]["time"], "the first round is looked at"
    longest = max(record["round_time"] for record in every.records)
    assert all(later <= 1.1 * earlier + longest for earlier, later in itertools.pairwise(seconds))
    assert len(seconds) <= 3 + math.log(seconds[-1] / seconds[0]) / math.log(1.1)


def test_a_diverging_run_names_the_round(data, times):
    with pytest.raises(DivergedError, match=r"diverged in round \d+.*smaller step_size") as caught:
        run(data, times, "uniform", rounds=300, step_size=1e30, schedule="constant", evaluate_every=1000)
    assert [r["round"] for r in caught.value.records] == list(range(len(caught.value.records)))


class Directing:
    """A policy that sets everything that a plan can set."""

    def plan(self, context):
        return RoundPlan(
            members=np.array([0, 11]), weights=np.array([0.5, 0.5]), bandwidth=np.array([0.25, 0.75]),
            local_steps=np.array([10, 5]), step_size=context.step_size * np.array([1.0, 0.5]), deadline=3.0,
        )  # fmt: skip

    def observe(self, report):
        assert report.failed.tolist() == [True, False]


def test_a_plan_may_set_bandwidth_steps_step_sizes_and_a_deadline(data, times):
    record = run(data, times, Directing(), rounds=1).records[0]
    assert record["round_time"] == 3.0
    assert record["failed"] == [0]  # 0.1 s · 2 + 1.5/0.25 = 6.2 s
    assert record["step_size"] == [0.1, 0.05]


class Changing:
    """A policy that asks the world for its times, and starts again once."""

    def __init__(self):
        self.restarted = False

    def plan(self, context):
        if context.round_index == 2 and not self.restarted:
            self.restarted = True
            return Restart()
        return RoundPlan(members=[0, 5], weights=[0.5, 0.5], phase="train" if self.restarted else "pilot")

    def observe(self, report):
        pass


def test_a_restart_forgets_the_model_and_the_server_but_not_the_clock(data, times):
    settings = {"server_momentum": 0.5, "server_memory": True, "rounds": 2}
    restarted = run(data, times, Changing(), **settings)
    plain = Changing()
    plain.restarted = True
    once = run(data, times, plain, **settings)
    assert [r["loss"] for r in restarted.records[2:]] == [r["loss"] for r in once.records]
    assert restarted.records[2]["time"] > restarted.records[1]["time"]
    assert restarted.summary["pilot_rounds"] == 2
    assert restarted.summary["time"] == pytest.approx(once.summary["time"])


class Alternating:
    """A policy whose pilots and training take turns."""

    def __init__(self):
        self.rounds = 0

    def plan(self, context):
        self.rounds += 1
        return RoundPlan(members=[self.rounds % 3], weights=[1.0], phase="pilot" if self.rounds % 2 else "train")

    def observe(self, report):
        pass


def test_pilots_may_come_between_training(data, times):
    result = run(data, times, Alternating(), rounds=3)
    pilots = [r["round_time"] for r in result.records if r["phase"] == "pilot"]
    assert result.summary["rounds"] == 3
    assert result.summary["pilot_rounds"] == len(pilots) == 3
    assert result.summary["pilot_time"] == pytest.approx(sum(pilots))


@pytest.mark.parametrize("setting", ["server_momentum", "server_memory", "weight_decay"])
def test_settings_of_the_server_and_of_sgd_change_training(data, times, setting):
    plain, other = run(data, times), run(data, times, **{setting: True if setting == "server_memory" else 0.3})
    assert plain.records[0]["members"] == other.records[0]["members"]
    assert np.abs(plain.model - other.model).max() > 1e-4


class Telling:
    """A policy that plans whatever it is told."""

    def __init__(self, **plan):
        self.given = plan

    def plan(self, context):
        if "returns" in self.given:
            return self.given["returns"]
        return RoundPlan(**({"members": [0, 1], "weights": [0.5, 0.5]} | self.given))

    def observe(self, report):
        pass


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"members": [0, 50]}, "members must lie below 12"),
        ({"members": [-1, 2]}, "distinct clients"),
        ({"members": [3, 3]}, "distinct clients"),
        ({"members": [0.5, 1]}, "whole numbers"),
        ({"weights": [0.5]}, "one entry for each of 2 members"),
        ({"weights": [0.5, np.nan]}, "weights must be finite"),
        ({"bandwidth": [1000.0, 1000.0]}, "add up to 1"),
        ({"bandwidth": [0.5, 0.0]}, "bandwidth must be positive"),
        ({"bandwidth": [0.5, -0.1]}, "bandwidth must be positive"),
        ({"deadline": -1.0}, "deadline must be positive"),
        ({"local_steps": 0}, "local_steps must be positive"),
        ({"step_size": -0.1}, "step_size must be positive"),
        ({"counts": [0, 1]}, "counts must be positive"),
        ({"returns": Restart()}, "after at most 100 probes"),
        ({"returns": Probe(clients=[0, 40], ask="loss")}, "clients must lie below 12"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(data, times, plan, said):
    with pytest.raises(InputError, match=said):
        run(data, times, Telling(**plan), rounds=1)


def test_probes_are_checked():
    with pytest.raises(InputError, match="ask must be one of"):
        Probe(clients=[1], ask="mood")
    with pytest.raises(InputError, match="nobody"):
        Probe(clients=[], ask="loss")


def test_a_round_without_members_passes_by(data, times):
    result = run(data, times, Telling(members=[], weights=[]), rounds=2)
    assert [r["round_time"] for r in result.records] == [0.0, 0.0]
    assert not result.model.any()
