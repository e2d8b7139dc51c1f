"""Comparisons: late runs enter with what they were given, bounds are called bounds, intervals hold what they say."""

from dataclasses import replace

import numpy as np
import pytest

from fedtempo import cohort_round_time
from fedtempo.experiments.comparing.amounts import amount
from fedtempo.experiments.comparing.cells import factor, interval, seconds
from fedtempo.experiments.comparing.curves import reaches
from fedtempo.experiments.comparing.statistics import Target, Times, outcomes, ratio, time_to, times_to
from fedtempo.experiments.comparing.tables import time_table
from fedtempo.experiments.paper.tables import gains_table
from fedtempo.experiments.ranking.candidates import Score, scores
from fedtempo.experiments.running.grid import run_grid
from support.grids import TWO_PROCESSES, cells, late, made_up, planned_runs, trial_of
from support.marks import slow_after


def test_statistics_of_times_are_those_of_the_textbook(setup2, tmp_path):
    planned = planned_runs(setup2, tmp_path, seeds=range(4), stop={"max_rounds": 25})
    runs = run_grid("small", planned, TWO_PROCESSES)
    target = Target(loss=1.5)
    found = times_to(runs, target)
    uniform = np.array([run.time_to(loss=1.5) for run in runs[:4]], dtype=float)
    assert not np.isnan(uniform).any(), "the case must have a target that is reached"
    assert found["uniform"].mean == pytest.approx(uniform.mean())
    half = 3.182446 * uniform.std(ddof=1) / 2  # Student's t with three degrees of freedom
    assert found["uniform"].interval == pytest.approx((uniform.mean() - half, uniform.mean() + half))
    value, low, high = ratio(found["uniform"], found["weighted"])
    assert value == pytest.approx(uniform.mean() / found["weighted"].seconds.mean())
    assert low <= value <= high
    mean = uniform.mean()
    assert seconds(found["uniform"]).text == f"{amount(mean)} ± {amount(uniform.std(ddof=1), mean)}"
    assert "–" in interval(found["uniform"]).text
    late = times_to(runs, target, time_limit=float(np.sort(uniform)[1]))["uniform"]
    assert late.missed == 2
    assert late.seconds.max() == np.sort(uniform)[1]
    assert seconds(late).text.startswith("> ")
    assert seconds(late).text.endswith("2 of 4 not reached")
    never = times_to(runs, Target(loss=0.001))
    assert never["uniform"].missed == 4
    assert never["uniform"].mean == pytest.approx(np.mean([run.time[-1] for run in runs[:4]]))
    assert factor(never["uniform"], found["weighted"]).text.startswith("> ")


def test_missed_runs_make_bounds_and_are_never_dropped():
    runs = [made_up("uniform", s, [2.0, 1.0, 0.5], 10.0) for s in range(2)]
    runs += [made_up("proposed-oracle", 0, [2.0, 0.5], 4.0), made_up("proposed-oracle", 1, [2.0, 1.5, 1.4], 4.0)]
    target = Target(loss=0.5)
    heading, uniform, ours = cells(time_table(runs, target))
    assert heading[4] == "over proposed-oracle"
    assert uniform[:5] == ["uniform", "30.0 ± 0.0", "-", "3", "< 3.00 ×"]  # 30 s over more than (8 + 12)/2 s
    assert ours[1:4] == ["> 10.0, 1 of 2 not reached", "-", "> 2"]
    never = [made_up(policy, 0, [2.0, 1.9], 5.0) for policy in ("uniform", "proposed-oracle")]
    assert [row[4] for row in cells(time_table(never, target))[1:]] == ["-", "1"]
    steps = cells(gains_table(runs, target, [], 1))
    # Constant times of members: on an equal link member 0, drawn twice, has 2/3 of it for twice the work.
    equal = max(1 + 2 * 0.5 / (2 / 3), 2 + 0.25 / (1 / 3))
    assert steps[1][1] == f"{3 * equal:.2f}"
    shared = cohort_round_time([1.0, 2.0], [0.5, 0.25], link="shared")
    assert steps[5][1] == f"> {(2 + 3) / 2 * shared:.2f}, 1 of 2 not reached"
    assert steps[5][2].startswith("< ")


