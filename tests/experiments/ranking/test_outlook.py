"""How many runs a leaderboard takes at most, and how long."""

import pytest

from fedtempo.experiments.ranking.contest import Contest
from fedtempo.experiments.ranking.outlook import Amount, Outlook, amount_of
from fedtempo.experiments.settings.assignments import parse_assignments
from fedtempo.experiments.settings.config_file import load_experiment


def contest(setup, regime, folder, *assigned):
    return Contest(
        setup=setup, channel="static", regime=regime, experiment=load_experiment(setup, "paper"), trace_files=(),
        records=folder, assignments=parse_assignments(assigned),
    )  # fmt: skip


@pytest.mark.parametrize("setup", ["setup3", "fashion", "cifar10", "shakespeare"])
def test_networks_try_twelve_settings_at_most_on_one_draw(setup, tmp_path):
    for regime in contest(setup, "plain", tmp_path).grid.regimes:
        found = amount_of(contest(setup, regime, tmp_path), 1, 3)
        assert found.settings <= 12
        assert found.tuning == found.settings
        assert found.ranking == 3


def test_what_halving_and_races_take_at_most(tmp_path):
    found = amount_of(contest("setup3", "plain", tmp_path), 2, 10)
    halving = 6 / 8 + 3 / 8 + 2 / 4 + 1 / 2  # six settings have an eighth, three of them two eighths, …
    assert found == Amount(6, 12, 20, 2 * halving * 600.0, 20 * 600.0)
    levers = amount_of(contest("setup3", "levers", tmp_path, "stop.max_time=60.0"), 2, 10)
    assert levers.tuning_seconds == pytest.approx(2 * (halving + 6) * 60.0)
    two_draws = amount_of(contest("setup1", "plain", tmp_path), 1, 20)
    assert (two_draws.settings, two_draws.tuning, two_draws.ranking) == (20, 40, 20)


def test_an_outlook_says_how_long_the_rest_takes():
    said = []
    outlook = Outlook([("a", Amount(6, 6, 3, 100.0, 300.0)), ("b", Amount(6, 6, 3, 100.0, 300.0))], said.append)
    outlook.begin()
    assert said == [f"{title}: at most 9 runs, 6 of them for settings (6 for each policy)" for title in "ab"]
    outlook.ranked(0)
    assert len(said) == 2, "nothing has run: nothing is known"
    outlook.waited, outlook.trained, outlook.asked = 60.0, 30.0, 60.0
    outlook.tuned(0, 0.25)
    assert said[-1] == "a: settings are chosen after 60 s of computing; about 6 min to go, at most 23 min"
    outlook.ranked(1)
    assert len(said) == 3, "nothing is left"
