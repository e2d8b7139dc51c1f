"""What a plan is asked for, checked before a fleet is read."""

from dataclasses import dataclass

from fedtempo.checks import InputError, check_count, check_fraction, check_nonnegative, check_positive
from fedtempo.theory.bandwidth import LinkMode
from fedtempo.theory.round_time import Duplicates

LARGEST_COHORT = 1_000_000
MOST_DRAWS = 10_000_000  # of clients, over all cohorts drawn for one expected round time


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanSettings:
    """What a plan is asked for."""

    cohort_size: int | None = None  # K; None: choose it too
    max_cohort: int | None = None
    beta_over_alpha: float = 0.0
    floor: float = 0.0
    link: LinkMode = "paper"
    duplicates: Duplicates = "paper"
    rounds_weighted: float | None = None  # calibration: rounds that weighted sampling is known to need ...
    weighted_cohort: int | None = None  # ... with so many draws a round; None: as many as the plan has
    draws: int | None = None  # cohorts drawn for each expected round time; None: what a few seconds allow
    seed: int = 0

    def __post_init__(self) -> None:
        """Check everything before a fleet is read or a figure computed."""
        for name in ("cohort_size", "max_cohort", "weighted_cohort"):
            size = getattr(self, name)
            if size is not None and check_count(name, size) > LARGEST_COHORT:
                raise InputError(name=name, rule=f"be at most {LARGEST_COHORT:,}", got=f"{size:.3g}")
        if self.cohort_size is not None and self.max_cohort is not None:
            raise InputError(name="max_cohort", rule="go with an optimised cohort size", got="a fixed one as well")
        check_nonnegative("beta_over_alpha", self.beta_over_alpha)
        if self.cohort_size is None and self.max_cohort is None and self.beta_over_alpha == 0:
            raise InputError(
                name="max_cohort", rule="be given for {beta_over_alpha} 0, since a larger cohort is then never slower"
            )
        check_fraction("floor", self.floor)
        if self.rounds_weighted is not None:
            check_positive("rounds_weighted", self.rounds_weighted)
        if self.draws is not None and not 2 <= check_count("draws", self.draws) <= MOST_DRAWS:
            raise InputError(name="draws", rule=f"lie between 2 and {MOST_DRAWS:,}", got=f"{self.draws:.3g}")
        check_nonnegative("seed", self.seed)

    def draws_of(self, cohort_size: int) -> int:
        """Return how many cohorts of a size to draw."""
        return self.draws or max(20, min(10_000, MOST_DRAWS // cohort_size))
