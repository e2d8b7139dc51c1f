"""The fleet: N clients as checked arrays, one array for each quantity and no object for a client."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Vector, as_numbers, check_positive, first_violation

SHARE_TOLERANCE = 1e-6

REMEDY = {
    "data_share": "leave out clients that hold no data",
    "gradient_bound": "with bound 0 a client would never be drawn, which biases the model: give it a small one",
    "compute_time": "0 is allowed, if computing takes no time",
    "upload_time": "an upload takes some time, however short",
    "download_time": "0 is allowed, if the model is already there",
    "bandwidth_cap": "leave out the column if links have no cap of their own",
}
MAY_BE_ZERO = {"compute_time", "download_time"}


@dataclass(frozen=True, eq=False, slots=True)
class Fleet:
    """N clients that share one uplink.

    Times are in seconds, bandwidth in units of which the link has ``total_bandwidth`` (f_tot). Each array has one entry
    for each client; a single number stands for all of them. Arrays are kept as read-only views, not copied.
    """

    data_share: Vector  # p_i, positive, summing to 1
    gradient_bound: Vector  # G_i
    compute_time: Vector  # τ_i, for E local steps
    upload_time: Vector  # t_i, alone with one unit of bandwidth
    total_bandwidth: float = 1.0  # f_tot
    _: KW_ONLY
    names: npt.NDArray[Any] | None = None  # distinct; None: clients are numbered from 0
    download_time: Vector | None = None  # seconds before computing can start
    bandwidth_cap: Vector | None = None  # the most bandwidth that a client's own link carries

    def __post_init__(self) -> None:
        """Check every rule at the door; the rest of the package relies on them."""
        size = np.size(self.data_share)
        if np.ndim(as_numbers("data_share", self.data_share)) != 1 or size == 0:
            raise InputError(
                name="data_share", rule="hold one number for each client", got=f"shape {np.shape(self.data_share)}"
            )
        self._keep("total_bandwidth", check_positive("total_bandwidth", self.total_bandwidth))
        self._keep("names", None if self.names is None else _checked_names(self.names, size))
        for field in REMEDY:
            values = getattr(self, field)
            if values is not None:
                self._keep(field, self._checked(field, values, size))
        total = float(self.data_share.sum())
        if abs(total - 1) > SHARE_TOLERANCE:
            percent = abs(total - 100) < 1
            remedy = "divide percentages by 100" if percent else "divide sample counts by their total"
            raise InputError(name="data_share", rule="sum to 1", got=f"{total:.6g}", remedy=remedy)

    def __len__(self) -> int:
        """Return N."""
        return self.data_share.size

    def __repr__(self) -> str:
        """Name the size, not the arrays: a fleet may have millions of clients."""
        return f"Fleet({len(self)} clients, total_bandwidth={self.total_bandwidth:g})"

    def name(self, client: int) -> str:
        """Return the name of a client: its own, or its number."""
        return str(client if self.names is None else self.names[client])

    @property
    def importance(self) -> Vector:
        """a_i = p_i G_i: how much of the gradient a client can carry."""
        return self.data_share * self.gradient_bound

    @property
    def ready_time(self) -> Vector:
        """Seconds from the start of a round until a client can upload: τ_i, after the download if that takes time."""
        return self.compute_time if self.download_time is None else self.download_time + self.compute_time

    @property
    def private_time(self) -> Vector:
        """Seconds that a client needs for itself even if it has the shared link alone.

        This is τ_i; where the client's own link is slower than the shared one, the difference t/cap - t/f_tot is added.
        With it in the place of τ_i the paper's surrogate and upper bound hold for capped links too (docs/theory.md).
        """
        if self.bandwidth_cap is None:
            return self.ready_time
        own_link = self.upload_time / np.minimum(self.bandwidth_cap, self.total_bandwidth)
        return self.ready_time + (own_link - self.upload_time / self.total_bandwidth)

    def _keep(self, field: str, value: object) -> None:
        object.__setattr__(self, field, value)

    def _checked(self, field: str, values: npt.ArrayLike, size: int) -> Vector:
        array = np.ascontiguousarray(as_numbers(field, values)).view()
        if np.ndim(values) == 0:
            array = np.full(size, float(array[0]))
        if array.shape != (size,):
            raise InputError(
                name=field, rule=f"have one entry for each of the {size} clients", got=f"shape {array.shape}"
            )
        bad = first_violation(array, allow_zero=field in MAY_BE_ZERO)
        if bad is not None:
            rule = "be zero or positive, and finite" if field in MAY_BE_ZERO else "be positive and finite"
            raise InputError(
                name=field, rule=rule, got=f"{array[bad]:g} for client {self.name(bad)!r}", remedy=REMEDY[field]
            )
        array.flags.writeable = False
        return array


def _checked_names(names: npt.ArrayLike, size: int) -> npt.NDArray[Any]:
    array = np.asarray(
        names, dtype=np.dtypes.StringDType()
    ).view()  # 16 bytes for a short name, however long others are
    if array.shape != (size,):
        raise InputError(
            name="names", rule=f"have one entry for each of the {size} clients", got=f"shape {array.shape}"
        )
    distinct, first = np.unique(array, return_index=True)
    if distinct.size < size:
        again = np.ones(size, dtype=bool)
        again[first] = False
        raise InputError(name="names", rule="be distinct", got=f"{str(array[again][0])!r} more than once")
    if np.any(array == ""):
        raise InputError(name="names", rule="not be empty", remedy="leave out the column to number the clients")
    array.flags.writeable = False
    return array
