"""What a plan is asked for, checked before a fleet is read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fedtempo.checks import InputError, check_count, check_fraction, check_nonnegative, check_positive
from fedtempo.policies.policy import UploadBits, check_upload_bits
from fedtempo.theory.bandwidth import LinkMode
from fedtempo.theory.bits import BITS
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
    bits: UploadBits = 32  # of a number in an upload; auto: each client its own
    noise: Mapping[int, float] | None = None  # ω by size; of other sizes, that of normally distributed numbers
    largest_noise: float | None = None  # ω that is still acceptable, for auto; None: any
    model_megabytes: float | None = None  # of an upload with 32 bits, so that headers count; None: a large model's

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
        self._check_sizes()

    def _check_sizes(self) -> None:
        check_upload_bits("bits", self.bits)
        for size, noise in (self.noise or {}).items():
            if size not in BITS[:-1]:
                rule = f"name sizes of {', '.join(map(str, BITS[:-1]))} bits"
                raise InputError(name="noise", rule=rule, got=str(size))
            if not (math.isfinite(noise) and noise >= 0):
                raise InputError(name="noise", rule="be zero or positive, and finite", got=f"{noise} for {size} bits")
        if self.largest_noise is not None:
            check_nonnegative("largest_noise", self.largest_noise)
            if self.bits != "auto":
                raise InputError("largest_noise", "go with {bits} auto", f"{self.bits} bits", "it limits the choice")
        if self.model_megabytes is not None:
            check_positive("model_megabytes", self.model_megabytes)

    def draws_of(self, cohort_size: int) -> int:
        """Return how many cohorts of a size to draw."""
        return self.draws or max(20, min(10_000, MOST_DRAWS // cohort_size))
