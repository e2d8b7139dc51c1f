"""A run that is stopped after any round and carried over by its states ends with the bytes of one never stopped.

The states hold nothing else: with any one field left out on the way, some run ends otherwise.
"""

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
import pytest

from fedtempo import Fleet
from fedtempo.data.synthetic import synthetic_data
from fedtempo.engine.loop import Loop, LoopSettings
from fedtempo.engine.settings import StopSettings, TrainingSettings
from fedtempo.policies.registry import BUILT_IN
from fedtempo.policies.tempo import constants
from fedtempo.simulator.absences import WithAbsences
from fedtempo.simulator.channel import ChannelState, StaticChannel, UnknownTimes
from fedtempo.simulator.fading import FadingChannel
from fedtempo.simulator.problem import Problem, make_trainer
from fedtempo.simulator.simulated_clients import SimulatedClients
from fedtempo.simulator.simulation import RunSettings, make_simulation
from fedtempo.theory import turns
from support.resuming import (
    BufferedWorkers,
    UnreliableClients,
    all_fields,
    carried_over,
    changed_fields,
    lines,
    states_of,
)

SIZE, ROUNDS, SEED = 9, 16, 4
AFTER = (1, 2, 3, 4, 6, 8, 9, 14, 33)  # rounds, after which a run is stopped
DATA = synthetic_data(alpha=1.0, beta=1.0, num_clients=SIZE, num_samples=900, seed=1)
COMPUTE, UPLOAD = np.linspace(0.1, 2.0, SIZE), np.linspace(1.5, 0.2, SIZE)
FLEET = Fleet(DATA.data_share, 1.0, COMPUTE, UPLOAD)
FADING = FadingChannel(COMPUTE, UPLOAD, correlation=0.6, seed=2)


class Uneven:
    """Times that change with the round in every way, and are known in every other round alone."""

    def at(self, round_index, time):
        turn = np.arange(SIZE) + round_index
        return ChannelState(COMPUTE * (1 + turn % 3), UPLOAD * (1 + turn % 2), known=round_index % 2 == 0)


CHANNELS = {
    "uneven": Uneven(),
    "quick": StaticChannel(COMPUTE / 1e3, UPLOAD),
    "slow": StaticChannel(4 * COMPUTE, UPLOAD / 1e3),
    "waiting": StaticChannel(COMPUTE / 5, UPLOAD),
    "static": StaticChannel(COMPUTE, UPLOAD),
    "fading": FADING,
    "unknown": UnknownTimes(FADING),
    "absences": WithAbsences(UnknownTimes(FADING), present_share=0.7, seed=3, absence_rounds=2.0),
}
OPTIONS = {
    "proposed": {"losses": [2.25, 2.2], "max_rounds": 4},
    "statistical": {"losses": [2.25, 2.2], "max_rounds": 4},
    "proposed-oracle": {"beta_over_alpha": 0.1},
    "oort": {"window": 3, "most_picks": 3},
    "tifl": {"interval": 3, "credits": 3, "tiers": 3},
}
TEMPO = {
    "tempo, rounds": {"overlap": False},
    "tempo, large rounds": {"overlap": False, "signal_factor": 1e-3},
    "tempo, no memory": {"memory": False},
    "tempo, small memory": {"memory_bits": 8},
    "tempo, unbiased": {"largest_factor": float("inf")},
    "tempo, rounds, unbiased": {"overlap": False, "largest_factor": float("inf")},
    "tempo, steps": {"choose_local_steps": True},
    "tempo, rounds, steps": {"overlap": False, "choose_local_steps": True},
}


@dataclass(frozen=True)
class Case:
    """One run to stop and carry over."""

    policy: str
    options: dict = field(default_factory=dict)
    channel: str = "absences"
    training: dict = field(default_factory=dict)
    stop: dict = field(default_factory=lambda: {"max_rounds": ROUNDS})
    unreliable: bool = False
    diverges: bool = False  # by its loss, after some rounds
    overflows: bool = False  # by its updates, after some rounds
    fails: bool = False  # the memory of tempo, and all clients may be in flight
    large: bool = False  # the fleet counts as large: q holds for some steps, and draws look at some clients alone

    @contextmanager
    def world(self):
        """Let the sizes from which on a fleet is large be such as this one's."""
        with pytest.MonkeyPatch.context() as patch:
            if self.large:
                patch.setattr(constants, "CLIENTS_FOR_A_STEP", 3)
                patch.setattr(constants, "LARGE_FLEET_IN_TURN", 5)
                patch.setattr(turns, "NEAR", 6)
                patch.setattr(turns, "DRAWS_AHEAD", 5)
            if self.fails:
                patch.setattr(constants, "SURPRISE_TO_FOLLOW", 0.0)
                patch.setattr(constants, "MOST_IN_FLIGHT", 1.0)
            yield

    def make(self, *, again=False):
        """Return the run at its start; ``again``: as another process would, which does not know w₀."""
        usual = {"cohort_size": 3, "local_steps": 4, "step_size": 0.03, "schedule": "constant", "evaluate_every": 3}
        training = TrainingSettings(**usual | self.training)
        problem = Problem.of_fleet(DATA, make_trainer("softmax", DATA), FLEET, CHANNELS[self.channel])
        settings = RunSettings(
            policy=self.policy, options=self.options, training=training, stop=StopSettings(**self.stop), seed=SEED
        )
        first = problem.initial_model(SEED)
        workers = BufferedWorkers(
            problem.trainer,
            problem.batches(training, SEED),
            training,
            first=first,
            again=again,
            diverges=self.diverges,
            overflows=self.overflows,
        )
        clients = (UnreliableClients if self.unreliable else SimulatedClients)(
            workers=workers, samples=DATA.sizes, fleet=FLEET, channel=problem.channel, training=training
        )
        made = make_simulation(problem, settings)
        loop = LoopSettings(fleet=FLEET, policy=made.policy, training=training, stop=settings.stop, seed=SEED)
        return Loop(loop, clients, first + again, np.full(2, 0.1 + again))


