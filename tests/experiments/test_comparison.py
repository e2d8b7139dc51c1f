"""Comparisons: late runs enter with what they were given, bounds are called bounds, intervals hold."""

from dataclasses import replace

import numpy as np
import pytest
from test_grid import candidate, cells, made_up

from fedtempo.experiments.comparison import Target, Times, as_json, ratio, time_to, times_to
from fedtempo.experiments.figures import reaches
from fedtempo.experiments.paper import SETUPS
from fedtempo.experiments.tables import gains_table, own_estimates, rounds_table, time_table
from fedtempo.experiments.tuning import Candidate, at_the_edge, best_of, tuning_table

TARGET = Target(loss=1.0)


def late(end, rounds=4, seconds=10.0, **stop):
    """Return a run that does not come below loss 1.5 in its rounds."""
    run = made_up("uniform", 0, [2.0] * (rounds - 1) + [1.5], seconds, end=end)
    run.header["config"]["stop"] = stop
    return run


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
    runs = [replace(late(end, rounds), seed=rounds) for end, rounds in (("max_rounds", 4), (None, 2), ("diverged", 1))]
    (found,) = times_to(runs, TARGET).values()
    assert dict(zip(found.seeds, found.seconds.tolist(), strict=True)) == {1: 40.0, 2: 20.0, 4: 40.0}
    (alone,) = times_to(runs[2:], TARGET, among=[made_up("weighted", 0, [1.0] * 9, 10.0)]).values()
    assert alone.seconds.tolist() == [90.0]


def test_a_target_that_is_reached_in_the_round_that_passes_the_limit_is_missed_everywhere():
    run = made_up("uniform", 0, [2.0, 1.5, 1.0], 10.0, end="target")
    run.header["config"]["stop"] = {"target_loss": 1.0, "max_time": 29.0}
    assert time_to(run, TARGET) is None
    assert not reaches(run, TARGET)
    (row,) = as_json([run], TARGET)
    assert (row["reached"], row["time_to_target"]) == (False, 29.0)
    tuned = Candidate("uniform", {"step_size": 0.1}, 3, [])
    tuned.__dict__["runs"] = [run]
    assert tuned.score(TARGET)[:3] == (1, 0, 29.0)
    run.header["config"]["stop"]["max_time"] = 30.0
    assert time_to(run, TARGET) == 30.0
    assert reaches(run, TARGET)


def test_scripts_read_the_seconds_of_the_table():
    runs = [made_up("weighted", 1, [2.0, 1.0], 10.0, end="target"), late("diverged", rounds=1)]
    runs += [replace(late("max_rounds"), policy="weighted")]
    rows, found = as_json(runs, TARGET), times_to(runs, TARGET)
    assert [(row["policy"], row["seed"]) for row in rows] == [("uniform", 0), ("weighted", 0), ("weighted", 1)]
    assert [row["time_to_target"] for row in rows] == [40.0, 40.0, 20.0]
    assert [row["time_to_target"] for row in rows[1:]] == found["weighted"].seconds.tolist()
    assert [row["rounds"] for row in rows] == [1, 4, 2]
    assert as_json([], TARGET) == []


def test_diverged_candidates_stand_at_the_limit_or_at_the_longest_time_of_all():
    limited = Candidate("uniform", {"step_size": 9.0}, 3, [])
    limited.__dict__["runs"] = [late("diverged", rounds=1, max_time=500.0)]
    assert limited.times(TARGET).seconds.tolist() == [500.0]
    free, steady = Candidate("uniform", {"step_size": 9.0}, 3, []), candidate("uniform", 0.1, 3, 80.0)
    free.__dict__["runs"] = [late("diverged", rounds=1)]
    assert best_of([free, steady], TARGET)["uniform"] is steady
    assert [row[3] for row in cells(tuning_table([free, steady], TARGET))[1:]] == ["> 80.0, 1 of 1 not reached", "80.0"]


def test_what_to_try_next_lies_a_factor_of_three_away_at_most():
    found = [candidate("uniform", step, 3, seconds) for step, seconds in ((0.005, 5.0), (50.0, 9.0))]
    assert at_the_edge(found, TARGET) == ["uniform: step_size 0.005 is the smallest that was tried; try 0.0017 too"]


@pytest.mark.parametrize("seeds", [2, 3, 5, 20])
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
    assert np.isnan(ratio(times_of("a", 1.0), times_of("b", 2.0))[1])


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


def test_gains_are_bounded_by_both_rows_and_not_at_all_where_both_missed():
    reached, missed = [2.0, 1.0], [2.0, 1.9, 1.8]
    oracle, best = made_up("proposed-oracle", 0, reached, 4.0), made_up("proposed-oracle", 0, reached, 3.0)
    steps = cells(gains_table([made_up("uniform", 0, missed, 9.0), oracle], TARGET, [best], 2))[1:]
    assert [row[2][0] for row in steps] == ["1", "1", "1", "1", ">", "1"], "the same runs on other links are comparable"
    assert [row[3][0] for row in steps[4:]] == [">", ">"]
    late_oracle, late_best = (made_up("proposed-oracle", 0, missed, 4.0) for _ in range(2))
    steps = cells(gains_table([made_up("uniform", 0, missed, 9.0), late_oracle], TARGET, [late_best], 2))[1:]
    assert [row[2:] for row in steps[4:]] == [["-", "-"], ["-", "-"]]


def piloted(seed, value):
    run = made_up("proposed", seed, [1.0], 5.0)
    run.records[0]["note"] = {"beta_over_alpha": value, "fallback": value is None}
    return run


def test_rounds_that_some_runs_missed_are_bounds_and_nothing_is_said_of_nan():
    uniform = [made_up("uniform", 0, [1.2, 1.1, 1.0], 5.0), made_up("uniform", 1, [1.2] * 5, 5.0)]
    weighted = [made_up("weighted", s, [1.1, 1.0], 5.0) for s in range(2)]
    setup = replace(SETUPS["setup2"], losses=(1.1, 1.0), rounds_uniform=(7, 8), rounds_weighted=(5, 6))
    said = rounds_table(uniform + weighted, setup, 3)
    table = cells(said)
    assert table[1][1:] == ["> 4, 1 of 2 not reached", "> 4, 1 of 2 not reached"]
    assert table[3][1:] == ["1.0", "2.0"]
    assert table[5][1:] == ["> 3.50", "> 2.00"]
    assert "nan" not in said
    assert "longer pilots" not in said
    assert "since no loss was reached by all runs of both" in said
    outside = rounds_table([made_up("uniform", 0, [1.1, 1.0], 5.0), *weighted[:1]], setup, 3)
    assert "which needs a ratio of rounds strictly between" in outside
    assert "got 1, 1;" in outside


def test_what_each_run_found_in_its_own_pilots_is_told():
    assert own_estimates([made_up("proposed", 0, [1.0], 5.0)]) == ""
    runs = [piloted(s, value) for s, value in enumerate([None, 100.0, 1500.0, 300.0])]
    said = own_estimates(runs)
    assert said.startswith("From the pilots of each run: 1 of 4 runs of `proposed` found no estimate")
    assert said.endswith("the others found 100 to 1,500, median 300.")
    assert own_estimates(runs[:1]).endswith("fell back to the closed form, β/α = 0.")
    setup = replace(SETUPS["setup2"], losses=(1.0,), rounds_uniform=(7,), rounds_weighted=(5,))
    both = [made_up(policy, 0, [1.1, 1.0], 5.0) for policy in ("uniform", "weighted")]
    assert said in rounds_table(both + runs, setup, 3)
