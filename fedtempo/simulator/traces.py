"""Links whose rate varies over time: recorded traces, their files, and how long an upload over them takes."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Vector, check_positive, first_violation
from fedtempo.files import read_errors

PACKET_BITS = 8 * 1500  # what one line of a Mahimahi trace delivers
BITS_PER_MEGABIT = 1e6
CSV_COLUMNS = ("time", "mbps")


def upload_seconds(model_bits: float, rate_mbps: npt.ArrayLike) -> Vector:
    """Seconds to upload a model over a link of each rate, in megabits per second."""
    rate = np.asarray(rate_mbps, dtype=np.float64)
    if rate.size == 0:
        raise InputError(name="rate_mbps", rule="hold at least one rate", got="none")
    bad = first_violation(rate.ravel(), allow_zero=False)
    if bad is not None:
        raise InputError(
            name="rate_mbps",
            rule="be positive and finite",
            got=f"{rate.flat[bad]:g}",
            remedy="leave out clients without a link",
        )
    return np.asarray(check_positive("model_bits", model_bits) / (BITS_PER_MEGABIT * rate))


@dataclass(frozen=True, eq=False, slots=True)
class RateTrace:
    """What a link delivers: bits since the start, piecewise linear in time, repeating after the last point.

    Between two points of equal time the bits jump: a packet arrives. Between two of equal bits the link is silent.
    """

    time: Vector  # seconds, from 0, never decreasing
    bits: Vector  # delivered until then, from 0, never decreasing

    def __post_init__(self) -> None:
        """Check that the trace can be repeated for ever, and that any upload over it ends."""
        if self.time.ndim != 1 or self.time.shape != self.bits.shape or self.time.size < 2:
            raise InputError(
                name="a trace", rule="have two points or more", got=f"shapes {self.time.shape}, {self.bits.shape}"
            )
        for name, values in (("time", self.time), ("bits", self.bits)):
            if not (values[0] == 0 and np.all(np.diff(values) >= 0) and np.isfinite(values[-1])):
                raise InputError(name=f"{name} of a trace", rule="start at 0, never decrease and be finite")
        if self.period == 0:
            raise InputError(name="a trace", rule="last some time", got="0 s")
        if self.bits[-1] == 0:
            raise InputError(name="a trace", rule="deliver something", got="a rate of 0 throughout")

    @classmethod
    def of_packets(cls, milliseconds: npt.ArrayLike) -> "RateTrace":
        """Build a trace from the times at which a packet of 1500 bytes arrives; the last one is also its length."""
        arrival = np.asarray(milliseconds, dtype=np.float64) / 1000
        # A packet is two points at its time, before and after: 0, 1, 1, 2, 2, ... packets.
        packets = (np.arange(2 * arrival.size) + 1) // 2
        return cls(np.append(0.0, np.repeat(arrival, 2)), PACKET_BITS * np.append(0.0, packets))

    @classmethod
    def of_rates(cls, start: npt.ArrayLike, rate_mbps: npt.ArrayLike) -> "RateTrace":
        """Build a trace from rates, each of which holds from its start to the next one's.

        The last rate holds as long as the one before it, a single one for a second.
        """
        begin, rate = np.asarray(start, dtype=np.float64), np.asarray(rate_mbps, dtype=np.float64)
        last = begin[-1] - begin[-2] if begin.size > 1 else 1.0
        time = np.append(begin, begin[-1] + last) - begin[0]
        return cls(time, np.append(0.0, np.cumsum(BITS_PER_MEGABIT * rate * np.diff(time))))

    @property
    def period(self) -> float:
        """Seconds after which the trace repeats."""
        return float(self.time[-1])

    @property
    def mean_mbps(self) -> float:
        """The rate over a whole period."""
        return float(self.bits[-1]) / self.period / BITS_PER_MEGABIT

    def delivery_seconds(self, start: Vector, model_bits: float) -> Vector:
        """Seconds until the link has delivered a model whose upload starts at each time, counted along the trace.

        A packet that arrives just at the start is missed. Exact up to rounding, O(log points) for each start; starts in
        ascending order, or nearly, are several times faster.
        """
        time, bits, period = self.time, self.bits, self.period
        start = start % period
        before = np.searchsorted(time, start, side="right") - 1  # time[before] ≤ start < time[before + 1]
        rate = (bits[before + 1] - bits[before]) / (time[before + 1] - time[before])
        target = bits[before] + rate * (start - time[before]) + model_bits
        laps, rest = np.divmod(target, bits[-1])
        ends_with_lap = rest == 0  # the last bit of a lap comes before the silence at its end, not after
        laps, rest = laps - ends_with_lap, np.where(ends_with_lap, bits[-1], rest)
        after = np.searchsorted(bits, rest, side="left")  # bits[after - 1] < rest ≤ bits[after]
        share = (rest - bits[after - 1]) / (bits[after] - bits[after - 1])
        end = time[after - 1] + share * (time[after] - time[after - 1])
        # Rounding must not make a very short upload take no time at all.
        return np.asarray(np.maximum(laps * period + (end - start), np.spacing(start)))


def read_mahimahi(path: Path | str) -> RateTrace:
    """Read a Mahimahi trace: a line for each packet of 1500 bytes, with the millisecond at which it arrives.

    As in Mahimahi the trace repeats after the last of these times.
    """
    with read_errors(path):
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        arrival = _numbers("a packet's time", [(number, line) for number, line in enumerate(lines, 1) if line.strip()])
        if np.any(np.diff(arrival) < 0):
            raise InputError(name="packets", rule="stand in order of time", got="a time before that of the line above")
        return RateTrace.of_packets(arrival)


def read_rate_csv(path: Path | str) -> RateTrace:
    """Read a trace from a CSV file with the columns time (seconds) and mbps.

    A rate holds until the time of the next line, the last one as long as the one before it; then the trace repeats.
    """
    with read_errors(path), open(path, encoding="utf-8-sig", newline="") as stream:
        rows = csv.reader(stream, strict=True)
        header = [cell.strip() for cell in next(rows, [])]
        if sorted(header) != sorted(CSV_COLUMNS):
            raise InputError(
                name="columns", rule=f"be {' and '.join(CSV_COLUMNS)}", got=f"{', '.join(header) or 'an empty file'}"
            )
        cells: dict[str, list[tuple[int, str]]] = {column: [] for column in CSV_COLUMNS}
        for row in filter(None, rows):
            if len(row) != len(header):
                raise InputError(
                    name="each line", rule=f"have {len(header)} cells", got=f"{len(row)} in line {rows.line_num}"
                )
            for column, cell in zip(header, row, strict=True):
                cells[column].append((rows.line_num, cell))
        start, rate = (_numbers(column, cells[column]) for column in CSV_COLUMNS)
        if np.any(np.diff(start) <= 0):
            raise InputError(name="time", rule="increase from line to line", got="one that does not")
        return RateTrace.of_rates(start, rate)


def _numbers(name: str, cells: list[tuple[int, str]]) -> Vector:
    """Return the numbers of a column, zero or positive, from pairs of line and text."""
    if not cells:
        raise InputError(name=name, rule="stand in at least one line", got="none")
    numbers = np.empty(len(cells))
    for index, (line, cell) in enumerate(cells):
        try:
            numbers[index] = float(cell)
        except ValueError:
            shown = repr(cell) if cell.strip() else "an empty cell"
            raise InputError(name=name, rule="be a number", got=f"{shown} in line {line}") from None
    bad = first_violation(numbers, allow_zero=True)
    if bad is not None:
        line, cell = cells[bad]
        raise InputError(name=name, rule="be zero or positive, and finite", got=f"{cell.strip()} in line {line}")
    return numbers
