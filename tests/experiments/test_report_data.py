"""What a report tells: headline, target, labels, sections and plots."""

from dataclasses import replace

import numpy as np
import pytest

from fedtempo.experiments import report_data
from fedtempo.experiments.comparison import Target, times_to
from fedtempo.experiments.figures import styles
from fedtempo.experiments.report_data import choose_target, headline, labelled, plot_data, sections, why_missed
from fedtempo.experiments.results import read_runs
from support.reports import TARGET, run_small, times_of

pytest.importorskip("plotly")


def test_the_headline_names_the_first_and_the_ratios(runs):
    times = times_to(runs, TARGET)
    counted = [one.with_pilots() for one in times.values()]
    first, last = sorted(counted, key=lambda one: one.mean)
    said = headline(times, TARGET)
    after = f"after {first.mean:,.0f} s, pilots counted, in the mean of 2 seeds."
    assert said.startswith(f"{first.policy} was first at loss 1.95 {after}")
    assert f"Next was {last.policy}, which took {last.mean / first.mean:.2f} times as long (95 % interval" in said
    trained = min(times.values(), key=lambda one: one.mean)
    other = f"With all pilots left out, {trained.policy} would be first, after {trained.mean:,.0f} s."
    assert said.endswith(other) == (trained.policy != first.policy)
    alone = {"uniform": times["uniform"]}
    assert headline(alone, TARGET).startswith("uniform reached loss 1.95 after"), "there are no pilots to speak of"
    assert "pilots" not in headline(alone, TARGET)


def test_a_headline_names_the_next_or_a_few_and_how_many_more_there_are():
    times = {f"p{n}": times_of(f"p{n}", 100.0 * n) for n in range(1, 20)}
    said = headline(times, TARGET)
    assert said == (
        "p1 was first at loss 1.95 after 100 s in the mean of 3 seeds. "
        "Next was p2, which took 2.00 times as long (95 % interval 2.00–2.00)."
    )
    short = {label: one if label == "p1" else replace(one, reached=~one.reached) for label, one in times.items()}
    assert headline(short, TARGET).endswith(
        "The others missed it: p2 in 3 of 3 runs, p3 in 3 of 3 runs, p4 in 3 of 3 runs, and 15 more below."
    )
    missed = {label: replace(one, reached=np.zeros(3, dtype=bool)) for label, one in times.items()}
    assert headline(missed, TARGET).endswith("p1 in 0 of 3, p2 in 0 of 3, p3 in 0 of 3, and 16 more below.")
    assert "more below" not in headline({label: times[label] for label in list(times)[:5]}, TARGET)


def test_why_runs_missed_the_target_is_said_as_it_was(runs):
    ends = {
        "target": "ended at another target",
        None: "not finished",
        "diverged": "diverged",
        "max_time": "at the limit",
    }
    for end, word in ends.items():
        assert why_missed([replace(runs[0], summary={"end": end})], Target(loss=1e-6)) == f"1 {word}"
    assert why_missed([replace(runs[0], summary={"end": "target"})], TARGET) == "1 after the limit"


def test_labels_are_short_where_that_tells_runs_apart_and_take_one_look_at_each_run(runs, monkeypatch):
    def with_ratio(run, value):
        config = run.header["config"] | {"policy": {"uniform": {"beta_over_alpha": value}}}
        return replace(run, header=run.header | {"config": config})

    far = [with_ratio(run, value) for run, value in zip(runs[2:], (1177.017519697371, 63.88), strict=True)]
    assert [run.policy for run in labelled(far)] == [
        "uniform, beta_over_alpha 1,177",
        "uniform, beta_over_alpha 63.88",
    ]
    near = [with_ratio(run, value) for run, value in zip(runs[2:], (1177.01, 1177.02), strict=True)]
    assert [run.policy for run in labelled(near)] == [
        "uniform, beta_over_alpha 1177.01",
        "uniform, beta_over_alpha 1177.02",
    ]
    looks, plain = [], report_data._differing
    monkeypatch.setattr(report_data, "_differing", lambda settings: looks.append(len(settings)) or plain(settings))
    labelled(runs * 5)
    assert sorted(looks) == [10, 10, 20], "once for all runs, once for those of each policy"


def test_the_target_is_the_one_of_the_configuration_or_a_loss_that_all_reach(runs):
    target = choose_target(runs)
    assert target.accuracy is None
    worst = max(run.loss.min() for run in runs)
    assert worst <= target.loss <= 1.01 * worst
    assert all(times.missed == 0 for times in times_to(runs, target).values())
    asked = [
        replace(run, header=run.header | {"config": run.header["config"] | {"stop": {"target_accuracy": 0.5}}})
        for run in runs
    ]
    assert choose_target(asked) == Target(accuracy=0.5)


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


def test_plots_show_what_was_drawn_and_how_long_it_took(runs):
    (section,) = sections(runs, TARGET)
    data = plot_data(section, styles(section.groups))
    fleet = data["fleet"]
    noted = [group["noted"] for group in fleet["groups"]]
    assert noted == [True, False]
    uniform = [run for run in runs if run.policy == "uniform"]
    draws = np.zeros(10)
    for run in uniform:
        for record in run.trained:
            for member, count in zip(record["members"], record["counts"], strict=True):
                draws[member] += count
    assert fleet["groups"][1]["draws"] == draws[fleet["client"]].tolist()
    np.testing.assert_allclose(fleet["groups"][1]["share"], (draws / draws.sum())[fleet["client"]], rtol=1e-4)
    record = uniform[0].trained[0]
    place = fleet["client"].index(record["members"][0])
    assert fleet["compute"][place] == pytest.approx(record["compute_time"][0], rel=1e-4)
    assert fleet["seconds"] == sorted(fleet["seconds"])
    times = np.concatenate([np.diff(run.time, prepend=0) for run in uniform])
    assert data["rounds"][1]["quantiles"][2] == pytest.approx(np.median(times), rel=1e-4)
