"""Ratios of our time to others', and the loss of slow clients: as tables."""

import numpy as np
import pytest

from fedtempo.experiments.comparing.statistics import Times
from fedtempo.experiments.ranking.ratios import mean_time, opponents, order_of, ratio_table, slow_table
from fedtempo.experiments.ranking.standings import Standing, settings_in_words
from support.grids import cells


def standing(policy, seconds, *, reached=True, slow=None, oracle=False):
    """Return what a policy took in a draw with one seed."""
    times = Times(policy, (0,), np.array([seconds]), np.zeros(1), np.array([reached]), np.ones(1), oracle)
    return Standing({"step_size": 0.1, "cohort_size": 4}, times, ("code",), () if slow is None else (slow,))


def standings(policy, *seconds, slow=(None,) * 9, oracle=False):
    return [standing(policy, one, slow=loss, oracle=oracle) for one, loss in zip(seconds, slow, strict=False)]


def test_ours_is_compared_with_the_best_baseline_in_plain_and_the_best_other():
    here = {
        "tempo": standings("tempo", 10.0, 20.0, 40.0),
        "weighted": standings("weighted", 50.0, 50.0, 50.0),
        "fedbuff": standings("fedbuff", 40.0, 40.0, 40.0),
        "proposed-oracle": standings("proposed-oracle", 1.0, 1.0, 1.0, oracle=True),
    }
    plain = {
        "uniform": standings("uniform", 80.0, 80.0, 80.0),
        "weighted": standings("weighted", 90.0, 90.0, 90.0),
        "clustered": standings("clustered", 5.0, 5.0, 5.0),
    }
    table = ratio_table("tempo", here["tempo"], opponents(here, "tempo", plain))
    half = 4.302653 * np.log(2) / 3**0.5  # Student's t with 2 degrees of freedom; the logarithms lie log 2 apart
    assert cells(table)[1:] == [
        ["best baseline in plain: uniform", "80.0", "0.25 ×", f"{0.25 / np.exp(half):.2f}–{0.25 * np.exp(half):.2f}",
         "0.12 0.25 0.50"],
        ["best other here: fedbuff", "40.0", "0.50 ×", f"{0.5 / np.exp(half):.2f}–{0.5 * np.exp(half):.2f}",
         "0.25 0.50 1.00"],
    ]  # fmt: skip
    assert len(opponents(here, "tempo", {})) == 1
    assert opponents({"tempo": here["tempo"]}, "tempo", {}) == []
    only_oracle = {name: here[name] for name in ("tempo", "proposed-oracle")}
    assert opponents(only_oracle, "tempo", {}) == []


def test_ratios_of_runs_that_missed_are_bounds():
    ours = [standing("tempo", 10.0), standing("tempo", 20.0)]
    other = [standing("weighted", 20.0), standing("weighted", 40.0, reached=False)]
    (row,) = cells(ratio_table("tempo", ours, opponents({"tempo": ours, "weighted": other}, "tempo", {})))[1:]
    assert row == ["best other here: weighted", "> 28.3", "< 0.50 ×", "-", "0.50 <0.50"]
    (row,) = cells(ratio_table("weighted", other, opponents({"tempo": ours, "weighted": other}, "weighted", {})))[1:]
    assert row[2:] == ["> 2.00 ×", "-", "2.00 >2.00"]


def test_slow_clients_are_compared_in_pairs_of_draws():
    found = {
        "weighted": standings("weighted", 9.0, 9.0, 9.0, slow=(0.1, 0.2, 0.4)),
        "tempo": standings("tempo", 3.0, 3.0, 3.0, slow=(0.11, 0.22, 0.44)),
        "clustered": [standing("clustered", 4.0, slow=0.1, reached=False)] * 3,
        "fedcs": standings("fedcs", 5.0, 5.0, 5.0),
    }
    assert order_of(found) == ["tempo", "fedcs", "weighted", "clustered"]
    assert mean_time(found["tempo"]) == pytest.approx(3.0)
    rows = cells(slow_table(found, order_of(found), "weighted"))[1:]
    assert rows[0] == ["tempo", "0.22", "1.10 ×", "1.10–1.10", "0.11 0.22 0.44"]
    assert rows[1] == ["weighted", "0.2", "1", "-", "0.1 0.2 0.4"]
    assert rows[2][0] == "clustered (missed)"
    assert len(rows) == 3, "nobody measured it for fedcs"
    assert slow_table({"fedcs": found["fedcs"]}, ["fedcs"], "weighted") is None
    (row,) = cells(slow_table({"tempo": found["tempo"]}, ["tempo"], "weighted"))[1:]
    assert row[2:4] == ["-", "-"], "nothing to compare it with"


def test_levers_that_are_not_used_are_not_named():
    choice = {"step_size": 0.1, "cohort_size": 4, "server_momentum": 0.0, "upload_bits": "32", "server_average": 0.8}
    assert settings_in_words(choice) == "step_size 0.1, cohort_size 4, server_momentum 0, server_average 0.8"
    assert settings_in_words({"step_size": 0.1, "upload_bits": "auto"}) == "step_size 0.1, upload_bits auto"
