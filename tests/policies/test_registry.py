"""Policies by name: built-in ones, those of other packages, and their options."""

import pytest

from fedtempo import InputError, PolicySetting
from fedtempo.policies.registry import available_policies, check_name, traits
from support.rounds import equal_fleet
from support.simulations import run


def test_installed_packages_may_bring_policies(data, times, monkeypatch):
    from importlib.metadata import EntryPoint

    point = EntryPoint("mine", "fedtempo.theory.sampling:weighted_sampling", "fedtempo.policies")
    monkeypatch.setattr("fedtempo.policies.registry.entry_points", lambda group: [point])
    assert "mine" in available_policies()
    assert run(data, times, "mine").records == run(data, times, "weighted").records


def test_traits_of_policies():
    assert [name for name in available_policies() if traits(name).needs_pilots] == ["statistical", "proposed"]
    assert [name for name in available_policies() if traits(name).oracle] == ["proposed-oracle"]
    assert [name for name in available_policies() if traits(name).ours] == ["tempo"]
    asynchronous = [name for name in available_policies() if traits(name).asynchronous]
    assert asynchronous == ["tempo", "fedbuff", "fedasync", "ca2fl", "fadas", "routing"]
    biased = [name for name in available_policies() if traits(name).biased]
    assert biased == ["oort", "power-of-choice", "fedcs", "tifl", "shadowheart"]


def test_looks_of_policies_differ():
    entries = available_policies().values()
    assert len({entry.colour for entry in entries}) == len({entry.marker for entry in entries}) == len(entries)


def test_policies_of_which_nothing_is_known_have_defaults():
    """Such as a class of a user's own in records, or a policy that is no more."""
    entry = traits("mine.Policy")
    assert (entry.description, entry.options, entry.colour) == ("", None, None)
    assert not any((entry.needs_pilots, entry.oracle, entry.biased, entry.asynchronous, entry.ours))
    with pytest.raises(InputError, match="policy must be one of uniform"):
        entry.make(PolicySetting(fleet=equal_fleet(3), cohort_size=1))


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("temp", "did you mean 'tempo'?"), ("nowhere_at_all:Policy", "no module nowhere_at_all"), ("x", "got 'x'")],
)
def test_names_that_there_are_not(name, remedy):
    with pytest.raises(InputError) as refused:
        check_name(name)
    assert remedy in str(refused.value)


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
