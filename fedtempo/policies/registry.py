"""Policies by name: the built-in ones, and a user's own by entry point."""

import difflib
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TypeAlias

from fedtempo.checks import InputError, Vector
from fedtempo.own_code import how_to_mend, in_short_with_place, is_reference, load_reference, located, source_files
from fedtempo.policies.builtin import BUILT_IN
from fedtempo.policies.entry import Entry
from fedtempo.policies.fixed import FixedSampling, Sampler
from fedtempo.policies.foreign import UserPolicy, adopt
from fedtempo.policies.options import NoOptions, read_options
from fedtempo.policies.policy import Policy, PolicySetting

ENTRY_POINTS = "fedtempo.policies"
PolicyLike: TypeAlias = str | UserPolicy | Sampler | type  # what ``make`` makes a policy from


def available_policies() -> dict[str, Entry]:
    """Return every policy by name: the built-in ones, then those that installed packages bring."""
    found = dict(BUILT_IN)
    for point in entry_points(group=ENTRY_POINTS):
        entry = Entry(description=f"from {point.value}", make=partial(_installed, point))
        found.setdefault(point.name, entry)
    return found


def traits(policy: str) -> Entry:
    """Return the entry of a policy; with defaults where none has this name, such as a policy that is no more."""
    if policy in BUILT_IN:
        return BUILT_IN[policy]
    if is_reference(policy):
        return Entry(description=f"from {policy}", make=partial(_imported, policy))
    return available_policies().get(policy) or Entry(description="", make=partial(make, policy))


def source_files_of(policy: str) -> list[Path]:
    """Return the files of a policy that is somebody's own, with what they import from beside them; none for our own."""
    if is_reference(policy):
        return source_files(located(policy, [Path.cwd()]))
    points = entry_points(group=ENTRY_POINTS) if policy not in BUILT_IN else ()
    return next((source_files(point.value) for point in points if point.name == policy), [])


def check_name(policy: str, *, setting: str = "policy") -> str:
    """Return the name of a policy that there is, or where it is defined; ``setting``: what named it."""
    if policy in BUILT_IN:  # without a look at all that is installed, which takes longer than a round
        return policy
    if is_reference(policy):
        _load(policy, setting)
        return policy
    known = available_policies()
    if policy not in known:
        near = difflib.get_close_matches(policy, known, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else "your own is module:Class (docs/simulation.md)"
        raise InputError(name=setting, rule=f"be one of {', '.join(known)}", got=repr(policy), remedy=remedy)
    return policy


def _imported(policy: str, setting: PolicySetting) -> Policy:
    return make(_load(policy, "policy"), setting)


def _load(policy: str, setting: str) -> PolicyLike:
    """Return what somebody names by where it is defined, in the present folder first."""
    return load_reference(setting, located(policy, [Path.cwd()]))  # type: ignore[return-value]


def _installed(point: EntryPoint, setting: PolicySetting) -> Policy:
    try:
        policy = point.load()
    except Exception as error:
        raise InputError(
            name=f"policy {point.name!r}",
            rule=f"be importable from {point.value}",
            got=repr(error),
            remedy=how_to_mend(error),
        ) from error
    return make(policy, setting)


def _sampled(sampler: Sampler, setting: PolicySetting) -> Vector:
    """Return the q of a user's own sampler; what it raises becomes one sentence."""
    try:
        return sampler(setting.fleet)
    except Exception as error:
        name = getattr(sampler, "__name__", "a sampler")
        rule = "return a probability for each client"
        raise InputError(name=name, rule=rule, got=in_short_with_place(error), remedy=how_to_mend(error)) from error


def make(policy: PolicyLike, setting: PolicySetting) -> Policy:
    """Return a policy from its name, a ready policy, a class that takes the setting, or a function from fleet to q."""
    if isinstance(policy, str):
        entry = traits(check_name(policy))
        try:
            return entry.make(setting)
        except InputError as error:
            raise error.within(f"policy {policy}") from None
    if isinstance(policy, type):
        if not (hasattr(policy, "plan") and hasattr(policy, "observe")):
            raise InputError(name="a policy", rule="have the methods plan and observe", got=f"{policy.__name__}")
        return adopt(policy(setting))
    if isinstance(policy, UserPolicy):
        return adopt(policy)
    if callable(policy):
        read_options(NoOptions, setting.options)
        return FixedSampling(setting.fleet, _sampled(policy, setting), setting.cohort_size)
    raise InputError(name="policy", rule="be a name, a policy, a class or a function from fleet to q", got=repr(policy))
