"""fedtempo: who trains, how often and with what bandwidth, so that federated learning ends soonest."""

from fedtempo import startup

if startup.is_command():
    startup.end_on_ctrl_c()  # before the imports, which take a second

from importlib import import_module
from typing import Any

from fedtempo.checks import InputError
from fedtempo.fleet import Fleet
from fedtempo.fleet_csv import FleetNotice, read_fleet, write_fleet
from fedtempo.theory.bandwidth import Allocation, allocate_bandwidth, cohort_round_time
from fedtempo.theory.bits import SamplingAndBits, optimal_sampling_and_bits
from fedtempo.theory.convergence import (
    LearningProblem,
    convergence_bound,
    rounds_to_gap,
    sampling_variance,
    total_time_objective,
)
from fedtempo.theory.estimation import (
    BetaOverAlphaEstimate,
    GradientBoundEstimate,
    estimate_beta_over_alpha,
    estimate_gradient_bounds,
)
from fedtempo.theory.line_search import line_search_sampling
from fedtempo.theory.optimum import CohortPlan, optimal_cohort, optimal_sampling
from fedtempo.theory.round_time import (
    RoundTimeBounds,
    RoundTimeEstimate,
    distinct_clients,
    expected_round_time,
    mean_round_time,
    round_cost,
    round_time_bounds,
)
from fedtempo.theory.sampling import (
    DrawTable,
    aggregation_weights,
    draw_cohort,
    statistical_sampling,
    uniform_sampling,
    weighted_sampling,
)

__version__ = "0.1.0"


LAZY = {
    "fedtempo.data.federation": ("FederatedData",),
    "fedtempo.policies.policy": ("PolicySetting", "Probe", "Restart", "RoundContext", "RoundPlan", "RoundReport"),
    "fedtempo.api.compare": ("Comparison", "compare"),
    "fedtempo.api.conformance": ("check_policy",),
    "fedtempo.api.plan": ("plan",),
    "fedtempo.api.rank": ("rank",),
    "fedtempo.api.reproduce": ("reproduce",),
    "fedtempo.api.run_result": ("RunResult",),
    "fedtempo.api.simulate": ("simulate",),
    "fedtempo.api.tune": ("tune",),
    "fedtempo.simulator.channel": ("ChannelState",),
    "fedtempo.simulator.problem": ("Problem",),
    "fedtempo.engine.divergence": ("DivergedError",),
    "fedtempo.experiments.export": ("read_runs",),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import the simulator when it is first asked for: the theory alone loads in a moment."""
    for module, names in LAZY.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'fedtempo' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return what completion offers: the public names, also those that are imported when first asked for."""
    return [*__all__, "__version__"]


__all__ = [
    "Allocation",
    "BetaOverAlphaEstimate",
    "ChannelState",
    "CohortPlan",
    "Comparison",
    "DivergedError",
    "DrawTable",
    "FederatedData",
    "Fleet",
    "FleetNotice",
    "GradientBoundEstimate",
    "InputError",
    "LearningProblem",
    "PolicySetting",
    "Probe",
    "Problem",
    "Restart",
    "RoundContext",
    "RoundPlan",
    "RoundReport",
    "RoundTimeBounds",
    "RoundTimeEstimate",
    "RunResult",
    "SamplingAndBits",
    "aggregation_weights",
    "allocate_bandwidth",
    "check_policy",
    "cohort_round_time",
    "compare",
    "convergence_bound",
    "distinct_clients",
    "draw_cohort",
    "estimate_beta_over_alpha",
    "estimate_gradient_bounds",
    "expected_round_time",
    "line_search_sampling",
    "mean_round_time",
    "optimal_cohort",
    "optimal_sampling",
    "optimal_sampling_and_bits",
    "plan",
    "rank",
    "read_fleet",
    "read_runs",
    "reproduce",
    "round_cost",
    "round_time_bounds",
    "rounds_to_gap",
    "sampling_variance",
    "simulate",
    "statistical_sampling",
    "total_time_objective",
    "tune",
    "uniform_sampling",
    "weighted_sampling",
    "write_fleet",
]
