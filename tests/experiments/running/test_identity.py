"""What makes two runs the same: settings that came later change no earlier folder."""

from dataclasses import asdict

import pytest

from fedtempo.experiments.running.identity import LATER_SETTINGS, settings_of
from fedtempo.experiments.settings.config import for_policy
from fedtempo.experiments.settings.config_file import load_experiment


def table(config, **training):
    experiment = load_experiment(config, over={"training": training})
    return settings_of(experiment, *for_policy(experiment, "uniform"))["training"]


def test_settings_that_came_later_count_where_they_are_used_alone(config):
    usual = table(config)
    assert not set(LATER_SETTINGS) & set(usual)
    assert set(usual) | set(LATER_SETTINGS) == set(asdict(load_experiment(config).training))


@pytest.mark.parametrize(
    ("name", "value", "default"),
    [
        ("clip_norm", 1.0, 0.0),
        ("proximal", 0.1, 0.0),
        ("local_schedule", "cosine", "constant"),
        ("evaluate_growth", 0.1, 0.0),
    ],
)
def test_each_of_them_names_another_run(config, name, value, default):
    assert table(config, **{name: value}) == table(config) | {name: value}
    assert table(config, **{name: default}) == table(config)
