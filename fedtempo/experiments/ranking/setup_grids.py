"""What the leaderboard tries in each setup, how long a run may take there, and on how many draws it ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fedtempo.policies.builtin import BUILT_IN

MOMENTA = (0.5, 0.8, 0.9)
PLAIN, MOMENTUM, LEVERS = "plain", "momentum", "levers"
REGIMES = (PLAIN, MOMENTUM, LEVERS)  # what policies may have beside a step size and a cohort size
IN_WORDS = {LEVERS: "all levers"}  # regimes that titles call otherwise
UNRANKED = ("full",)  # it needs all clients in each round
NETWORK_POLICIES = ("tempo", "uniform", "weighted", "clustered", "fedbuff", "fedcs", "ca2fl")
Choice: TypeAlias = Mapping[str, float | str]  # a value for each setting of training that is tried
Choices: TypeAlias = Mapping[str, Sequence[float | str]]  # values for each of them


@dataclass(frozen=True, slots=True)
class Lever:
    """Settings over the best so far, and whether the next larger cohort goes with them."""

    settings: Choice
    larger_cohort: bool = False


# One stage after another, each over the best of those before it: bits bring most, and shift the best cohort with them.
LEVER_STAGES: tuple[tuple[Lever, ...], ...] = (
    (Lever({"upload_bits": "auto"}), Lever({"upload_bits": 4}), Lever({"upload_bits": 4}, larger_cohort=True)),
    (Lever({"server_average": "auto"}),),
    (Lever({"local_direction": 0.5}),),
    (Lever({"server_optimiser": "adam", "server_step_size": 0.01}),),
)


@dataclass(frozen=True, slots=True)
class SetupGrid:
    """What is tried in one setup, and how it ranks."""

    step_sizes: tuple[float, ...]
    cohort_sizes: tuple[int, ...]
    momentum_step_sizes: tuple[float, ...]  # none: momentum is not ranked there
    momentum_cohort_sizes: tuple[int, ...]
    time_limit: float  # simulated seconds
    first_part: float = 1 / 16  # of it, that all settings get; it doubles for those that go on
    tuning_draws: int = 2
    draws: int = 5
    seeds: int = 20  # dealt out over the draws
    looks_apart: float = 0.01  # evaluations, in times the time so far
    network: bool = False

    @property
    def regimes(self) -> tuple[str, ...]:
        """What may be ranked."""
        return REGIMES if self.momentum_step_sizes else (PLAIN, LEVERS)

    @property
    def policies(self) -> tuple[str, ...]:
        """What is ranked where nobody names policies."""
        if self.network:
            return tuple(policy for policy in NETWORK_POLICIES if policy in BUILT_IN)
        return tuple(policy for policy in BUILT_IN if policy not in UNRANKED)

    @property
    def parts(self) -> tuple[float, ...]:
        """Parts of the time limit, from the first to all of it."""
        found = [self.first_part]
        while found[-1] < 1:
            found.append(min(1.0, 2 * found[-1]))
        return tuple(found)

    def choices(self, regime: str) -> list[Choices]:
        """Return the grids to try at first; one without momentum belongs to all regimes."""
        plain: dict[str, Sequence[float]] = {"step_size": self.step_sizes, "cohort_size": self.cohort_sizes}
        if regime != MOMENTUM:
            return [plain]
        sizes = {"step_size": self.momentum_step_sizes, "cohort_size": self.momentum_cohort_sizes}
        return [plain | {"server_momentum": (0.0,)}, sizes | {"server_momentum": MOMENTA}]

    def stages(self, regime: str) -> tuple[tuple[Lever, ...], ...]:
        """Return what is tried after that, over the best so far."""
        return LEVER_STAGES if regime == LEVERS else ()

    def with_lever(self, choice: Choice, lever: Lever) -> Choice:
        """Return a choice with a lever over it; above the largest cohort size comes twice that."""
        found = {**choice, **lever.settings}
        if lever.larger_cohort:
            size = int(choice["cohort_size"])
            found["cohort_size"] = min((other for other in self.cohort_sizes if other > size), default=2 * size)
        return found


def _network(step_sizes: tuple[float, ...], cohort_sizes: tuple[int, ...], time_limit: float, draws: int) -> SetupGrid:
    return SetupGrid(
        step_sizes, cohort_sizes, (), (), time_limit,
        first_part=1 / 8, tuning_draws=1, draws=draws, seeds=draws, looks_apart=0.1, network=True,
    )  # fmt: skip


GRIDS = {
    "setup1": SetupGrid((0.02, 0.05, 0.1, 0.2, 0.4), (1, 2, 4, 8), (0.01, 0.03, 0.1), (2, 4, 8), 3000.0),
    "setup2": SetupGrid((0.001, 0.002, 0.005, 0.01), (1, 2, 5, 10), (0.001, 0.002, 0.005), (2, 5, 10), 6000.0),
    "setup3": SetupGrid(
        (0.03, 0.1), (2, 4, 10), (0.03, 0.1), (4,), 600.0,
        first_part=1 / 8, tuning_draws=1, draws=10, seeds=10, looks_apart=0.1, network=True,
    ),
    "fashion": _network((0.03, 0.1), (2, 4, 10), 1200.0, draws=5),
    "cifar10": _network((0.02, 0.05), (2, 4, 10), 1200.0, draws=3),
    "shakespeare": _network((2.0, 5.0), (4, 10, 20), 1600.0, draws=3),
}  # fmt: skip
