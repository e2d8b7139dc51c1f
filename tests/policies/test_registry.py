"""Policies by name: built-in ones, those of other packages, and their options."""

import pytest

from fedtempo import InputError
from fedtempo.policies.registry import available_policies
from support.simulations import run


def test_installed_packages_may_bring_policies(data, times, monkeypatch):
    from importlib.metadata import EntryPoint

    point = EntryPoint("mine", "fedtempo.theory.sampling:weighted_sampling", "fedtempo.policies")
    monkeypatch.setattr("fedtempo.policies.registry.entry_points", lambda group: [point])
    assert "mine" in available_policies()
    assert run(data, times, "mine").records == run(data, times, "weighted").records


def test_a_broken_policy_of_another_package_is_named(data, times, monkeypatch):
    from importlib.metadata import EntryPoint

    point = EntryPoint("mine", "fedtempo.theory.sampling:nothing", "fedtempo.policies")
    monkeypatch.setattr("fedtempo.policies.registry.entry_points", lambda group: [point])
    with pytest.raises(InputError, match="'mine' must be importable"):
        run(data, times, "mine")


@pytest.mark.parametrize(
    ("policy", "options", "said"),
    [
        ("uniform", {"replacment": False}, "did you mean 'replacement'"),
        ("weighted", {"floor": 0.1}, "it takes none"),
        ("proposed", {}, "losses must be given"),
        ("proposed", {"losses": []}, "list of positive losses"),
        ("proposed-oracle", {}, "beta_over_alpha must be given"),
        ("proposed-oracle", {"beta_over_alpha": -1.0}, "beta_over_alpha must be zero or positive"),
    ],
)
def test_bad_options_of_policies_are_refused(data, times, policy, options, said):
    with pytest.raises(InputError, match=said):
        run(data, times, policy, options=options)
