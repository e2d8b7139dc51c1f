"""A plan as a value: who to draw how often, what that costs under each policy, and how sure that is."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.fleet import Fleet
from fedtempo.planning import tables
from fedtempo.planning.settings import PlanSettings
from fedtempo.tables.table import Table
from fedtempo.theory.bits import WHOLE
from fedtempo.theory.round_time import RoundTimeBounds, RoundTimeEstimate, round_cost

LARGE_SHARE = 0.3  # of the draws, for one client
MANY_REPEATS = 0.2  # of the draws of a round


def size_for_all(bits: int) -> str:
    """Return what a forecast with one size for all is called."""
    return f"{bits} bits for all"


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
    sent: Fleet  # the fleet with the uploads of the plan: the fleet itself, where numbers have 32 bits
    upload_bits: Integers | None = None  # of a number in each client's uploads; None: all have 32
    best_single: int | None = None  # bits, of the best size for all, where each client has its own
    noise: dict[int, float] = field(default_factory=dict)  # ω of each size of uploads

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

    def words_on_bits(self) -> list[str]:
        """Return who sends how many bits and what that brings, where there is something to say."""
        if self.upload_bits is None:
            return []
        sizes, counts = np.unique(self.upload_bits, return_counts=True)
        (most, bits), *others = sorted(zip(counts.tolist(), sizes.tolist(), strict=True), key=lambda pair: -pair[0])
        shares = [f"{bits} bits for {most:,} device{'' if most == 1 else 's'}"]
        shares += [f"{bits} for {count:,}" for count, bits in others]
        whole = self._time_with(WHOLE)
        words = f"{', '.join(shares)}; takes {1 / whole:.2f} of the time with 32 bits at the same K."
        if self.best_single is not None:
            words += f" The best size for all, {self.best_single} bits, takes {self._best_single_time / whole:.2f}."
        return [words]

    @property
    def _best_single_time(self) -> float:
        """Rounds × mean round time with the best size for all, over that of the plan."""
        return math.inf if self.best_single is None else self._time_with(self.best_single)

    def _time_with(self, bits: int) -> float:
        return next(self.relative_time(one) for one in self.forecasts if one.policy == size_for_all(bits))

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

        if self._best_single_time < 1:
            yield (
                f"{self.best_single} bits for all take {self._best_single_time:.2f} of this plan's time, though not by "
                f"the surrogate, which the plan minimises; {spell('bits')} {self.best_single} plans that"
            )

    def columns(self) -> dict[str, Vector | Integers]:
        """Return what the plan says of each client, beside the fleet's own columns."""
        columns: dict[str, Vector | Integers] = {
            "round_cost": round_cost(self.sent, cohort_size=self.cohort_size),
            "sampling_prob": self.sampling_prob,
            "draws_per_round": self.cohort_size * self.sampling_prob,
            "aggregation_weight": self.fleet.data_share / (self.cohort_size * self.sampling_prob),  # p/(K q), Lemma 1
        }
        return columns if self.upload_bits is None else columns | {"upload_bits": self.upload_bits}

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
            **self._bits_json(),
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

    def _bits_json(self) -> dict[str, object]:
        if self.upload_bits is None:
            return {}
        noise = {str(bits): noise for bits, noise in self.noise.items()}
        return {
            "bits": self.settings.bits,
            "best_single_bits": self.best_single,
            "noise": noise,
            "words": self.words_on_bits()[0],
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
