"""Tempo: no pilots; learns while it trains who has something new to report and who takes how long.

The server remembers each client's last direction y_i and steps along their mean, so a client matters by its residual,
what it would report beyond that (novelty.py). Tempo draws clients by residual norm against upload time, with the q of
the exact optimum of P3 (theory/optimum.py), solved anew as training goes: a_i = p_i ‖residual‖, c_i = t_i/f_tot, and C
in proportion to the signal ‖d‖². Clients come in turn, as often as q says (theory/turns.py): by chance, what is
remembered of them would be older. It does not wait for a cohort: the server steps as soon as a few updates have
arrived, while others compute and upload, so that the link is never idle and computing takes no time of its own
(asynchronous.py).

That takes a memory that holds (caution.py). As long as it was not seen to hold, and where it fails for good, as with
networks whose directions turn within a few steps, a step is the mean of a cohort of arrivals, with weights p/π over
their sum. And it takes steps that are not too long: where clients' directions turn back on those before, step sizes
fall below the engine's until they do not.

How many are in flight follows from a closed queueing network (theory/closed_network.py): as many as keep the link busy,
and where a step is a mean, no more than keep its updates from being stale by more than about a step. With upload_bits
"auto" each client has its own size of uploads, by the same optimum (theory/bits.py, upload_noise.py).

In a large fleet most of the memory is old. Steps along it, and the trust in residuals, are as large as it is forecast
to hold (knowledge.py).

How many updates a step takes: one, more while part of the data was never reported, and 1/(1 - m) times as many with
server momentum m, which makes steps so many times longer. With more, each step would be less noisy, but the link would
carry no more updates in the same time.

Weights p_i/(K q_i) would make each step unbiased; they are cut at ``largest_factor`` p_i, in a large fleet nearly all
of them, so that most of what is new enters with the next steps, of which the memory holds the whole direction: as in
SAG, steps lag behind, and are far less noisy. ``largest_factor = inf`` keeps the unbiased form, drawn by chance, which
takes longer (benchmarks/forms.md). With ``memory = false`` the server remembers nothing, for models or fleets too large
for it even with ``memory_bits = 8``: weights are never cut then, and draws go by chance.

``overlap = false`` plans synchronous rounds instead, for engines and fleets that have no asynchronous steps: inclusion
probabilities π_i ∝ a_i/√c_i with c_i the seconds that a client adds to a round (theory/inclusion.py), from which the
size of the cohort follows (synchronous.py).

Who fails is tried again half as often each time. Who was absent for as long as several draws, or failed as often, is
forgotten: the mean of the others stands for it, until it reports again (departures.py).
"""

import numpy as np

from fedtempo.policies.options import read_options
from fedtempo.policies.policy import BufferedPlan, Policy, PolicySetting, RoundContext, RoundPlan, RoundReport
from fedtempo.policies.tempo.asynchronous import StepPlanner
from fedtempo.policies.tempo.draws import Draws
from fedtempo.policies.tempo.knowledge import Knowledge, TempoState
from fedtempo.policies.tempo.options import Form, TempoOptions
from fedtempo.policies.tempo.synchronous import RoundPlanner


class Tempo(Policy):
    """Decides for each step who starts, by what it would report and how long it takes."""

    state: TempoState

    def __init__(self, setting: PolicySetting) -> None:
        """Read the options; start with nothing known but data shares and nominal times."""
        options = read_options(TempoOptions, setting.options)
        self.server_memory, self.memory_bits = options.memory, options.memory_bits
        self.fleet, self.form = setting.fleet, Form.chosen(options, setting)
        self.draws = Draws(in_turn=not self.form.unbiased)
        self.upload_shares = np.array(setting.upload_shares)
        expected = np.array(setting.upload_noise if self.form.overlap else ())
        self.state = TempoState.at_first(self.fleet, self.form, expected)

    @property
    def known(self) -> Knowledge:
        """What was learned, ready for use."""
        return Knowledge(self.fleet, self.form, self.state, self.upload_shares)

    def plan(self, context: RoundContext) -> BufferedPlan | RoundPlan:
        """Draw who starts now."""
        known = self.known
        known.look(context)
        return self.planner(known).plan(context)

    def planner(self, known: Knowledge | None = None) -> StepPlanner | RoundPlanner:
        """Return what plans asynchronous steps, or synchronous rounds, by what is known."""
        kind = StepPlanner if self.form.overlap else RoundPlanner
        return kind(known or self.known, self.draws)

    def observe(self, report: RoundReport) -> None:
        """Learn what was new, and who reported."""
        self.known.observe(report)
