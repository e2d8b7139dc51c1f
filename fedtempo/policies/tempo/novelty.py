"""How much each client would report that the server does not know yet."""

import math
from dataclasses import dataclass

import numpy as np

from fedtempo.checks import Integers, Vector
from fedtempo.policies.policy import RoundReport
from fedtempo.policies.tempo import constants

NEVER, FORGOTTEN = -1, -2  # in the place of the round of a report


@dataclass(eq=False, slots=True)
class NoveltyState:
    """What is known of each client's residual Δ/η - y, and of its direction Δ/η."""

    residual: Vector  # its squared norm when the client last reported
    age: Vector  # of what the server then remembered of it
    reported_in: Integers  # round of that report; NEVER, FORGOTTEN
    reported_at: Vector  # the clock then
    drift: Vector  # the same, less what rounding had added to what was remembered
    rounding: Vector  # squared norm of what rounding is expected to have added to the direction reported last
    direction: Vector  # squared norm of the direction that it reported last; 0: none
    previous: Vector  # and of the one before; 0: none
    first_total: float  # sum of the squared norms of first residuals
    first_count: int  # and how many there were
    seen_share: float  # of the data: its clients have reported
    signal: float  # running mean of ‖d‖², less the noise
    clock: float  # steps of the server so far, each counted by its length: ages are differences of this
    news: bool  # whether anybody reported again since ``take_news``

    @classmethod
    def at_first(cls, size: int) -> "NoveltyState":
        """Start with no reports."""
        residual, direction, previous, reported_at, drift, rounding = np.zeros((6, size))
        age, reported_in = np.full(size, constants.AGE), np.full(size, NEVER, dtype=np.int64)
        return cls(
            residual=residual, age=age, reported_in=reported_in, reported_at=reported_at, drift=drift,
            rounding=rounding, direction=direction, previous=previous, first_total=0.0, first_count=0, seen_share=0.0,
            signal=0.0, clock=0.0, news=False,
        )  # fmt: skip


class Novelty:
    """Squared norms of residuals Δ/η - y, seen once in a while and guessed in between, and the signal ‖d‖².

    With a server memory y of last directions a residual grows with the way of the server since the client last
    reported: in simulated runs about as AGE + age, age in steps of full length. Without memory y = 0, a residual is the
    direction itself and does not grow. A client that never reported, or was forgotten since, counts as the mean of
    first residuals.
    """

    def __init__(self, data_share: Vector, state: NoveltyState, *, grows: bool) -> None:
        """Go on from what was reported; ``grows`` with a server memory."""
        self.share, self.state, self.grows = data_share, state, grows

    @property
    def empty(self) -> bool:
        """Whether nobody has reported anything."""
        return self.state.first_count == 0

    @property
    def unseen_share(self) -> float:
        """Share of the data whose clients never reported."""
        return max(1 - self.state.seen_share, 0.0)

    @property
    def squares(self) -> Vector:
        """What each client's squared residual would be by now."""
        state = self.state
        known = state.residual
        if self.grows:
            known = known * ((constants.AGE + state.clock - state.reported_at) / (constants.AGE + state.age))
        first = state.first_total / max(state.first_count, 1)
        return np.maximum(np.where(state.reported_in < 0, first, known), constants.TINY)

    @property
    def surprise(self) -> float:
        """How much of what clients reported last was new, on average over the data: near 1, the memory is of no use.

        Of those who reported twice at least, since at first all is new.
        """
        share = self._share_reported_twice()
        whole = float(share @ self.state.direction)
        return float(share @ self.state.residual) / whole if whole else 0.0

    @property
    def forecast(self) -> float:
        """What the memory as a whole would be off by now: the surprise, were all to report in this round.

        Of those remembered; 0 where nobody is.
        """
        share = np.where(self.state.reported_in < 0, 0.0, self.share)
        whole = float(share @ self.state.direction)
        return float(share @ self.squares) / whole if whole else 0.0

    @property
    def drifted(self) -> float:
        """How much of what clients reported last was due to their data alone, as a share; 1 where nobody knows.

        The surprise, but for what rounding had added to what was remembered: more bits would have made that less.
        """
        share = self._share_reported_twice()
        whole = float(share @ self.state.direction)
        return max(float(share @ self.state.drift) / whole, constants.LEAST_DRIFT) if whole else 1.0

    @property
    def agreement(self) -> float:
        """The cosine between what clients reported last and before, by data and by norms; below 0, they turned back."""
        state, share = self.state, self._share_reported_twice()
        lengths = float(share @ np.sqrt(state.direction * state.previous))
        products = float(share @ (state.direction + state.previous - state.residual))  # 2 D·y = ‖D‖² + ‖y‖² - ‖D - y‖²
        return products / (2 * lengths) if lengths else 0.0

    @property
    def doubt(self) -> float:
        """How little is known of the surprise: 1 of one small client, near 0 where many, or all data, reported twice.

        Nothing is known where nobody did, or only reported zeros.
        """
        share = self._share_reported_twice()
        total = float(share.sum())
        return (1 - total) * float(share @ share) / total**2 if total else math.inf

    def _share_reported_twice(self) -> Vector:
        return np.where(self.state.previous > 0, self.share, 0.0)

    def take_news(self) -> bool:
        """Return whether anybody reported again since this was last asked."""
        news, self.state.news = self.state.news, False
        return news

    def observe(self, report: RoundReport, noise: float) -> None:
        """Learn from those who reported; ``noise`` is the expected squared norm of the sampling noise in the step.

        What rounding added to their uploads is nothing new.
        """
        state, came = self.state, ~report.failed
        whole = (report.update_norm[came] / report.step_size[came]) ** 2
        rounding = np.zeros(len(whole)) if report.noise_of_uploads is None else report.noise_of_uploads[came]
        direction = whole / (1 + rounding)
        members, squares = report.plan.members[came], report.residual_norm[came] ** 2
        squares = np.maximum(squares - rounding * direction, 0.0)
        if not (len(members) and np.isfinite(squares).all()):
            return
        first = state.reported_in[members] < 0
        state.first_total += float(squares[first].sum())
        state.first_count += int(first.sum())
        state.news |= not first.all()
        state.seen_share += float(self.share[members[state.reported_in[members] == NEVER]].sum())
        state.age[members] = np.where(first, constants.AGE, state.clock - state.reported_at[members])
        state.reported_at[members] = state.clock
        state.drift[members] = np.maximum(squares - np.where(first, 0.0, state.rounding[members]), 0.0)
        state.rounding[members] = rounding * direction
        state.residual[members], state.reported_in[members] = squares, report.round_index
        state.previous[members] = state.direction[members]
        state.direction[members] = direction
        total = report.direction_norm**2
        seen = max(total - noise, constants.LEAST_SIGNAL * total)
        past = constants.SIGNAL_OF_THE_PAST if state.signal else 0.0
        state.signal = past * state.signal + (1 - past) * seen

    def forget(self, clients: Integers) -> None:
        """Take some for clients that never reported, since the server does not remember them any longer."""
        state = self.state
        state.reported_in[clients] = FORGOTTEN
        state.direction[clients], state.previous[clients] = 0.0, 0.0