def test_diverged_runs_stand_at_the_longest_time_and_none_divides_by_zero():
    runs = [made_up("uniform", 0, [2.0, 1.0], 10.0), made_up("proposed", 0, [2.0], 1.0, end="diverged", pilot=7.0)]
    found = times_to(runs, Target(loss=1.0))
    assert found["proposed"].seconds.tolist() == [20.0]
    assert found["proposed"].rounds.tolist() == [1.0]
    assert cells(time_table(runs, Target(loss=1.0)))[1][4] == "< 1.00 ×"
    nothing = made_up("proposed", 0, [], 1.0, end="diverged")
    assert (
        ratio(times_to(runs[:1], Target(loss=1.0))["uniform"], times_to([nothing], Target(loss=1.0))["proposed"])[0]
        == np.inf
    )


def test_pilots_are_left_out_and_counted():
    runs = [made_up("uniform", 0, [1.0], 30.0), made_up("proposed", 0, [1.0], 10.0, pilot=20.0)]
    heading, uniform, proposed = cells(time_table(runs, Target(loss=1.0), {"uniform": (5.0, 1.0), "proposed": None}))
    assert heading[4:] == ["over proposed", "pilots (s)", "with pilots (s)", "over proposed, with pilots", "paper (s)"]
    assert uniform[4:] == ["3.00 ×", "none", "30.0", "1.00 ×", "5 ± 1"]
    assert proposed[4:] == ["1", "20.0", "30.0", "1", "not reached"]


TARGET = Target(loss=1.0)


def times_of(policy, *seconds):
    count = len(seconds)
    return Times(
        policy, tuple(range(count)), np.array(seconds), np.zeros(count), np.ones(count, dtype=bool), np.ones(count)
    )


@pytest.mark.parametrize(
    ("end", "entered"),
    [("max_time", 35.0), ("diverged", 35.0), ("max_rounds", 30.0), ("target", 30.0), (None, 30.0)],
)
def test_a_late_run_is_credited_with_no_time_that_it_did_not_train_unless_it_diverged(end, entered):
    run = late(end, rounds=4 if end == "max_time" else 3, max_time=35.0)
    (found,) = times_to([run], TARGET).values()
    assert (found.missed, found.seconds.tolist()) == (1, [entered])
    (lower,) = times_to([run], TARGET, 25.0).values()
    assert lower.seconds.tolist() == [25.0], "a limit of the comparison holds too"
    (higher,) = times_to([run], TARGET, 99.0).values()
    assert higher.seconds.tolist() == [entered], "but never beyond the run's own"


def test_a_run_without_a_time_limit_enters_with_what_it_trained_and_a_diverged_one_with_the_longest():
    runs = [late(end, rounds, seed=rounds) for end, rounds in (("max_rounds", 4), (None, 2), ("diverged", 1))]
    (found,) = times_to(runs, TARGET).values()
    assert dict(zip(found.seeds, found.seconds.tolist(), strict=True)) == {1: 40.0, 2: 20.0, 4: 40.0}
    (alone,) = times_to(runs[2:], TARGET, among=[made_up("weighted", 0, [1.0] * 9, 10.0)]).values()
    assert alone.seconds.tolist() == [90.0]


def test_a_target_that_is_reached_in_the_round_that_passes_the_limit_is_missed_everywhere():
    run = made_up("uniform", 0, [2.0, 1.5, 1.0], 10.0, end="target", target_loss=1.0, max_time=29.0)
    assert time_to(run, TARGET) is None
    assert not reaches(run, TARGET)
    (outcome,) = outcomes([run], TARGET)
    assert (outcome.reached, outcome.time_to_target) == (False, 29.0)
    assert scores([trial_of([run])], TARGET) == [Score(1, 0, 29.0, 1.0)]
    run.header.config["stop"]["max_time"] = 30.0
    assert time_to(run, TARGET) == 30.0
    assert reaches(run, TARGET)


