"""Power-of-Choice: of some candidates, those train whose loss is largest.

Y. J. Cho, J. Wang, G. Joshi, "Towards Understanding Biased Client Selection in Federated Learning", AISTATS 2022. Each
round, d candidates are drawn without replacement in proportion to their data. Each evaluates the loss F_i of the
current model on its own data, and the K with the largest losses train; ties are broken at random. Their models are
averaged with equal weights. Larger d is greedier; with d = K this is sampling by data share.

The aggregate is biased towards clients with large losses, as the paper intends.

Where this departs from the paper: the time in which candidates evaluate their losses is charged, by the engine. Where
there is no choice, since at most K candidates are available, nobody is asked, which changes nothing but the time.
"""

from dataclasses import dataclass

import numpy as np

from fedtempo.checks import InputError, Integers, check_count
from fedtempo.policies.options import read_options
from fedtempo.policies.policy import PolicySetting, Probe, RoundContext, RoundPlan, Stateless


@dataclass(frozen=True, kw_only=True, slots=True)
class PowerOfChoiceOptions:
    """Of ``power-of-choice``."""

    candidates: int | None = None  # d; None: twice the cohort

    def __post_init__(self) -> None:
        """Check the options."""
        if self.candidates is not None:
            check_count("candidates", self.candidates)


class PowerOfChoice(Stateless):
    """Ask d candidates for their losses; the K largest train."""

    def __init__(self, setting: PolicySetting) -> None:
        """Read the options."""
        options = read_options(PowerOfChoiceOptions, setting.options)
        self.fleet, self.cohort_size = setting.fleet, check_count("cohort_size", setting.cohort_size)
        self.candidates = 2 * self.cohort_size if options.candidates is None else options.candidates
        if self.candidates < self.cohort_size:
            raise InputError(
                name="candidates", rule=f"be at least the cohort of {self.cohort_size}", got=f"{self.candidates}"
            )

    def plan(self, context: RoundContext) -> RoundPlan | Probe:
        """Draw candidates and ask them, then take those with the largest losses."""
        if context.answers is not None and context.asked is not None:
            # Who did not answer comes last.
            losses = np.where(np.isnan(context.answers), -np.inf, context.answers)
            order = np.lexsort((context.rng.random(losses.size), -losses))
            return self._train(context.asked[order[: self.cohort_size]])
        available = context.available_clients(len(self.fleet))
        if available.size <= self.cohort_size:
            return self._train(available)
        share = self.fleet.data_share[available]
        count = min(self.candidates, available.size)
        asked = context.rng.choice(available, count, replace=False, p=share / share.sum())
        return self._train(asked) if count <= self.cohort_size else Probe(clients=asked, ask="loss")

    def _train(self, clients: Integers) -> RoundPlan:
        return RoundPlan(
            members=np.sort(clients), weights=np.full(clients.size, 1 / max(clients.size, 1)), average=True
        )
