"""Policies by name: the built-in ones, and a user's own by entry point."""

import difflib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from fedtempo.checks import InputError, check_nonnegative
from fedtempo.policies.clustered import ClusteredSampling
from fedtempo.policies.fedbuff import FedBuff
from fedtempo.policies.fedcs import FedCS
from fedtempo.policies.fixed import AuthorsUniform, FixedSampling, FullParticipation, Sampler
from fedtempo.policies.kvib import KVib
from fedtempo.policies.ocs import OptimalClientSampling
from fedtempo.policies.oort import Oort
from fedtempo.policies.options import checked_options
from fedtempo.policies.policy import Policy, PolicySetting
from fedtempo.policies.power_of_choice import PowerOfChoice
from fedtempo.policies.proposed import PilotedSampling, PilotSettings
from fedtempo.policies.tempo import Tempo
from fedtempo.policies.tifl import TiFL
from fedtempo.theory.optimum import optimal_sampling
from fedtempo.theory.sampling import uniform_sampling, weighted_sampling

ENTRY_POINTS = "fedtempo.policies"
Factory = Callable[[PolicySetting], Policy]


@dataclass(frozen=True, slots=True)
class Entry:
    """One policy in the list."""

    description: str
    make: Factory


def _uniform(setting: PolicySetting) -> Policy:
    options = checked_options(setting, {"replacement": True})
    if not isinstance(options["replacement"], bool):
        raise InputError(name="replacement", rule="be true or false", got=repr(options["replacement"]))
    if options["replacement"]:
        return FixedSampling(setting.fleet, uniform_sampling(setting.fleet), setting.cohort_size)
    return AuthorsUniform(setting.fleet, setting.cohort_size)


def _weighted(setting: PolicySetting) -> Policy:
    checked_options(setting, {})
    return FixedSampling(setting.fleet, weighted_sampling(setting.fleet), setting.cohort_size)


def _full(setting: PolicySetting) -> Policy:
    checked_options(setting, {})
    return FullParticipation(setting.fleet)


def _piloted(scheme: str) -> Factory:
    def make(setting: PolicySetting) -> Policy:
        known = {"losses": None, "max_rounds": 500} | ({"floor": 0.05} if scheme == "proposed" else {})
        pilots = PilotSettings(**checked_options(setting, known, needed=("losses",)))
        return PilotedSampling(setting.fleet, setting.cohort_size, pilots, scheme=scheme)

    return make


def _oracle(setting: PolicySetting) -> Policy:
    known = {"beta_over_alpha": None, "gradient_bound": None, "floor": 0.05}
    options = checked_options(setting, known, needed=("beta_over_alpha",))
    bound = options["gradient_bound"]
    if bound is None and setting.known_gradient_bound is None:
        raise InputError(
            name="proposed-oracle",
            rule="know the gradient bounds beforehand",
            got="an engine that cannot tell them",
            remedy="give them as its option gradient_bound, from fedtempo estimate",
        )
    fleet = replace(setting.fleet, gradient_bound=setting.known_gradient_bound() if bound is None else bound)  # type: ignore[misc]
    ratio = check_nonnegative("beta_over_alpha", options["beta_over_alpha"])
    q = optimal_sampling(fleet, cohort_size=setting.cohort_size, beta_over_alpha=ratio, floor=options["floor"])
    return FixedSampling(setting.fleet, q, setting.cohort_size)


BUILT_IN: dict[str, Entry] = {
    "uniform": Entry("every client with the same probability", _uniform),
    "weighted": Entry("in proportion to the data share", _weighted),
    "statistical": Entry(
        "in proportion to data share × gradient bound, after pilots that measure it", _piloted("statistical")
    ),
    "full": Entry("all clients in each round", _full),
    "proposed": Entry("the paper's scheme: pilots, estimates, exact optimum", _piloted("proposed")),
    "proposed-oracle": Entry("the same with gradient bounds and β/α known beforehand, no pilots", _oracle),
    "tempo": Entry("ours: no pilots; learns who has news to tell and who takes how long, steps as updates come", Tempo),
    "oort": Entry("rival: by loss and speed, some exploration (biased)", Oort),
    "power-of-choice": Entry("rival: of some candidates those with the highest losses (biased)", PowerOfChoice),
    "fedcs": Entry("rival: as many as upload before a deadline (biased)", FedCS),
    "tifl": Entry("rival: from one tier of equally fast clients at a time (biased)", TiFL),
    "ocs": Entry("rival: all compute, those with large updates upload (unbiased)", OptimalClientSampling),
    "clustered": Entry("rival: one from each of K groups of equal data (unbiased)", ClusteredSampling),
    "kvib": Entry("rival: learns update norms online (unbiased)", KVib),
    "fedbuff": Entry("rival: asynchronous, a step after every K arrivals (nearly unbiased)", FedBuff),
}


def available_policies() -> dict[str, Entry]:
    """Return every policy by name: the built-in ones, then those that installed packages bring."""
    found = dict(BUILT_IN)
    for point in entry_points(group=ENTRY_POINTS):
        found.setdefault(point.name, Entry(f"from {point.value}", partial(_installed, point)))
    return found


def source_of(policy: str) -> Path | None:
    """Return the file of a policy that an installed package brings; None for our own, or where there is none."""
    for point in entry_points(group=ENTRY_POINTS) if policy not in BUILT_IN else ():
        if point.name == policy:
            with suppress(ImportError):
                found = find_spec(point.module)
                return None if found is None or not found.has_location else Path(str(found.origin))
    return None


def check_name(policy: str) -> str:
    """Return the name of a policy that there is."""
    known = available_policies()
    if policy not in known:
        near = difflib.get_close_matches(policy, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        if ":" in policy:
            hint = "; packages name theirs by entry points (docs/simulation.md)"
        raise InputError(name="policy", rule=f"be one of {', '.join(known)}", got=f"{policy!r}{hint}")
    return policy


def _installed(point: EntryPoint, setting: PolicySetting) -> Policy:
    try:
        policy = point.load()
    except Exception as error:
        raise InputError(
            name=f"policy {point.name!r}", rule=f"be importable from {point.value}", got=repr(error)
        ) from error
    return make(policy, setting)


def make(policy: str | Policy | Sampler | type, setting: PolicySetting) -> Policy:
    """Return a policy from its name, a ready policy, a class that takes the setting, or a function from fleet to q."""
    if isinstance(policy, str):
        entry = available_policies()[check_name(policy)]
        try:
            return entry.make(setting)
        except InputError as error:
            raise error.within(f"policy {policy}") from None
    if isinstance(policy, type):
        if not (hasattr(policy, "plan") and hasattr(policy, "observe")):
            raise InputError(name="a policy", rule="have the methods plan and observe", got=f"{policy.__name__}")
        return policy(setting)  # type: ignore[no-any-return]
    if isinstance(policy, Policy):
        return policy
    if callable(policy):
        checked_options(setting, {})
        return FixedSampling(setting.fleet, policy(setting.fleet), setting.cohort_size)
    raise InputError(name="policy", rule="be a name, a policy, a class or a function from fleet to q", got=repr(policy))
