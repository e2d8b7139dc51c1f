"""How many bits a number uploads have: as set, or for ``"auto"`` as many as reach a loss in the least time.

With one size for all, P3 is (Σ q c(b)) (Σ a²/q (1 + ω_b) + C), and C is not known: for C = 0, where noise is all that
counts, b minimises (1 + ω_b) × the seconds of a round with it (docs/theory.md). Where C is larger, noise counts for
less, and fewer bits would do. ω and the seconds are those that clients reported; at first, those of numbers that are
normally distributed, and nominal times.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.engine.settings import TrainingSettings
from fedtempo.fleet import Fleet
from fedtempo.learning.quantisation import upload_share
from fedtempo.learning.sparsification import sparse_share
from fedtempo.policies.policy import RoundReport
from fedtempo.theory.bits import BITS, USUAL_NOISE, WHOLE

PAST = 0.9  # share of the past in running means, for each round


@dataclass(slots=True)
class UploadSizesState:
    """Running means over rounds; empty before the first."""

    noise: Vector | None = None  # ω of each size
    compute: float = 0.0  # seconds
    upload: float = 0.0  # seconds with 32 bits, over the whole link


class UploadSizes:
    """Chooses the size of uploads whose plan names none."""

    def __init__(self, training: TrainingSettings, fleet: Fleet, numbers: int, buffers: int) -> None:
        """Take what is set, and how many numbers an upload has, those included that nobody rounds."""
        self.chosen, self.cohort_size = training.upload_bits, training.cohort_size
        self.total_bandwidth = fleet.total_bandwidth
        self.download = 0.0 if fleet.download_time is None else float(fleet.download_time.mean())
        self.nominal = float(fleet.compute_time.mean()), float(fleet.upload_time.mean()) / fleet.total_bandwidth
        self.shares = np.array([upload_share(bits, numbers, buffers) for bits in BITS])
        self.state = UploadSizesState()

    @property
    def bits(self) -> int:
        """The size of uploads now."""
        if self.chosen != "auto":
            return self.chosen
        state = self.state
        noise, (compute, upload) = state.noise, (state.compute, state.upload)
        if noise is None:
            noise, (compute, upload) = np.array(USUAL_NOISE), self.nominal
        seconds = self.cohort_size * upload * self.shares + compute + self.download
        return BITS[int(np.argmin((1 + noise) * seconds))]

    def observe(self, report: RoundReport) -> None:
        """Learn from those who reported."""
        if self.chosen != "auto" or report.noise is None:
            return
        squares = np.where(report.failed, 0.0, report.update_norm**2)
        useful = np.isfinite(report.noise).all(axis=1) & np.isfinite(squares) & (squares > 0)
        if not useful.any():
            return
        state = self.state
        past = 0.0 if state.noise is None else PAST
        noise = (squares[useful] @ report.noise[useful]) / squares[useful].sum()
        state.noise = noise if state.noise is None else past * state.noise + (1 - past) * noise
        state.compute = past * state.compute + (1 - past) * float(np.nanmean(report.compute_time[useful]))
        upload = float(np.nanmean(report.upload_time[useful])) / self.total_bandwidth
        state.upload = past * state.upload + (1 - past) * upload


def uploads_of(training: TrainingSettings, numbers: int, buffers: int) -> dict[str, tuple[float, ...]]:
    """Return what a policy's setting says of uploads: their shares of 32 bits, and where it may choose, their noise."""
    shares = tuple(upload_share(bits, numbers, buffers) for bits in BITS)
    noise = USUAL_NOISE if training.upload_bits == "auto" else ()
    return {"upload_shares": shares, "upload_noise": noise}


def reference_bits(training: TrainingSettings) -> int:
    """Return the size that the upload times of fleets, channels and reports are those of: as set, or 32."""
    return WHOLE if training.upload_bits == "auto" else training.upload_bits


def reference_share(training: TrainingSettings, numbers: int, buffers: int) -> float:
    """Return how large such an upload is, against one of 32 bits."""
    if training.upload_top:
        return sparse_share(training.upload_top, numbers, buffers)
    return upload_share(reference_bits(training), numbers, buffers)


def with_upload_share(fleet: Fleet, share: float) -> Fleet:
    """Return a fleet whose uploads take a share of their time."""
    return fleet if share == 1 else replace(fleet, upload_time=fleet.upload_time * share)


def bits_of(clients: Integers, usual: int | None, chosen: int | Integers | None = None) -> Integers | None:
    """Return how many bits a number each upload has; None: all have 32, and their noise is not measured.

    ``usual``: those of uploads whose plan names none; ``chosen``: those that the plan names.
    """
    if usual is None and chosen is None:
        return None
    return np.full(len(clients), usual if chosen is None else chosen, dtype=np.int64)


def relative_sizes(training: TrainingSettings, bits: Integers | None, numbers: int, buffers: int) -> Vector | float:
    """Return the size of each upload over that which times of fleets, channels and reports are those of."""
    if bits is None:
        return 1.0
    shares = np.array([upload_share(size, numbers, buffers) for size in BITS])
    sizes: Vector = shares[np.searchsorted(BITS, bits)]
    return sizes / reference_share(training, numbers, buffers)