def test_scripts_read_the_seconds_of_the_table():
    runs = [made_up("weighted", 1, [2.0, 1.0], 10.0, end="target"), late("diverged", rounds=1)]
    runs += [replace(late("max_rounds"), policy="weighted")]
    rows, found = outcomes(runs, TARGET), times_to(runs, TARGET)
    assert [(row.policy, row.seed) for row in rows] == [("weighted", 0), ("weighted", 1), ("uniform", 0)]
    assert [row.time_to_target for row in rows] == [40.0, 20.0, 40.0]
    assert [row.time_to_target for row in rows[:2]] == found["weighted"].seconds.tolist()
    assert [row.rounds for row in rows] == [4, 2, 1]
    assert [row.final_loss for row in rows] == [1.5, 1.0, 1.5]
    assert outcomes([], TARGET) == []


@pytest.mark.parametrize("seeds", slow_after(1, [3, 5, 20]))
@pytest.mark.parametrize("spread", [(0.3, 0.3), (0.1, 0.5)])
def test_intervals_of_ratios_hold_the_ratio_of_lognormal_times_as_often_as_they_say(seeds, spread):
    rng, trials, held = np.random.default_rng(seeds), 1500, 0
    true = np.exp((spread[0] ** 2 - spread[1] ** 2) / 2)
    for _ in range(trials):
        of, to = (times_of(name, *np.exp(s * rng.normal(size=seeds))) for name, s in zip("ab", spread, strict=True))
        value, low, high = ratio(of, to)
        assert low <= value <= high
        assert 1 / high == pytest.approx(ratio(to, of)[1]), "both ways round it is the same interval"
        held += low <= true <= high
    assert 0.92 <= held / trials <= 0.97  # two standard errors of the count are 1.1 %


def test_ratios_of_paired_and_of_other_seeds():
    of, to = times_of("a", 10.0, 20.0, 30.0), times_of("b", 5.0, 10.0, 15.0)
    assert ratio(of, to) == pytest.approx((2.0, 2.0, 2.0)), "in pairs there is no deviation"
    value, low, high = ratio(of, replace(to, seeds=(7, 8, 9)))
    half = 2.776445 * (0.25 / 3 + 0.25 / 3) ** 0.5  # equal variances: Student's t with four degrees of freedom
    assert (value, low, high) == pytest.approx((2.0, 2 / np.exp(half), 2 * np.exp(half)))


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_give_a_ratio_without_an_interval(seeds):
    of, to = times_of("a", *[10.0, 20.0][:seeds]), times_of("b", *[5.0, 4.0, 3.0][:seeds])
    for reference in (to, replace(to, seeds=tuple(range(7, 7 + seeds))), times_of("b", 5.0, 4.0, 3.0)):
        value, low, high = ratio(of, reference)
        assert value == of.mean / reference.mean
        assert np.isnan([low, high]).all()
        assert factor(of, reference).interval == ""


def test_a_policy_that_takes_pilots_for_granted_has_no_time_with_pilots():
    runs = [made_up("uniform", 0, [1.0], 300.0), made_up("proposed-oracle", 0, [1.0], 100.0)]
    heading, uniform, oracle = cells(time_table(runs, TARGET))
    assert heading[4:] == ["over proposed-oracle", "pilots (s)", "with pilots (s)"]
    assert uniform[4:] == ["3.00 ×", "none", "300"]
    assert oracle[4:] == ["1", "taken for granted", "-"]
    runs.append(made_up("proposed", 0, [1.0], 150.0, pilot=50.0))
    heading, uniform, oracle, ours = cells(time_table(runs, TARGET))
    assert heading[-1] == "over proposed, with pilots"
    assert [row[-3:] for row in (uniform, oracle, ours)] == [
        ["none", "300", "1.50 ×"], ["taken for granted", "-", "-"], ["50.0", "200", "1"],
    ]  # fmt: skip
