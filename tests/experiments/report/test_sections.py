"""Sections: which runs stand together, and to which target."""

from dataclasses import replace

from fedtempo.experiments.comparing.statistics import Target, times_to
from fedtempo.experiments.report.sections import choose_target, sections
from fedtempo.experiments.running.results import read_runs
from support.reports import run_small, with_config, written


def test_the_target_is_the_one_of_the_configuration_or_a_loss_that_all_reach(runs):
    target = choose_target(runs)
    assert target.accuracy is None
    worst = max(run.loss.min() for run in runs)
    assert worst <= target.loss <= 1.01 * worst
    assert all(times.missed == 0 for times in times_to(runs, target).values())
    asked = [with_config(run, stop={"target_accuracy": 0.5}) for run in runs]
    assert choose_target(asked) == Target(accuracy=0.5)


def test_runs_with_other_targets_share_the_easiest_and_are_not_called_equal(runs, tmp_path):
    ends = {"proposed": {"target_loss": 1.9, "target_accuracy": 0.5}, "uniform": {"target_loss": 1.95, "max_rounds": 9}}
    mixed = [with_config(run, stop=ends[run.policy]) for run in runs]
    assert choose_target(mixed) == Target(loss=1.95)
    assert choose_target(
        [with_config(run, stop={"target_loss": 1.9, "target_accuracy": 0.7}) for run in runs[:1]] + mixed[:2]
    ) == (Target(loss=1.9, accuracy=0.5))
    shorter = with_config(replace(runs[2], records=runs[2].records[:-1]), stop={"target_loss": 2.5})
    (section,) = sections([*runs, shorter, runs[0]])
    assert (section.duplicates, section.other_ends, len(section.runs)) == (1, 1, 4)
    page = written([*runs, shorter, runs[0]], tmp_path)
    assert "1 run given twice, each counted once. 1 run with another end left out: longer ones" in page


def test_runs_with_other_settings_are_not_averaged_and_equal_ones_count_once(runs, tmp_path):
    run_small(tmp_path, policies=["uniform"], seeds=[0], over={"training": {"cohort_size": 5}})
    (section,) = sections([*runs, *read_runs([tmp_path]), runs[0]])
    assert list(section.groups) == [
        "proposed, cohort_size 3",
        "uniform, cohort_size 3",
        "uniform, cohort_size 5",
    ]
    assert section.duplicates == 1
    assert len(section.runs) == 5


def test_presets_get_sections_of_their_own(runs, tmp_path):
    run_small(tmp_path, policies=["uniform"], seeds=[0], preset="best")
    found = sections([*runs, *read_runs([tmp_path])])
    assert [section.title for section in found] == ["small, preset best", "small, preset paper"]
