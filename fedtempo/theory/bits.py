"""Who to draw how often, and with how many bits a number each uploads: P3 with the size of uploads as a variable.

An upload of b bits takes b/32 of the time, and a quantiser without bias adds ω_b times the squared norm as noise. P3
becomes min over q and b of (Σ q c(b)) (Σ a² (1 + ω(b))/q + C), with c_i(b) = K t_i b/(32 f_tot) + τ_i and C = K β/α.
For one ρ each client on its own takes the b that minimises (1 + ω(b)) (ρ c(b) - C), and q = a √(1 + ω)/√(ρ c - C).
Σ q falls in ρ, with jumps where clients change to more bits (docs/theory.md has the proofs).
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Integers, Vector, as_integers, as_numbers, check_count, check_nonnegative
from fedtempo.fleet import Fleet
from fedtempo.theory.optimum import CLIENT_BLOCK, minimise_time
from fedtempo.theory.round_time import round_cost

WHOLE = 32  # bits of a number that is sent as it is
BITS = (2, 3, 4, 8, 16, WHOLE)
# ω to expect: of 256 normal numbers, as rotated ones nearly are, E s² = 9.40; ω = E s²/(3 (2^b - 1)²), quantisation.py.
USUAL_NOISE = tuple(0.0 if bits == WHOLE else 9.4038 / (3 * (2**bits - 1) ** 2) for bits in BITS)
TIE = 1e-12  # of a client's cost: sizes that differ by less are equally good
TOLERANCE = 1e-9  # of Σ q around 1: what q loses by it is of the order of its square
MOST_STEPS = 200
BLOCK = CLIENT_BLOCK // 2  # clients in one block
TIES_LOOKED_AT = 1000  # clients, to find the median of all
PROVEN = 1e-4  # of the least time: a solution that is proven as close is taken
MOST_BRANCHES = 300  # sizes tried of clients at jumps; a few, where no client has a large part of all draws
GUESS = 3.0  # power of Σ q in the first guess: without jumps, Σ q falls as a power of x above -1/2

Choices = npt.NDArray[np.int8]


class SamplingAndBits(NamedTuple):
    """Who to draw how often, and how many bits a number each uploads."""

    sampling_prob: Vector  # q
    bits: Integers  # b


def optimal_sampling_and_bits(
    fleet: Fleet,
    *,
    cohort_size: int,
    beta_over_alpha: float,
    bits: Sequence[int] = BITS,
    quantisation_noise: npt.ArrayLike,
    upload_shares: npt.ArrayLike | None = None,
) -> SamplingAndBits:
    """Return the q and the bits of each client's uploads that together minimise P3, the total time to a given loss.

    The optimum is exact up to one client, at which Σ q jumps over 1. With δ what Σ q is off by when that client is
    rounded, the time is at most 1 + δ²/(4 (1 + δ)) times the least (docs/theory.md). Where that is more than one part
    in ten thousand, as in fleets of a few clients, branch and bound closes the gap.

    ``fleet``: the clients; their upload times are those of 32 bits a number. ``cohort_size``: K, draws in a round.
    ``beta_over_alpha``: β/α of the convergence bound. ``bits``: the sizes to choose from, in bits a number, from 1 to
    32. ``quantisation_noise``: ω, the expected squared error of an upload over its squared norm, in the order of
    ``bits``; (B,) for all clients, or (N, B). ``upload_shares``: the time of an upload of each size over that of 32
    bits, where headers and scales count; b/32 if left out.
    """
    size, ratio = check_count("cohort_size", cohort_size), check_nonnegative("beta_over_alpha", beta_over_alpha)
    sizes = Sizes.of(bits, quantisation_noise, upload_shares, len(fleet))
    whole, private = round_cost(fleet, cohort_size=size), fleet.ready_time
    found = solve(fleet.importance, (whole - private, private), sizes, size * ratio)
    return SamplingAndBits(found.sampling_prob, sizes.bits[found.choice])


@dataclass(frozen=True, eq=False, slots=True)
class Sizes:
    """Sizes of uploads to choose from, the smallest first."""

    bits: Integers
    shares: Vector  # of the time of an upload of 32 bits
    factors: Vector  # 1 + ω, (B,) or (N, B)

    @classmethod
    def of(
        cls, bits: Sequence[int], noise: npt.ArrayLike, upload_shares: npt.ArrayLike | None, clients: int
    ) -> "Sizes":
        """Check what is given for these; without shares, a size of b bits takes b/32."""
        sizes = _checked_bits(bits)
        omega = _checked_noise(noise, clients, len(sizes))
        shares = sizes / WHOLE if upload_shares is None else as_numbers("upload_shares", upload_shares)
        if shares.shape != sizes.shape or not (np.isfinite(shares).all() and (shares > 0).all()):
            rule = f"be {len(sizes)} positive numbers, one for each of bits"
            raise InputError(name="upload_shares", rule=rule, got=str(shares.tolist())[:60])
        order = np.argsort(shares, kind="stable")
        return cls(sizes[order], shares[order], 1.0 + omega[..., order])


def solve(importance: Vector, cost: tuple[Vector, Vector], sizes: Sizes, constant: float) -> "Solution":
    """Return the best q and sizes for P3; ``cost``: what uploads of 32 bits cost, and what is spent whatever the size.

    Values of P3 are those with Σ a = 1.
    """
    return _Search.of(importance, cost, sizes.shares, sizes.factors, constant).solve()


def _checked_bits(bits: Sequence[int]) -> Integers:
    sizes = np.atleast_1d(as_integers("bits", bits))
    if (
        sizes.ndim != 1
        or not sizes.size
        or np.unique(sizes).size < sizes.size
        or not (1 <= sizes.min() <= sizes.max() <= WHOLE)
    ):
        raise InputError(
            name="bits", rule=f"be distinct numbers of bits from 1 to {WHOLE}", got=str(sizes.tolist())[:60]
        )
    return sizes


def _checked_noise(noise: npt.ArrayLike, clients: int, sizes: int) -> Vector:
    omega = as_numbers("quantisation_noise", noise)
    if omega.shape not in ((sizes,), (clients, sizes)):
        rule = (
            f"have the shape ({sizes},), or ({clients}, {sizes}): one ω for each of bits, for all clients or for each"
        )
        raise InputError(name="quantisation_noise", rule=rule, got=f"shape {omega.shape}")
    if not (np.isfinite(omega).all() and (omega >= 0).all()):
        raise InputError(name="quantisation_noise", rule="be finite and not negative", got=f"{omega.min()}")
    return omega


class _Look(NamedTuple):
    """What clients choose for one ρ: the fewest and the most bits that are equally good, and Σ q with either."""

    x: float
    few: Choices
    many: Choices
    total_few: float
    total_many: float
    half: float  # Σ a √h, h the least (1 + ω)(ρ c - C)


class Solution(NamedTuple):
    """The best q for given bits."""

    sampling_prob: Vector
    choice: Choices  # place of each client's bits
    time: float  # P3
    bound: float  # of the time, whatever the bits that are not given
    split: int | None = None  # a client that would have to be split to reach it


@dataclass(frozen=True, eq=False, slots=True)
class _Search:
    """P3 in units in which Σ a = 1 and the least cost is 1; ρ c - C = x + (x + C) e with x = ρ - C and e = c - 1."""

    importance: Vector  # a
    upload: Vector  # of 32 bits a number
    private: Vector  # the rest of a client's cost, whatever the bits
    shares: Vector  # b/32, rising
    factors: Vector  # 1 + ω, (B,) or (N, B)
    constant: float  # C
    least: float  # cost of all, 1 up to rounding: what is left of it would count where x is tiny
    unit: float  # of costs
    given: Mapping[int, int]  # clients whose bits are given, and their places

    @classmethod
    def of(
        cls,
        importance: Vector,
        cost: tuple[Vector, Vector],
        shares: Vector,
        factors: Vector,
        constant: float,
        unit: float = 1.0,
        given: Mapping[int, int] = MappingProxyType({}),
    ) -> "_Search":
        """Bring everything to these units."""
        scale, (upload, private) = float(importance.sum()), cost
        least = float((upload * shares[0] + private).min())
        constant = constant / scale / scale if scale > 0 else math.inf
        if not (math.isfinite(scale) and math.isfinite(constant) and least > 0):
            rule = "be comparable with the squared gradient bounds"
            raise InputError(name="beta_over_alpha", rule=rule, got="a ratio beyond 1e300")
        upload, private = upload / least, private / least
        unit, least = unit * least, float((upload * shares[0] + private).min())
        return cls(importance / scale, upload, private, shares, factors, constant, least, unit, given)

    def solve(self) -> Solution:
        """Return the best solution found, proven to ``PROVEN`` of the least time unless that took too many branches.

        What is left open is the size of one client at a jump of Σ q. Where that matters, each of its sizes is tried,
        with the others free: branch and bound.
        """
        best, branches = self._relaxed(), 0
        open_ends = [(best.bound, branches, self, best)]
        while open_ends and branches < MOST_BRANCHES:
            bound, _, search, solution = heapq.heappop(open_ends)
            if solution.split is None or bound >= best.time * (1 - PROVEN):
                break
            for place in range(self.shares.size):
                branches += 1
                branch = search._fixed(solution.split, place)
                found = branch._relaxed()
                best = found if found.time < best.time else best
                heapq.heappush(open_ends, (found.bound, branches, branch, found))
        return best

    def _relaxed(self) -> Solution:
        """Find the ρ with Σ q = 1, then q for the bits that belong to it, and what is the least that any bits can take.

        Where Σ q jumps over 1, those who tie change to more bits one after another, in the order of their numbers.
        """
        look = self._jump()
        ties = np.flatnonzero(look.few != look.many)
        if not (ties.size and self.constant):  # without C all that tie are equally good whatever the others do
            return self._with(look.few)
        drops = self._chances(ties, look.few[ties], look.x) - self._chances(ties, look.many[ties], look.x)
        enough = int(np.count_nonzero(look.total_few - np.cumsum(drops) >= 1))
        tried = []
        for count in {enough, min(enough + 1, ties.size)}:
            choice = look.few.copy()
            choice[ties[:count]] = look.many[ties[:count]]
            tried.append(self._with(choice))
        best = min(tried, key=lambda solution: solution.time)
        if enough == ties.size:
            return best
        bound = self.unit * (look.half + self.constant) ** 2 / (look.x + self.constant)
        return best._replace(bound=min(bound, best.time), split=int(ties[enough]))

    def _fixed(self, client: int, place: int) -> "_Search":
        """Return the same problem with one client's bits given: all of its sizes become that one."""
        upload, private = self.upload.copy(), self.private.copy()
        factors = np.broadcast_to(self.factors, (upload.size, self.shares.size)).copy()
        private[client] += upload[client] * self.shares[place]
        upload[client], factors[client] = 0.0, factors[client, place]
        given = {**self.given, client: place}
        return _Search.of(self.importance, (upload, private), self.shares, factors, self.constant, self.unit, given)

    def _jump(self) -> _Look:
        """Return the look at which Σ q is 1, or jumps over it."""
        if not self.constant:
            return self._look(1.0)
        low, high = self._bracket()
        x, before, after = math.sqrt(low) * math.sqrt(high), None, None
        for step in range(MOST_STEPS):
            look = self._look(x)
            if look.total_many <= 1 + TOLERANCE and look.total_few >= 1 - TOLERANCE:
                return look
            if look.total_many > 1:
                before, low = look, x
            else:
                after, high = look, x
            if before is None or after is None:
                known = look.total_many if after is None else look.total_few
                x = x * known ** (GUESS * 2**step)  # ever bolder, until there are looks on both sides
            else:
                undecided = np.flatnonzero(before.many != after.few)
                if not undecided.size or high <= low * (1 + TIE):
                    return _Look(low, before.many, after.few, before.total_many, after.total_few, before.half)
                x = self._tie(undecided, before, after) if step % 2 else _interpolated(before, after)
            if not low < x < high:
                x = math.sqrt(low) * math.sqrt(high)
        raise ArithmeticError(f"no jump of the sampling probabilities' sum found in {MOST_STEPS} steps")

    def _bracket(self) -> tuple[float, float]:
        """Bounds of x, twice as far apart as they need be: rounding must not put the root outside.

        Below, the fastest client alone has q = 1; above, costs count without C.
        """
        ratios = np.zeros_like(self.importance)
        for place, share in enumerate(self.shares):
            np.maximum(ratios, self.factors[..., place] / (self.upload * share + self.private), out=ratios)
        fastest = int((self.upload * self.shares[0] + self.private).argmin())
        factor = float(self.factors[..., 0] if self.factors.ndim == 1 else self.factors[fastest, 0])
        return float(self.importance[fastest]) ** 2 / factor / 2, float(self.importance @ np.sqrt(ratios)) ** 2 * 2

    def _look(self, x: float) -> _Look:
        """Let each client choose."""
        clients = self.importance.size
        few, many = np.zeros((2, clients), dtype=np.int8)
        total_few = total_many = half = 0.0
        for start in range(0, clients, BLOCK):
            part = slice(start, start + BLOCK)
            best = self._choose(part, x, few[part], many[part])
            roots = np.sqrt(best)
            half += float(self.importance[part] @ roots)
            chance = self.importance[part] / roots
            total_few += float(chance @ self._factors(part, few[part]))
            total_many += float(chance @ self._factors(part, many[part]))
        for client, place in self.given.items():
            few[client] = many[client] = place
        return _Look(x, few, many, total_few, total_many, half)

    def _choose(self, part: slice, x: float, few: Choices, many: Choices) -> Vector:
        """Write down the fewest and the most bits that minimise (1 + ω)(ρ c - C); return that minimum."""
        upload, private = self.upload[part], self.private[part]
        best, line, limit = np.full(upload.size, np.inf), np.empty(upload.size), np.empty(upload.size)
        for place, share in enumerate(self.shares):
            factor = self.factors[..., place] if self.factors.ndim == 1 else self.factors[part, place]
            np.multiply(upload, share, out=line)
            line += private
            line -= self.least
            line *= x + self.constant
            line += x
            line *= factor
            np.multiply(best, 1 + TIE, out=limit)
            np.copyto(many, np.int8(place), where=line <= limit)
            np.multiply(best, 1 - TIE, out=limit)
            np.copyto(few, np.int8(place), where=line < limit)
            np.minimum(best, line, out=best)
        return best

    def _factors(self, part: slice | Integers, choice: Choices) -> Vector:
        """Return 1 + ω of some clients with these bits."""
        if self.factors.ndim == 1:
            return self.factors[choice]
        return np.take_along_axis(self.factors[part], choice[:, np.newaxis].astype(np.int64), axis=1)[:, 0]

    def _chances(self, clients: Integers, choice: Choices, x: float) -> Vector:
        """Return q of some clients with these bits, for one ρ."""
        extra = self.upload[clients] * self.shares[choice] + self.private[clients] - self.least
        return self.importance[clients] * np.sqrt(self._factors(clients, choice) / (x + (x + self.constant) * extra))

    def _tie(self, undecided: Integers, before: _Look, after: _Look) -> float:
        """Return the x at which the median of the undecided changes, among some of them.

        (1 + ω)(x + (x + C) e) is a line in x, and the lines of two sizes cross once.
        """
        some = undecided[:: -(-undecided.size // TIES_LOOKED_AT)]
        lines = []
        for choice in (before.many[some], after.few[some]):
            cost, factor = self.upload[some] * self.shares[choice] + self.private[some], self._factors(some, choice)
            lines.append((factor * cost, factor * (cost - self.least) * self.constant))
        (slope, start), (other_slope, other_start) = lines
        return float(np.median((start - other_start) / (other_slope - slope)))

    def _with(self, choice: Choices) -> Solution:
        """Return the exact optimum over q for given bits."""
        weight = self.importance * np.sqrt(self._factors(slice(None), choice))
        cost = self.upload * self.shares[choice] + self.private
        q = minimise_time(weight.copy(), cost.copy(), self.constant)
        time = self.unit * float(q @ cost) * (float((weight * weight / q).sum()) + self.constant)
        return Solution(q, choice, time, time)


def _interpolated(before: _Look, after: _Look) -> float:
    """Return the x between two where a power law has Σ q = 1."""
    left, right = math.log(before.total_many), math.log(after.total_few)
    return before.x * math.pow(after.x / before.x, left / (left - right))
