"""Figures: what is averaged, by hand; and files of equal bytes."""

from pathlib import Path

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.experiments import runner
from fedtempo.experiments.comparison import Target
from fedtempo.experiments.config import read_experiment
from fedtempo.experiments.figures import (
    COLOURS,
    Average,
    Curve,
    average,
    curve,
    draw_comparison,
    grouped,
    log_axes,
    on_dark,
    shown_range,
    styles,
    thinned,
)
from fedtempo.experiments.results import Run, read_runs
from fedtempo.policies.registry import BUILT_IN
from support.runs import SMALL

pytest.importorskip("matplotlib")

SMALLER = SMALL.replace("local_steps = 5", "local_steps = 5\nevaluate_every = 2").replace(
    "max_rounds = 6", "max_rounds = 12"
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "small.toml").write_text(SMALLER)
    experiment, table = read_experiment(folder / "small.toml")
    for policy in ("proposed", "uniform"):
        for seed in (0, 1):
            runner.run(experiment, table, policy=policy, seed=seed, folder=folder / f"{policy}{seed}")
    return read_runs([folder])


def hand_made(loss, round_time=1.0, **more) -> Run:
    loss = np.array(loss, dtype=float)
    values = {
        "folder": Path("x"),
        "header": {"config": {}},
        "summary": {},
        "records": [],
        "policy": "p",
        "seed": 0,
    } | more
    time = round_time * np.arange(1.0, loss.size + 1)
    return Run(**values, pilot_time=0.0, time=time, loss=loss, accuracy=loss / 10)


def test_a_mean_is_one_of_step_functions_from_the_last_start_on():
    slow = Curve(np.array([2.0, 4.0]), np.array([3.0, 1.0]), reached=True)
    fast = Curve(np.array([1.0, 2.5, 5.0]), np.array([5.0, 4.0, 0.0]), reached=True)
    found = average([slow, fast])
    np.testing.assert_array_equal(found.x, [2.0, 2.5, 4.0, 5.0])
    np.testing.assert_array_equal(found.mean, [4.0, 3.5, 2.5, 0.5])
    lowest, highest = np.array([3.0, 3.0, 1.0, 0.0]), np.array([5.0, 4.0, 4.0, 1.0])
    np.testing.assert_allclose(found.low, 0.9 * lowest + 0.1 * highest)
    np.testing.assert_allclose(found.high, 0.1 * lowest + 0.9 * highest)


def test_a_mean_ends_with_the_first_curve_that_ends_short_of_the_target():
    short = Curve(np.array([1.0, 2.0]), np.array([3.0, 2.0]), reached=False)
    longer = Curve(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.5, 2.0]), reached=False)
    done = Curve(np.array([1.0]), np.array([1.0]), reached=True)
    found = average([longer, short, done])
    np.testing.assert_array_equal(found.x, [1.0, 2.0])
    np.testing.assert_allclose(found.mean, [7 / 3, 5.5 / 3])
    late = Curve(np.array([9.0]), np.array([1.0]), reached=True)
    assert average([short, late]).x.size == 0, "no time at which both have a value that counts"
    assert average([]).x.size == 0


def test_a_curve_leaves_out_rounds_without_evaluation_and_knows_whether_it_got_there():
    run = hand_made([3.0, np.nan, 2.0, np.nan], round_time=0.5)
    by_time = curve(run, "time", "loss", Target(loss=2.0))
    np.testing.assert_array_equal(by_time.x, [0.5, 1.5])
    np.testing.assert_array_equal(by_time.y, [3.0, 2.0])
    assert by_time.reached
    by_round = curve(run, "rounds", "accuracy", Target(loss=1.9))
    np.testing.assert_array_equal(by_round.x, [1, 3])
    np.testing.assert_allclose(by_round.y, [30, 20])
    assert not by_round.reached


def test_thinning_keeps_ends_and_extremes():
    rng = np.random.default_rng(0)
    values = np.exp(-np.arange(50_000) / 9000) + rng.normal(size=50_000) * 1e-3
    values[31_417], values[7] = 9.0, -9.0
    kept = thinned(values)
    assert kept.size <= 800
    assert kept[0] == 0
    assert kept[-1] == 49_999
    assert {7, 31_417} <= set(kept.tolist())
    assert np.all(np.diff(kept) > 0)
    assert np.diff(kept).max() <= 2 * 50_000 / 190, "no stretch is left out"
    np.testing.assert_array_equal(thinned(values[:800]), np.arange(800))


def test_axes_are_logarithmic_where_curves_end_far_apart():
    def ends_at(time, loss=1.0):
        return Average(np.array([1.0, time]), *(np.array([2.0, loss]) for _ in range(3)))

    assert log_axes([ends_at(100.0), ends_at(900.0)], "loss") == (False, False)
    assert log_axes([ends_at(100.0), ends_at(1100.0)], "loss") == (True, False)
    assert log_axes([ends_at(100.0, loss=0.1)], "loss") == (False, True)
    assert log_axes([ends_at(100.0, loss=0.1)], "accuracy") == (False, False)
    assert log_axes([average([])], "loss") == (False, False)


