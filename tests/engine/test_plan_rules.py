"""Plans and probes that the engine cannot run are refused in a sentence, by any engine."""

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.engine.plan_rules import check_plan, check_probe
from fedtempo.policies.policy import BufferedPlan, Probe, RoundPlan
from support.rounds import equal_fleet

FLEET = equal_fleet(4)
CAPPED = equal_fleet(4, bandwidth_cap=np.full(4, 0.25))
NOBODY = np.empty(0, dtype=np.int64)
NORMS, LOSSES = Probe(clients=[2, 0], ask="update_norm"), Probe(clients=[3, 1], ask="loss")


def plan_of(members=(0, 2), **more):
    return RoundPlan(members=list(members), weights=np.ones(len(members)), **more)


def buffered(start=(0, 2), **more):
    return BufferedPlan(start=list(start), weights=np.ones(len(start)), wait_for=1, **more)


@pytest.mark.parametrize(
    ("plan", "probes", "fleet", "in_flight"),
    [
        (plan_of(), [], FLEET, []),
        (plan_of(()), [], FLEET, []),
        (plan_of(bandwidth=[0.5, 0.5 + 1e-12]), [], FLEET, []),
        (plan_of(bandwidth=[0.25, 0.25 + 1e-12]), [], CAPPED, []),
        (plan_of(), [NORMS], FLEET, []),
        (plan_of((3,), local_steps=7, step_size=0.5, step_factor=0.5, upload_bits=2), [LOSSES], FLEET, []),
        (plan_of((0,)), [Probe(clients=[1], ask="update_norm"), NORMS, LOSSES], FLEET, []),
        (buffered(), [], FLEET, []),
        (buffered(local_steps=7, step_factor=0.5), [], FLEET, [1]),
        (buffered(()), [], FLEET, [1]),
    ],
)
def test_a_plan_that_can_be_run_is_taken(plan, probes, fleet, in_flight):
    check_plan(plan, probes, fleet, np.array(in_flight, dtype=np.int64))


AFTER_NORMS = "local_steps and step_size must be None, step_factor 1 after a probe of update norms, got a change"
AMONG = "members must be among the clients that the probe asked to compute, got others"


@pytest.mark.parametrize(
    ("plan", "probes", "fleet", "in_flight", "said"),
    [
        (plan_of((0, 4)), [], FLEET, [], "members must lie below 4, the number of clients, got 4"),
        (plan_of(), [], FLEET, [1, 3], "a RoundPlan must wait until nobody is in flight, got 2 who are"),
        (plan_of(bandwidth=[0.5, 0.6]), [], FLEET, [], "bandwidth must add up to 1 at most, got 1.1"),
        (plan_of(bandwidth=[0.2, 0.3]), [], CAPPED, [], "bandwidth must keep to the caps of the members, got more"),
        (plan_of(local_steps=7), [NORMS], FLEET, [], AFTER_NORMS),
        (plan_of(step_size=0.1), [NORMS], FLEET, [], AFTER_NORMS),
        (plan_of(step_factor=0.5), [NORMS, LOSSES], FLEET, [], AFTER_NORMS),
        (plan_of(upload_bits=8), [NORMS], FLEET, [], "upload_bits must be None after a probe of update norms"),
        (plan_of((0, 1)), [NORMS], FLEET, [], AMONG),
        (plan_of((1,)), [Probe(clients=[1], ask="update_norm"), NORMS], FLEET, [], AMONG),
        (buffered((0, 4)), [], FLEET, [], "start must lie below 4, the number of clients, got 4"),
        (buffered(), [], FLEET, [2, 1], r"start must not be in flight, got \[2\]"),
        (buffered(), [], CAPPED, [], "a BufferedPlan must have a link without caps, got a fleet with bandwidth_cap"),
        (buffered(), [LOSSES], FLEET, [], "a BufferedPlan must come without a probe, got one before it"),
        (buffered(()), [], FLEET, [], "start must name somebody where nobody is in flight, got nobody"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(plan, probes, fleet, in_flight, said):
    with pytest.raises(InputError, match=f"^{said}"):
        check_plan(plan, probes, fleet, np.array(in_flight, dtype=np.int64))


def test_a_probe_asks_clients_who_are_there():
    check_probe(LOSSES, FLEET, NOBODY)
    with pytest.raises(InputError, match="clients must lie below 3, the number of clients, got 3"):
        check_probe(LOSSES, equal_fleet(3), NOBODY)
    with pytest.raises(InputError, match=r"clients must not be in flight, got \[1, 3\]"):
        check_probe(LOSSES, FLEET, np.array([0, 1, 3]))
