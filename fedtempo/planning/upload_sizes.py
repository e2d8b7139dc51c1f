"""Sizes of uploads that a plan may choose from, and what a choice makes of a fleet.

With given bits P3 is that of a fleet whose uploads are shorter and whose gradients are noisier: t s(b) in the place of
t, s(b) the size of an upload over that of 32 bits, and G √(1 + ω(b)) in the place of G.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.fleet import Fleet
from fedtempo.planning.settings import LARGEST_COHORT, PlanSettings
from fedtempo.theory.bits import BITS, USUAL_NOISE, WHOLE, SamplingAndBits, optimal_sampling_and_bits
from fedtempo.theory.cohort_and_bits import least_times_with_bits, optimal_cohort_and_bits
from fedtempo.theory.optimum import least_times, optimal_cohort, optimal_sampling

LARGE_MODEL = 1 << 24  # numbers: beside so many a header is nothing, and scales are 1/256
NUMBERS_IN_A_MEGABYTE = 1_000_000 / 4


@dataclass(frozen=True, eq=False, slots=True)
class UploadChoice:
    """Sizes to choose from, the smallest first."""

    bits: Integers
    noise: Vector  # ω
    shares: Vector  # of the bytes of an upload with 32 bits

    @property
    def whole(self) -> bool:
        """Whether there is nothing to choose: every number has 32 bits."""
        return bool(self.bits[0] == WHOLE)

    def only(self, bits: int) -> "UploadChoice":
        """Return one size of these alone."""
        chosen = self.bits == bits
        return UploadChoice(self.bits[chosen], self.noise[chosen], self.shares[chosen])

    def sent(self, fleet: Fleet, bits: Integers) -> Fleet:
        """Return the fleet whose P3 is that of these clients with so many bits each."""
        places = np.searchsorted(self.bits, bits)
        return replace(
            fleet,
            upload_time=fleet.upload_time * self.shares[places],
            gradient_bound=fleet.gradient_bound * np.sqrt(1 + self.noise[places]),
        )

    def best(self, fleet: Fleet, cohort_size: int, ratio: float) -> SamplingAndBits:
        """Return the q and bits that minimise P3 at a cohort size."""
        if len(self.bits) == 1:
            bits = np.full(len(fleet), self.bits[0])
            sent = fleet if self.whole else self.sent(fleet, bits)
            return SamplingAndBits(optimal_sampling(sent, cohort_size=cohort_size, beta_over_alpha=ratio), bits)
        return optimal_sampling_and_bits(
            fleet,
            cohort_size=cohort_size,
            beta_over_alpha=ratio,
            bits=self.bits.tolist(),
            quantisation_noise=self.noise,
            upload_shares=self.shares,
        )

    def least_times(self, fleet: Fleet, cohort_sizes: list[int], ratio: float) -> Vector:
        """Return the least P3 at some cohort sizes."""
        if len(self.bits) == 1:
            sent = fleet if self.whole else self.sent(fleet, np.full(len(fleet), self.bits[0]))
            return least_times(sent, cohort_sizes, beta_over_alpha=ratio)
        return least_times_with_bits(
            fleet,
            cohort_sizes,
            beta_over_alpha=ratio,
            bits=self.bits.tolist(),
            quantisation_noise=self.noise,
            upload_shares=self.shares,
        )

    def best_cohort(self, fleet: Fleet, ratio: float, max_cohort: int | None) -> int:
        """Return the cohort size at which P3 is least."""
        largest = max_cohort or LARGEST_COHORT
        if len(self.bits) == 1:
            sent = fleet if self.whole else self.sent(fleet, np.full(len(fleet), self.bits[0]))
            return optimal_cohort(sent, ratio, largest).cohort_size
        return optimal_cohort_and_bits(
            fleet,
            ratio,
            largest,
            bits=self.bits.tolist(),
            quantisation_noise=self.noise,
            upload_shares=self.shares,
        )

    def best_for_all(self, fleet: Fleet, cohort_size: int, ratio: float) -> int:
        """Return the size that is best where all clients have the same."""
        times = [float(self.only(bits).least_times(fleet, [cohort_size], ratio)[0]) for bits in self.bits.tolist()]
        return int(self.bits[int(np.argmin(times))])


def every_size(settings: PlanSettings) -> UploadChoice:
    """Return all sizes, with their noise and bytes."""
    if settings.bits == WHOLE:
        return UploadChoice(np.array([WHOLE]), np.zeros(1), np.ones(1))
    from fedtempo.learning.quantisation import upload_share

    noise = dict(zip(BITS, USUAL_NOISE, strict=True)) | dict(settings.noise or {})
    megabytes = settings.model_megabytes
    numbers = LARGE_MODEL if megabytes is None else max(round(megabytes * NUMBERS_IN_A_MEGABYTE), 1)
    shares = np.array([upload_share(bits, numbers) for bits in BITS])
    return UploadChoice(np.array(BITS), np.array([noise[bits] for bits in BITS]), shares)


def sizes_on_offer(settings: PlanSettings, known: UploadChoice) -> UploadChoice:
    """Return the sizes that a plan may choose: the one that is set, or all with an acceptable noise."""
    if settings.bits != "auto":
        return known.only(settings.bits)
    most = np.inf if settings.largest_noise is None else settings.largest_noise
    chosen = known.noise <= most
    return UploadChoice(known.bits[chosen], known.noise[chosen], known.shares[chosen])