def test_styles_differ_and_known_policies_keep_theirs():
    many = [f"K = {k}" for k in range(20)]
    assert len({(style.colour, style.dashes) for style in styles(many).values()}) == 20
    assert styles(["uniform", "proposed"])["proposed"] == styles(["proposed"])["proposed"]
    mixed = styles(["mine", "proposed", "yours", "weighted"])
    assert len({style.colour for style in mixed.values()}) == 4
    assert mixed["proposed"].colour == COLOURS[0]


def test_each_policy_has_a_colour_and_a_marker_of_its_own_whoever_stands_beside_it():
    together = styles(BUILT_IN)
    assert len({style.colour for style in together.values()}) == len({s.marker for s in together.values()}) == 15
    assert {name: styles([name])[name] for name in BUILT_IN} == together
    variants = styles([f"uniform, cohort_size {size}" for size in range(20)] + ["weighted"])
    assert variants["uniform, cohort_size 0"] == together["uniform"]
    assert variants["weighted"] == together["weighted"]
    assert len({(style.colour, style.dashes) for style in variants.values()}) == 21
    beside = styles([*BUILT_IN, *(f"mine {n}" for n in range(20))])
    assert len({(style.colour, style.dashes) for style in beside.values()}) == 35


def test_dark_colours_are_lightened_on_a_dark_page_and_others_are_kept():
    assert on_dark("#F0E442") == "#F0E442"
    for dark in ("#000000", "#332288"):
        parts = [int(on_dark(dark)[at : at + 2], 16) for at in (1, 3, 5)]
        assert min(parts) > 90, "so much white must be in it"


def test_axes_show_what_lies_near_the_target_and_where_curves_end():
    def falls(*values):
        return Average(np.arange(1.0, len(values) + 1), *(np.array(values) for _ in range(3)))

    near = falls(8.0, 2.0, 1.0, 0.7)
    assert shown_range([near], "loss", 0.7) == pytest.approx((0.63, 1.47))
    assert shown_range([near, falls(8.0, 3.0)], "loss", 0.7) == pytest.approx((0.63, 3.15)), "it missed, but is seen"
    assert shown_range([near, falls(8.0, 1e9)], "loss", 0.7) == pytest.approx((0.63, 1.47)), "it has diverged"
    assert shown_range([near], "loss", None) == pytest.approx((0.63, 1.47)), "the best end stands for a target"
    assert shown_range([falls(1.2, 0.9)], "loss", 0.7) is None, "all can be seen"
    assert shown_range([falls(10.0, 60.0, 78.0)], "accuracy", 80.0) == pytest.approx((40.0, 81.6))
    assert shown_range([falls(50.0, 78.0)], "accuracy", 80.0) is None
    assert shown_range([average([])], "loss", 0.7) is None


def test_groups_stand_in_the_order_of_their_numbers():
    runs = [hand_made([1.0], policy=label) for label in ("K = 10", "b", "K = 5", "K = 5", "K = 7.5", "K")]
    groups = grouped(runs)
    assert list(groups) == ["K", "K = 5", "K = 7.5", "K = 10", "b"]
    assert groups["K = 5"] == [runs[2], runs[3]]


def test_figures_are_written_and_equal_runs_give_equal_bytes(runs, tmp_path):
    target = Target(loss=2.2, accuracy=0.3)
    first = draw_comparison(runs, target, tmp_path / "fig.3", title="Small")
    again = draw_comparison(runs, target, tmp_path / "again", title="Small")
    assert first == [tmp_path / "fig.3.pdf", tmp_path / "fig.3.png"]
    assert [path.read_bytes()[:4] for path in first] == [b"%PDF", b"\x89PNG"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    other = draw_comparison(runs[:2], target, tmp_path / "other", title="Small")
    assert other[1].read_bytes() != first[1].read_bytes()
    assert b"CreationDate" not in first[0].read_bytes()


def test_runs_may_be_grouped_by_another_label_and_one_seed_is_enough(runs, tmp_path):
    paths = draw_comparison(
        runs, Target(), tmp_path / "seeds", title="By seed", labels=lambda run: f"{run.policy}, {run.seed}"
    )
    assert all(path.stat().st_size > 5000 for path in paths)


def test_a_figure_of_nothing_is_refused(tmp_path):
    for runs in ([], [hand_made([np.nan, np.nan])]):
        with pytest.raises(InputError, match="must have runs that were evaluated"):
            draw_comparison(runs, Target(loss=1.0), tmp_path / "x", title="")
    assert not list(tmp_path.iterdir())