POLICIES = {name: Case(name, OPTIONS.get(name, {})) for name in BUILT_IN}
POLICIES |= {name: Case("tempo", options) for name, options in TEMPO.items()}
POLICIES["shadowheart, bits"] = Case("shadowheart", training={"upload_bits": "auto"})
SETTINGS = {
    "failures": {"unreliable": True},
    "momentum": {"training": {"server_momentum": 0.8}},
    "memory": {"training": {"server_memory": True}},
    "adam": {"training": {"server_optimiser": "adam", "local_direction": 0.3}},
    "mean": {"training": {"server_average": 0.7}},
    "auto mean": {"training": {"server_average": "auto"}},
    "auto step size": {"training": {"step_size": "auto"}, "channel": "static"},
    "failing memory": {"large": True, "fails": True, "channel": "slow", "training": {"local_steps": 12}},
    "failing memory, quick": {"large": True, "fails": True, "channel": "waiting", "training": {"local_steps": 12}},
    "bits": {"training": {"upload_bits": "auto"}},
    "correction": {"training": {"server_memory": True, "local_correction": True}},
    "top": {"training": {"upload_top": 0.1, "error_feedback": True}},
    "few bits": {"training": {"upload_bits": 3, "error_feedback": True}},
    "fading": {"channel": "fading"},
    "uneven": {"channel": "uneven"},
    "large": {"large": True, "unreliable": True},
    "large, uneven": {"large": True, "channel": "uneven"},
    "long": {"channel": "static", "training": {"step_size": 0.3}, "stop": {"max_rounds": 40}},
    "to targets": {"stop": {"max_rounds": ROUNDS, "target_loss": 2.2, "target_accuracy": 0.99}},
    "to other targets": {"stop": {"max_rounds": ROUNDS, "target_loss": 0.1, "target_accuracy": 0.12}},
    "diverging": {"diverges": True},
    "overflowing": {"overflows": True, "training": {"evaluate_every": 4}},
    "large, bits": {"large": True, "unreliable": True, "channel": "slow", "training": {"upload_bits": "auto"}},
    "large, waiting": {"large": True, "channel": "waiting"},
    "quick": {"large": True, "channel": "quick"},
    "slow": {"large": True, "channel": "slow"},
}


# What the server and the loop keep is the same for every policy; what tempo keeps is more than what others do.
EVERYWHERE = ("failures", "uneven")
SOME = ("weighted", "proposed", "tempo", "tempo, rounds", "tempo, small memory")
CASES = {
    (name, setting): replace(POLICIES[name], **SETTINGS.get(setting, {}))
    for name in dict.fromkeys((*reversed(SOME), *POLICIES))
    for setting in ("", *SETTINGS)
    if setting in ("", *EVERYWHERE) or name in SOME
}


@pytest.mark.parametrize(("name", "setting"), CASES)
def test_a_run_carried_over_after_any_round_ends_with_the_same_bytes(name, setting):
    case = CASES[name, setting]
    with case.world():
        whole = list(lines(case.make()))
        # What evaluates w₀ again finds another loss here, so a run that is to diverge must have begun.
        for after in range(int(case.diverges or case.overflows), len(whole), 4 if setting else 1):
            assert carried_over(case.make, after) == whole, f"after {after} rounds"


@pytest.fixture(scope="module")
def noticed():
    """Fields of states that some run ends otherwise without, and all that there are."""
    found, known = set(), set()
    for case in CASES.values():
        with case.world():
            whole, fresh = list(lines(case.make())), states_of(case.make(again=True))
            known |= all_fields(fresh)
            for after in AFTER:
                stopped = case.make()
                list(islice(lines(stopped), after))
                for path, name in changed_fields(states_of(stopped), fresh):
                    if name not in found and is_noticed(case, after, path, whole):
                        found.add(name)
    return found, known


def is_noticed(case, after, path, whole):
    try:
        return carried_over(case.make, after, path) != whole
    except (ArithmeticError, ValueError, IndexError, KeyError, TypeError, RuntimeWarning):
        return True


@pytest.mark.slow
def test_no_state_holds_a_field_that_makes_no_difference(noticed):
    found, known = noticed
    assert known - found == set(), ", ".join(sorted(known - found))
    assert len(known) > 50
