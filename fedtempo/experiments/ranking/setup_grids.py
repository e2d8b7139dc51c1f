"""What the leaderboard tries in each setup of the paper, and how long a run may take there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

MOMENTA = (0.5, 0.8, 0.9)
REGIMES = ("plain", "momentum")  # of the server's optimiser
Choices: TypeAlias = Mapping[str, Sequence[float]]  # values for each setting of training


@dataclass(frozen=True, slots=True)
class SetupGrid:
    """What is tried in one setup."""

    step_sizes: tuple[float, ...]
    cohort_sizes: tuple[int, ...]
    momentum_step_sizes: tuple[float, ...]
    momentum_cohort_sizes: tuple[int, ...]
    time_limit: float  # simulated seconds
    tuning_limits: tuple[float, ...] = (1 / 16, 1 / 4, 1)  # parts of it, for which settings are tried

    def choices(self, regime: str) -> list[Choices]:
        """Return the grids to try; one without momentum belongs to both regimes."""
        plain: dict[str, Sequence[float]] = {"step_size": self.step_sizes, "cohort_size": self.cohort_sizes}
        if regime == "plain":
            return [plain]
        sizes = {"step_size": self.momentum_step_sizes, "cohort_size": self.momentum_cohort_sizes}
        return [plain | {"server_momentum": (0.0,)}, sizes | {"server_momentum": MOMENTA}]


GRIDS = {
    "setup1": SetupGrid((0.02, 0.05, 0.1, 0.2, 0.4), (1, 2, 4, 8), (0.01, 0.03, 0.1), (2, 4, 8), 3000.0),
    "setup2": SetupGrid((0.001, 0.002, 0.005, 0.01), (1, 2, 5, 10), (0.001, 0.002, 0.005), (2, 5, 10), 6000.0),
    "setup3": SetupGrid((0.03, 0.1), (2, 4, 10), (0.01, 0.03, 0.1), (4,), 600.0, tuning_limits=(0.4, 1)),
}
