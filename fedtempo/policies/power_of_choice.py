"""Power-of-Choice: of some candidates, those train whose loss is largest.

Y. J. Cho, J. Wang, G. Joshi, "Towards Understanding Biased Client Selection in Federated Learning", AISTATS 2022. Each
round, d candidates are drawn without replacement in proportion to their data. Each evaluates the loss F_i of the
current model on its own data, and the K with the largest losses train; ties are broken at random. Their models are
averaged with equal weights. Larger d is greedier; with d = K this is sampling by data share.

The aggregate is biased towards clients with large losses, as the paper intends.

Where this departs from the paper: the time in which candidates evaluate their losses is charged, by the engine. Where
there is no choice, since at most K candidates are there, nobody is asked, which changes nothing but the time.
"""

import numpy as np

from fedtempo.checks import InputError, Integers, check_count
from fedtempo.policies.fixed import Forgetful
from fedtempo.policies.options import checked_options
from fedtempo.policies.policy import PolicySetting, Probe, RoundContext, RoundPlan


class PowerOfChoice(Forgetful):
    """Ask d candidates for their losses; the K largest train. ``candidates`` is d, twice the cohort if not given."""

    def __init__(self, setting: PolicySetting) -> None:
        """Check d."""
        options = checked_options(setting, {"candidates": None})
        self.fleet, self.cohort_size = setting.fleet, check_count("cohort_size", setting.cohort_size)
        given = options["candidates"]
        self.candidates = 2 * self.cohort_size if given is None else check_count("candidates", given)
        if self.candidates < self.cohort_size:
            raise InputError(
                name="candidates", rule=f"be at least the cohort of {self.cohort_size}", got=f"{self.candidates}"
            )
        self.asked: Integers = np.empty(0, dtype=np.int64)  # in this round: nothing to carry over to the next

    def plan(self, context: RoundContext) -> RoundPlan | Probe:
        """Draw candidates and ask them, then take those with the largest losses."""
        if context.answers is not None:
            # Who did not answer comes last.
            losses = np.where(np.isnan(context.answers), -np.inf, context.answers)
            order = np.lexsort((context.rng.random(losses.size), -losses))
            return self._train(self.asked[order[: self.cohort_size]])
        there = context.there(len(self.fleet))
        if there.size <= self.cohort_size:
            return self._train(there)
        share = self.fleet.data_share[there]
        count = min(self.candidates, there.size)
        self.asked = context.rng.choice(there, count, replace=False, p=share / share.sum())
        if count <= self.cohort_size:
            return self._train(self.asked)
        return Probe(clients=self.asked, ask="loss")

    def _train(self, clients: Integers) -> RoundPlan:
        return RoundPlan(
            members=np.sort(clients), weights=np.full(clients.size, 1 / max(clients.size, 1)), average=True
        )
