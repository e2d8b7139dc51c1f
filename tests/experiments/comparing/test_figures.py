"""Figures: files of equal bytes for equal runs."""

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.experiments.comparing.figures import comparison_figure, draw_comparison
from fedtempo.experiments.comparing.statistics import Target
from support.grids import made_up

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def runs():
    seeds = (0, 1)
    slow = [made_up("proposed", seed, [3.0, np.nan, 2.5, 2.4, 2.1 + seed / 9], 1.0) for seed in seeds]
    fast = [made_up("uniform", seed, [2.9, 2.4 - seed / 9], 0.5) for seed in seeds]
    return [*slow, *fast]


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


def test_a_figure_has_three_panels_and_a_line_for_each_group(runs):
    figure = comparison_figure(runs, Target(loss=2.2), title="Small")
    assert [axes.get_title() for axes in figure.axes] == [
        "(a) loss against time",
        "(b) accuracy against time",
        "(c) loss against rounds",
    ]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["proposed", "uniform", "target: loss 2.2"]


def test_a_figure_of_nothing_is_refused(tmp_path):
    for runs in ([], [made_up("uniform", 0, [np.nan, np.nan], 1.0)]):
        with pytest.raises(InputError, match="must have runs that were evaluated"):
            draw_comparison(runs, Target(loss=1.0), tmp_path / "x", title="")
    assert not list(tmp_path.iterdir())
