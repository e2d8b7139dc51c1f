"""A plan as a value: who to draw how often, what that costs under each policy, and how sure that is."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fedtempo.checks import Vector
from fedtempo.fleet import Fleet
from fedtempo.planning import tables
from fedtempo.planning.settings import PlanSettings
from fedtempo.tables.table import Table
from fedtempo.theory.round_time import RoundTimeBounds, RoundTimeEstimate, round_cost

LARGE_SHARE = 0.3  # of the draws, for one client
MANY_REPEATS = 0.2  # of the draws of a round


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """What one policy costs."""

    policy: str
    round_time: RoundTimeEstimate  # E[T], by drawing cohorts
    bounds: RoundTimeBounds | None  # Theorem 2; None for the link `equal`, for which it does not hold
    surrogate: float  # Σ q c, as the optimisation counts a round
    distinct_clients: float  # different clients in a round, on average
    noise: float  # Σ a²/(K q), which with β/α gives the rounds up to a factor
    largest_weight: float  # max p/(K q), of one draw
    rounds: float | None  # predicted, where a calibration point is given


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensitivity:
    """What it costs to have planned with the given β/α if the true one is another."""

    beta_over_alpha: float  # the true one
    excess_time: float  # P3 of the plan over the least for the true β/α, less 1
    moved: float  # the share of draws that the optimum for the true β/α would give to other clients
    best_cohort: int | None  # the K it would choose, where K was optimised


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Plan:
    """Who to draw how often, and what to expect of it."""

    fleet: Fleet
    settings: PlanSettings
    cohort_size: int
    sampling_prob: Vector
    forecasts: list[Forecast]  # the plan itself first, as "optimal", or "with floor" if it has one
    least_objective: float  # of P3 at this K, without a floor
    sensitivities: list[Sensitivity]

    def relative_rounds(self, forecast: Forecast) -> float:
        """Return the rounds to a target, over those of the plan."""
        ratio = self.settings.beta_over_alpha
        return (forecast.noise + ratio) / (self.forecasts[0].noise + ratio)

    def relative_time(self, forecast: Forecast) -> float:
        """Return rounds × mean round time, over that of the plan."""
        return self.relative_rounds(forecast) * forecast.round_time.mean / self.forecasts[0].round_time.mean

    def relative_objective(self, forecast: Forecast) -> float:
        """P3, that is rounds × Σ q c, over its optimum at this K: never below 1."""
        return forecast.surrogate * (forecast.noise + self.settings.beta_over_alpha) / self.least_objective

    def hours(self, forecast: Forecast) -> float | None:
        """Predicted hours to the target, where a calibration point is given."""
        return None if forecast.rounds is None else forecast.rounds * forecast.round_time.mean / 3600

    def notes(self, spell: Callable[[str], str] = str) -> Iterator[str]:
        """Yield what a person should think about before trusting the plan.

        ``spell`` says how its reader knows a setting of a name, such as --duplicates.
        """
        size, clients, plan = self.cohort_size, len(self.fleet), self.forecasts[0]
        most = int(self.sampling_prob.argmax())
        if clients > 1 and self.sampling_prob[most] > LARGE_SHARE:
            why = "it holds much data or large gradients, or is fast"
            if self.settings.beta_over_alpha > plan.noise:
                why = (
                    f"β/α = {self.settings.beta_over_alpha:g} is large beside the sampling noise of {plan.noise:.3g}, "
                    "so speed counts more than data"
                )
            yield (
                f"client {self.fleet.name(most)!r} gets {self.sampling_prob[most]:.0%} of the draws: {why}; see "
                "'One client takes most draws' in docs/planning.md"
            )
        if self.settings.duplicates == "paper" and plan.distinct_clients < (1 - MANY_REPEATS) * size:
            yield (
                f"of {size} draws only {plan.distinct_clients:.3g} are different clients on average; this plan counts "
                f"every draw as an upload, {spell('duplicates')} physical counts each client once"
            )

    def columns(self) -> dict[str, Vector]:
        """Return what the plan says of each client, beside the fleet's own columns."""
        return {
            "round_cost": round_cost(self.fleet, cohort_size=self.cohort_size),
            "sampling_prob": self.sampling_prob,
            "draws_per_round": self.cohort_size * self.sampling_prob,
            "aggregation_weight": self.fleet.data_share / (self.cohort_size * self.sampling_prob),  # p/(K q), Lemma 1
        }

    def table(self) -> Table:
        """Return what each policy costs, the plan itself first."""
        return tables.policy_table(self)

    def client_table(self) -> Table:
        """Return the clients that are drawn most."""
        return tables.client_table(self)

    def sensitivity_table(self) -> Table:
        """Return what the plan costs if β/α is in truth another."""
        return tables.sensitivity_table(self)

    def as_json(self, spell: Callable[[str], str] = str) -> dict[str, object]:
        """Return the plan as plain lists and numbers; a number beyond double precision is null."""
        names, columns = [self.fleet.name(i) for i in range(len(self.fleet))], self.columns()
        return {
            "clients": len(self.fleet),
            "cohort_size": self.cohort_size,
            "beta_over_alpha": self.settings.beta_over_alpha,
            "floor": self.settings.floor,
            "link": self.settings.link,
            "duplicates": self.settings.duplicates,
            "notes": list(self.notes(spell)),
            "policies": [self._forecast_json(forecast) for forecast in self.forecasts],
            "sensitivity": [
                {
                    "beta_over_alpha": _finite(case.beta_over_alpha),
                    "excess_time": _finite(case.excess_time),
                    "moved_draws": case.moved,
                    "best_cohort": case.best_cohort,
                }
                for case in self.sensitivities
            ],
            "per_client": {"name": names} | {name: values.tolist() for name, values in columns.items()},
        }

    def _forecast_json(self, forecast: Forecast) -> dict[str, object]:
        bounds = forecast.bounds or (None, None)
        return {
            "policy": forecast.policy,
            "expected_round_time": _finite(forecast.round_time.mean),
            "standard_error": _finite(forecast.round_time.standard_error),
            "lower_bound": _finite(bounds[0]),
            "upper_bound": _finite(bounds[1]),
            "surrogate_round_time": _finite(forecast.surrogate),
            "distinct_clients": forecast.distinct_clients,
            "relative_rounds": _finite(self.relative_rounds(forecast)),
            "relative_total_time": _finite(self.relative_objective(forecast)),
            "relative_expected_time": _finite(self.relative_time(forecast)),
            "largest_weight": _finite(forecast.largest_weight),
            "predicted_rounds": _finite(forecast.rounds),
            "predicted_hours": _finite(self.hours(forecast)),
        }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
