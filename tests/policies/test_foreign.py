"""Policies that users write: with their own way to go on after a stop, or none, and what an engine sees of them."""

import numpy as np
import pytest

from fedtempo.checks import InputError
from fedtempo.policies.foreign import ForeignPolicy, adopt
from fedtempo.policies.policy import SERVER_TRAITS, Policy, PolicySetting, RoundPlan, Stateless
from fedtempo.policies.registry import make
from fedtempo.policies.tempo import Tempo
from support.rounds import carry_over, context, equal_fleet
from support.simulations import goes_on_alike, loop_of


class LongestUnseen:
    """Take the clients that have not trained for longest, by the names and methods of earlier policies."""

    def __init__(self, setting):
        self.share, self.size = setting.fleet.data_share, setting.cohort_size
        self.last = np.full(len(setting.fleet), -1)

    def plan(self, context):
        there = context.there(self.last.size)
        members = np.sort(there[np.argsort(self.last[there], kind="stable")[: self.size]])
        return RoundPlan(members=members, weights=self.share[members] / self.share[members].sum())

    def observe(self, report):
        self.last[report.plan.members] = report.round_index

    def state(self):
        return {"last": self.last.tolist()}

    def restore(self, state):
        self.last = np.array(state["last"])


class Simple:
    """The least that there can be."""

    def plan(self, context):
        return RoundPlan(members=[0], weights=[1.0])

    def observe(self, report):
        pass


class Remembering(Simple):
    """Counts on the server's memory, and has a state that is its own affair."""

    server_memory, memory_bits, state = True, 8, "calm"
    server_optimiser, server_momentum, server_lookahead = "adam", 0.4, True


def setting(size=4):
    return PolicySetting(fleet=equal_fleet(size), cohort_size=2)


def test_a_policy_with_state_and_restore_goes_on_after_a_stop(data, times):
    loop = loop_of(data, times, LongestUnseen)
    assert loop.resumable
    goes_on_alike(lambda: loop_of(data, times, LongestUnseen))


def test_what_is_not_json_is_not_carried_over():
    class Broken(LongestUnseen):
        def state(self):
            return {"last": self.last}

    with pytest.raises(TypeError, match="JSON"):
        _ = make(Broken, setting()).state


def test_a_policy_without_them_starts_again(data, times):
    for policy in (Simple(), Remembering()):
        assert make(policy, setting()).state is None
        assert not loop_of(data, times, policy).resumable


def test_an_engine_sees_the_same_of_every_policy():
    plain, remembering = make(Simple(), setting()), make(Remembering(), setting())
    assert isinstance(plain, Policy)
    assert [getattr(plain, name) for name in SERVER_TRAITS] == [False, 32, None, None, False]
    assert [getattr(remembering, name) for name in SERVER_TRAITS] == [True, 8, "adam", 0.4, True]
    assert plain.plan(context()).members.tolist() == [0]


@pytest.mark.parametrize("raised", [KeyError("abc"), ZeroDivisionError("obs"), FileNotFoundError(2, "No such file")])
def test_what_somebodys_policy_raises_is_one_sentence_that_says_where(raised):
    class Raising(Stateless):
        def __init__(self, setting):
            pass

        def plan(self, context):
            raise raised

        def observe(self, report):
            raise raised

    said = rf"policy Raising must plan a round, got {type(raised).__name__}: .* in test_foreign.py, line"
    with pytest.raises(InputError, match=said):
        make(Raising, setting()).plan(context())
    with pytest.raises(InputError, match=r"policy Raising must learn from a report, got .* in test_foreign.py, line"):
        make(Raising, setting()).observe(None)


def test_a_plan_that_is_none_is_refused_by_the_policys_name():
    class Nothing(Simple):
        def plan(self, context):
            return None

    with pytest.raises(InputError, match=r"policy Nothing must plan a RoundPlan, .* or a Restart, got NoneType"):
        make(Nothing(), setting()).plan(context())


def test_our_own_are_taken_as_they_are_and_those_that_inherit_keep_their_state():
    class Mine(Stateless):
        def plan(self, context):
            return RoundPlan(members=[1], weights=[1.0])

    tempo = Tempo(setting())
    assert adopt(tempo) is tempo
    assert adopt(Mine()).state == Mine().state
    for policy in (Mine(), tempo):
        assert adopt(ForeignPolicy(policy)).plan(context()) is not None
    assert carry_over(Mine(), Mine()).plan(context()).members.tolist() == [1]


def test_learned_by_one_and_carried_over_to_another():
    first, second = (make(LongestUnseen, setting()) for _ in range(2))
    first.policy.last[:] = [5, 0, 5, 1]
    assert second.plan(context()).members.tolist() == [0, 1]
    assert carry_over(first, second).plan(context()).members.tolist() == [1, 3]
