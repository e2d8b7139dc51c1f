"""What a policy's plan must satisfy before a round is run by it."""

import numpy as np

from fedtempo.checks import InputError, Integers
from fedtempo.fleet import Fleet
from fedtempo.policies.policy import BufferedPlan, Probe, RoundPlan

ROUNDING = 1e-9


def check_plan(plan: RoundPlan | BufferedPlan, probes: list[Probe], fleet: Fleet, in_flight: Integers) -> None:
    """Refuse a plan that the engine cannot run after these probes, while some clients are in flight."""
    if isinstance(plan, BufferedPlan):
        _check_buffered(plan, probes, fleet, in_flight)
        return
    if len(in_flight):
        raise InputError(name="a RoundPlan", rule="wait until nobody is in flight", got=f"{len(in_flight)} who are")
    check_clients("members", plan.members, fleet, in_flight)
    for computed in [probe.clients for probe in probes if probe.ask == "update_norm"][-1:]:
        if not (plan.local_steps is None and plan.step_size is None and plan.step_factor == 1):
            raise InputError(
                name="local_steps and step_size",
                rule="be None, step_factor 1 after a probe of update norms",
                got="a change",
            )
        if plan.upload_bits is not None:
            got = f"{str(np.unique(plan.upload_bits).tolist())[:60]}"
            raise InputError("upload_bits", "be None after a probe of update norms", got, "updates are rounded by then")
        if not np.isin(plan.members, computed).all():
            raise InputError(name="members", rule="be among the clients that the probe asked to compute", got="others")
    if plan.bandwidth is not None:
        _check_bandwidth(plan, fleet)


def check_probe(probe: Probe, fleet: Fleet, in_flight: Integers) -> None:
    """Refuse a probe of clients that cannot answer."""
    check_clients("clients", probe.clients, fleet, in_flight)


def check_clients(name: str, clients: Integers, fleet: Fleet, in_flight: Integers) -> None:
    """Refuse clients that there are none of, or that are in flight."""
    if clients.size and clients.max() >= len(fleet):
        raise InputError(name=name, rule=f"lie below {len(fleet)}, the number of clients", got=f"{clients.max()}")
    if len(in_flight) and (busy := np.intersect1d(clients, in_flight)).size:
        raise InputError(name=name, rule="not be in flight", got=f"{str(busy.tolist())[:60]}")


def _check_bandwidth(plan: RoundPlan, fleet: Fleet) -> None:
    shares, total, cap = plan.bandwidth, fleet.total_bandwidth, fleet.bandwidth_cap
    if shares is None:
        return
    if shares.sum() > total * (1 + ROUNDING):
        raise InputError(name="bandwidth", rule=f"add up to {total:g} at most", got=f"{shares.sum():g}")
    if cap is not None and (shares > cap[plan.members] * (1 + ROUNDING)).any():
        raise InputError(name="bandwidth", rule="keep to the caps of the members", got="more")


def _check_buffered(plan: BufferedPlan, probes: list[Probe], fleet: Fleet, in_flight: Integers) -> None:
    check_clients("start", plan.start, fleet, in_flight)
    if fleet.bandwidth_cap is not None:
        raise InputError(
            name="a BufferedPlan",
            rule="have a link without caps",
            got="a fleet with bandwidth_cap",
            remedy="leave it out",
        )
    if probes:
        raise InputError(name="a BufferedPlan", rule="come without a probe", got="one before it")
    if not (plan.start.size or len(in_flight)):
        raise InputError(name="start", rule="name somebody where nobody is in flight", got="nobody")
