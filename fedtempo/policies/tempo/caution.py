"""How careful tempo is: how far it trusts the memory, how many updates a step takes, and how long steps are."""

import math
from dataclasses import dataclass

from fedtempo.policies.tempo import constants
from fedtempo.policies.tempo.novelty import Novelty
from fedtempo.policies.tempo.options import Form


@dataclass(eq=False, slots=True)
class CautionState:
    """How careful tempo is."""

    caution: float  # times as many arrivals as usual, and as few who compute ahead; 1: as usual
    follows_memory: bool  # whether steps go along the memory, or are means of those who arrive
    step_factor: float  # of the engine's step size

    @classmethod
    def at_first(cls, form: Form) -> "CautionState":
        """Do not follow a memory that was never tried, unless steps are unbiased whatever it holds."""
        return cls(1.0, follows_memory=form.unbiased, step_factor=1.0)


class Caution:
    """Follows how well the memory did.

    While the memory fails, steps take more arrivals and fewer clients compute ahead, whose updates would be stale: in
    the end nearly a synchronous round. Where the greatest caution does not help, the memory is not followed any more,
    until it would have done well again. Where what clients report turns back on what they reported before, steps are
    too long, and become shorter.
    """

    def __init__(self, form: Form, state: CautionState) -> None:
        """Go on from how careful tempo was."""
        self.form, self.state = form, state

    @property
    def level(self) -> float:
        """The caution that counts: the greatest where the memory is not followed."""
        return self.state.caution if self.state.follows_memory else self.form.most_caution

    def adapt(self, novelty: Novelty, steps: int) -> None:
        """Follow how well the memory did in the last steps."""
        if not (self.form.memory and novelty.take_news()):
            return
        state, form, surprise, agreement = self.state, self.form, novelty.surprise, novelty.agreement
        too_much = surprise > constants.GREATEST_SURPRISE
        gain = constants.CAUTION_GAIN * (2 - form.forgetting if too_much else form.forgetting)
        caution = state.caution * (surprise / constants.GREATEST_SURPRISE) ** (gain * steps)
        state.caution = min(max(caution, 1.0), form.most_caution)
        gain = constants.SHORTEN if agreement < 0 else constants.LENGTHEN * form.forgetting
        factor = state.step_factor * math.exp(gain * min(steps, 1 / gain) * agreement)
        state.step_factor = min(max(factor, constants.SHORTEST), 1.0)
        if not form.unbiased:
            enough = constants.SURPRISE_TO_FOLLOW - constants.DOUBT * novelty.doubt
            holds = state.follows_memory or surprise < enough
            state.follows_memory = holds and state.caution < form.most_caution

    def arrivals(self, unseen_share: float, size: int) -> int:
        """Return how many updates a step takes while this share of the data was never reported, of ``size`` clients."""
        form = self.form
        if not form.memory:
            return min(form.cohort_size, size)  # nothing but a larger cohort makes a step less noisy
        wanted = self.level * (1 + constants.ARRIVALS_FOR_UNSEEN_DATA * unseen_share)
        most = max(form.most_caution, 1 + constants.ARRIVALS_FOR_UNSEEN_DATA)
        return max(1, min(round(form.usual_arrivals * min(wanted, most)), size))
