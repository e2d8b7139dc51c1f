"""How much each client would tell that the server does not know yet."""

import math
from typing import Any

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.policies.policy import RoundReport

AGE = 20.0  # rounds after which what is new since the last update is twice what it was at once: noise comes first
SHARE_OF_THE_PAST = 0.9  # in the running mean of the signal
LEAST_SIGNAL = 0.1  # of a step's squared norm, where noise seems to be all of it
TINY = 1e-30
NEVER, FORGOTTEN = -1, -2


class Novelty:
    """Squared norms of residuals Δ/η - y, seen once in a while and guessed in between, and the signal ‖d‖².

    With a server memory y of last directions a residual grows with the rounds since the client last told: in simulated
    runs about as AGE + age. Without memory y = 0, a residual is the direction itself and does not grow. A client that
    never told, or was forgotten since, counts as the mean of first residuals.
    """

    def __init__(self, data_share: Vector, *, grows: bool) -> None:
        """Start with nobody seen."""
        self.share, self.grows, size = data_share, grows, len(data_share)
        self.square = np.zeros(size)  # of the residual when the client last told
        self.age = np.full(size, AGE)  # of what the server then remembered of it
        self.told = np.full(size, NEVER, dtype=np.int64)  # in which round that was; NEVER, FORGOTTEN
        self.first_total, self.first_count = 0.0, 0
        self.heard = 0.0  # share of the data whose clients have told
        self.signal = 0.0
        # Squared norms of the last residual, the last direction, and the one before; 0 where there is none.
        self.new_part, self.whole, self.before = np.zeros(size), np.zeros(size), np.zeros(size)
        self.news = False  # whether anybody told again since a policy last looked

    @property
    def empty(self) -> bool:
        """Whether nobody has told anything."""
        return self.first_count == 0

    def squares(self, round_index: int) -> Vector:
        """Return what each client's squared residual would be by now."""
        known = self.square
        if self.grows:
            known = known * ((AGE + round_index - self.told) / (AGE + self.age))
        return np.maximum(np.where(self.told < 0, self.first_total / max(self.first_count, 1), known), TINY)

    @property
    def surprise(self) -> float:
        """How much of what clients told last was new, on average over the data: near 1, the memory is of no use.

        Of those who told twice at least, since at first all is new.
        """
        share = self._share_told_again()
        whole = float(share @ self.whole)
        return float(share @ self.new_part) / whole if whole else 0.0

    @property
    def agreement(self) -> float:
        """The cosine between what clients told last and before, by data and by norms; below 0, they turned back."""
        share = self._share_told_again()
        lengths = float(share @ np.sqrt(self.whole * self.before))
        return float(share @ (self.whole + self.before - self.new_part)) / (2 * lengths) if lengths else 0.0

    @property
    def doubt(self) -> float:
        """How little is known of the surprise: 1 of one small client, nearing 0 where many, or all data, told again.

        Nothing is known where nobody did, or only told nothing.
        """
        share = self._share_told_again()
        total = float(share.sum())
        return (1 - total) * float(share @ share) / total**2 if total else math.inf

    def _share_told_again(self) -> Vector:
        return np.where(self.before > 0, self.share, 0.0)

    def observe(self, report: RoundReport, noise: float) -> None:
        """Learn from those who told; ``noise`` is the expected squared norm of the sampling noise in the step."""
        came = ~report.failed
        members, squares = report.plan.members[came], report.residual_norm[came] ** 2
        if not (len(members) and np.isfinite(squares).all()):
            return
        first = self.told[members] < 0
        self.first_total += float(squares[first].sum())
        self.first_count += int(first.sum())
        self.news |= not first.all()
        self.heard += float(self.share[members[self.told[members] == NEVER]].sum())
        self.age[members] = np.where(first, AGE, report.round_index - self.told[members])
        self.square[members], self.told[members] = squares, report.round_index
        self.new_part[members], self.before[members] = squares, self.whole[members]
        self.whole[members] = (report.update_norm[came] / report.step_size[came]) ** 2
        total = report.direction_norm**2
        seen, past = max(total - noise, LEAST_SIGNAL * total), SHARE_OF_THE_PAST if self.signal else 0.0
        self.signal = past * self.signal + (1 - past) * seen

    def forget(self, clients: Integers) -> None:
        """Take some for clients that never told, since the server does not remember them any longer."""
        self.told[clients] = FORGOTTEN
        self.new_part[clients], self.whole[clients], self.before[clients] = 0.0, 0.0, 0.0

    def state(self) -> dict[str, Any]:
        """Return all that was learned."""
        arrays = {name: getattr(self, name).tolist() for name in ARRAYS}
        return arrays | {name: getattr(self, name) for name in NUMBERS}

    def restore(self, state: dict[str, Any]) -> None:
        """Take it up."""
        for name, value in state.items():
            setattr(self, name, np.array(value) if isinstance(value, list) else value)


ARRAYS = ("square", "age", "told", "new_part", "whole", "before")
NUMBERS = ("first_total", "first_count", "heard", "signal", "news")
