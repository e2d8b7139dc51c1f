"""Tuning: the best of each policy, and where it lies at the edge of what was tried."""

import numpy as np

from fedtempo.experiments.comparing.statistics import Target
from fedtempo.experiments.ranking.candidates import best_of, edges_of
from fedtempo.experiments.ranking.tuning import Tuning
from fedtempo.experiments.running.results import read_runs
from support.grids import cells, late, trial, trial_of
from support.runs import command


def test_tuning_names_the_best_of_each_policy(setup2, tmp_path, capsys):
    arguments = ["tune", setup2, "--policies", "uniform,proposed", "--step-sizes", "0.05,1e9", "--cohort-sizes", "2,4"]
    arguments += ["--seeds", 2, "--target-loss", 1.6, "--preset", "best", "-o", tmp_path / "runs"]
    assert command(*arguments) == 0
    shown = capsys.readouterr().out
    rows = cells(shown)[1:]
    assert len(rows) == 8
    assert "small, preset best, to loss 1.6, seeds 1000, 1001, for at most 6 rounds." in shown
    assert "- uniform, proposed: local_steps 5, batch_size 24, schedule inverse," in shown
    for policy in ("uniform", "proposed"):
        (best,) = [row for row in rows if row[0] == policy and row[4] == "best"]
        assert best[1] == "0.05", "a diverging step size is not the best"
        assert f"[presets.best.policy.{policy}.training]\nstep_size = 0.05\ncohort_size = {best[2]}" in shown
    runs = read_runs([tmp_path / "runs"])
    assert {run.seed for run in runs} == {1000, 1001}
    uniform = {
        size: np.mean([
            run.time_to(loss=1.6) or run.time[-1]
            for run in runs
            if run.policy == "uniform" and run.header.config["policy"]["uniform"]["training"]
            == {"step_size": 0.05, "cohort_size": size}
        ])
        for size in (2, 4)
    }  # fmt: skip
    (best,) = [row for row in rows if row[0] == "uniform" and row[4] == "best"]
    assert int(best[2]) == min(uniform, key=uniform.get)
    for sizes, said in (("fast", "must be numbers"), (",", "at least one step size")):
        assert command("tune", setup2, "--policies", "uniform", "--step-sizes", sizes, "--target-loss", 1) == 2
        assert said in capsys.readouterr().err
    assert command("tune", setup2, "--policies", "uniform", "--step-sizes", "0.1") == 2
    assert "must have a target" in capsys.readouterr().err


def test_tuning_says_where_the_best_lies_at_the_edge_of_what_was_tried():
    took = {(0.1, 4): 9.0, (0.2, 4): 5.0, (0.4, 4): 7.0, (0.1, 6): 9.0, (0.2, 6): 4.0, (0.4, 6): 8.0}
    found = [trial("uniform", *settings, seconds) for settings, seconds in took.items()]
    target = Target(loss=1.0)
    assert edges_in_words(found, target) == ["uniform: cohort_size 6 is the largest that was tried; try 9 too"]
    deaf = [trial("tempo", step, size, step) for step in (0.1, 0.3) for size in (1, 2)]
    assert edges_in_words(deaf, target) == ["tempo: step_size 0.1 is the smallest that was tried; try 0.033 too"]
    least = [trial("uniform", 0.1, size, size) for size in (1, 2)]
    assert edges_in_words(least, target) == [], "one value is no grid, and no cohort is smaller than 1"
    plain = [trial("uniform", step, 2, 9.0, server_momentum=0.0) for step in (0.1, 0.2, 0.4)]
    momentum = [trial("uniform", step, 2, 1 / step, server_momentum=0.9) for step in (0.1, 0.2)]
    assert edges_in_words(plain + momentum, target) == [
        "uniform: step_size 0.2 is the largest that was tried; try 0.4 too"
    ]


def test_a_step_size_that_diverges_is_never_the_best(setup2, tmp_path, capsys):
    arguments = ["tune", setup2, "--policies", "uniform", "--step-sizes", "0.05,1e9", "--target-loss", 0.001]
    assert command(*arguments, "--seeds", 1, "-o", tmp_path / "runs") == 0
    assert "step_size = 0.05" in capsys.readouterr().out


TARGET = Target(loss=1.0)


def edges_in_words(trials, target):
    return [str(edge) for edge in edges_of(trials, target)]


def test_diverged_candidates_stand_at_the_limit_or_at_the_longest_time_of_all():
    limited = trial_of([late("diverged", rounds=1, max_time=500.0)], 9.0)
    assert limited.times(TARGET).seconds.tolist() == [500.0]
    free, steady = trial_of([late("diverged", rounds=1)], 9.0), trial("uniform", 0.1, 3, 80.0)
    best = best_of([free, steady], TARGET)
    assert best["uniform"] is steady
    table = Tuning(None, TARGET, [free, steady], best, []).table()
    assert [row[3] for row in cells(table)[1:]] == ["> 80.0, 1 of 1 diverged", "80.0"]
    assert [row[4] for row in cells(table)[1:]] == ["", "best"]


def test_what_to_try_next_lies_a_factor_of_three_away_at_most():
    found = [trial("uniform", step, 3, seconds) for step, seconds in ((0.005, 5.0), (50.0, 9.0))]
    assert edges_in_words(found, TARGET) == ["uniform: step_size 0.005 is the smallest that was tried; try 0.0017 too"]
