"""Policies that users write: whatever has ``plan`` and ``observe`` becomes a ``Policy``, here and nowhere else."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from typing import Any, Protocol, runtime_checkable

from fedtempo.checks import InputError
from fedtempo.own_code import how_to_mend, in_short_with_place
from fedtempo.policies.policy import (
    SERVER_TRAITS,
    BufferedPlan,
    Policy,
    Probe,
    Restart,
    RoundContext,
    RoundPlan,
    RoundReport,
)


@runtime_checkable
class UserPolicy(Protocol):
    """The least that a policy has.

    With the methods ``state() -> dict`` of JSON values and ``restore(state)`` too, a run that was stopped goes on from
    where it was, to the byte; without them it starts again. ``server_memory`` and the other ``SERVER_TRAITS`` mean what
    they mean in a ``Policy``, which is the other way to write one.
    """

    def plan(self, context: RoundContext) -> RoundPlan | BufferedPlan | Probe | Restart:
        """Plan the next round, or ask for something first."""

    def observe(self, report: RoundReport) -> None:
        """Learn what came of it."""


@runtime_checkable
class _Restorable(Protocol):
    def state(self) -> dict[str, object]: ...

    def restore(self, state: dict[str, object]) -> None: ...


@dataclass(frozen=True, slots=True)
class ForeignState:
    """What the ``state`` method of a user's policy returned."""

    json: str


class ForeignPolicy(Policy):
    """A user's policy as the engine knows policies."""

    def __init__(self, policy: UserPolicy) -> None:
        """Take the policy."""
        self.policy = policy
        for name in SERVER_TRAITS:
            setattr(self, name, getattr(policy, name, getattr(Policy, name)))

    @property
    def state(self) -> ForeignState | None:
        """What the policy learned; None where it has no methods for that."""
        return ForeignState(json.dumps(self.policy.state())) if isinstance(self.policy, _Restorable) else None

    @state.setter
    def state(self, state: ForeignState) -> None:
        if isinstance(self.policy, _Restorable):
            self.policy.restore(json.loads(state.json))

    def plan(self, context: RoundContext) -> RoundPlan | BufferedPlan | Probe | Restart:
        """Let it plan."""
        with _said_of(self.policy, "plan a round"):
            plan = self.policy.plan(context)
        if not isinstance(plan, (RoundPlan, BufferedPlan, Probe, Restart)):
            rule = "plan a RoundPlan, a BufferedPlan, a Probe or a Restart"
            raise InputError(f"policy {type(self.policy).__name__}", rule, type(plan).__name__)
        return plan

    def observe(self, report: RoundReport) -> None:
        """Let it learn."""
        with _said_of(self.policy, "learn from a report"):
            self.policy.observe(report)


class PlainPolicy(ForeignPolicy):
    """A user's policy that keeps a dataclass as its ``state``, or nothing at all."""

    @property
    def state(self) -> Any:  # noqa: ANN401
        """What the policy learned."""
        return self.policy.state  # type: ignore[attr-defined]

    @state.setter
    def state(self, state: Any) -> None:  # noqa: ANN401
        self.policy.state = state  # type: ignore[attr-defined]


def adopt(policy: UserPolicy) -> Policy:
    """Return a policy as the engine knows them: our own as they are, others so that their errors say whose they are."""
    if isinstance(policy, Policy) and type(policy).__module__.startswith("fedtempo."):
        return policy
    state = getattr(policy, "state", None)
    if is_dataclass(state) or (isinstance(policy, Policy) and state is None):
        return PlainPolicy(policy)
    return ForeignPolicy(policy)


@contextmanager
def _said_of(policy: UserPolicy, rule: str) -> Iterator[None]:
    """Turn what somebody's policy raises into one sentence that says where."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        got = in_short_with_place(error)
        raise InputError(f"policy {type(policy).__name__}", rule, got, how_to_mend(error)) from error
