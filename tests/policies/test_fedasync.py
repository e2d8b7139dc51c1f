"""FedAsync against its paper's formula, model by model."""

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.policies.fedasync import FedAsync
from fedtempo.policies.policy import BufferedPlan, Restart
from fedtempo.simulator.absences import WithAbsences
from fedtempo.simulator.channel import StaticChannel
from support.replayed import played
from support.rounds import TIMES, context, equal_fleet, make
from support.simulations import goes_on_alike, loop_of


def test_each_model_is_mixed_in_as_in_the_paper(small_data):
    loop = loop_of(small_data, TIMES, FedAsync, rounds=12, cohort_size=2, schedule="constant", step_size=0.05)
    seen = []
    for record, before, after, updates, staleness, starts in played(loop):
        (share,) = 0.6 / np.sqrt(1 + staleness)
        assert record.weights == [pytest.approx(share)]
        np.testing.assert_allclose(after, (1 - share) * before + share * (starts[0] + updates[0]), atol=2e-6)
        seen.append(staleness[0])
    assert max(seen) >= 3, "a case worth playing"


def test_a_falling_schedule_does_not_shrink_the_share_of_a_model(small_data):
    """With α = 1 and one in flight the server's model is that of the client, whatever η."""
    options = {"mixing": 1.0, "concurrency": 1}
    loop = loop_of(small_data, TIMES, FedAsync, rounds=5, schedule="inverse", options=options)
    models = [loop.state.model.copy()]
    for record in loop.rounds():
        models.append(loop.state.model.copy())
        moved = np.linalg.norm(models[-1].astype(np.float64) - models[-2])
        assert moved == pytest.approx(record.update_norm[0], rel=1e-4)


def test_an_old_model_pulls_the_server_back(small_data):
    """A plan that mixes models in differs from one that adds updates by what the server moved since."""

    class Scripted:
        def __init__(self, *, mix):
            self.mix = mix

        def plan(self, now):
            start = [0, 1] if now.round_index == 0 else []
            return BufferedPlan(start=start, weights=0.5, wait_for=1, staleness_exponent=0.0, mix_models=self.mix)

        def observe(self, report):
            pass

    models = {}
    for mix in (True, False):
        loop = loop_of(small_data, TIMES, Scripted(mix=mix), rounds=2, schedule="constant")
        models[mix] = [loop.state.model.copy()] + [loop.state.model.copy() for _ in loop.rounds()]
        assert not loop.state.sent.by_client, "nothing is kept of those who have arrived"
    np.testing.assert_array_equal(models[True][1], models[False][1])
    moved = models[False][1] - models[False][0]
    np.testing.assert_allclose(models[False][2] - models[True][2], 0.5 * moved, atol=1e-6)


def test_a_restart_forgets_the_models_that_were_sent(small_data):
    class Restarts:
        def __init__(self):
            self.restarted = False

        def plan(self, now):
            if now.round_index == 2 and not self.restarted:
                self.restarted = True
                return Restart()
            start = [0, 1, 2] if now.round_index == 0 else []
            return BufferedPlan(start=start, weights=0.5, wait_for=1, mix_models=True)

        def observe(self, report):
            pass

    loop = loop_of(small_data, TIMES, Restarts(), rounds=3, schedule="constant")
    kept = [len(loop.state.sent.by_client) for _ in loop.rounds()]
    assert kept == [2, 1, 2]


def test_a_run_carried_over_at_any_round_goes_on_as_if_nothing_had_happened(small_data):
    channel = WithAbsences(StaticChannel(**TIMES), present_share=0.6, seed=3)
    goes_on_alike(lambda: loop_of(small_data, TIMES, FedAsync, channel=channel, rounds=10))


def test_a_plan_of_fedasync():
    policy = make(FedAsync, equal_fleet(9), 2, mixing=0.3, staleness_exponent=2)
    plan = policy.plan(context())
    assert (len(plan.start), plan.wait_for, plan.mix_models, plan.staleness_exponent) == (4, 1, True, 2.0)
    assert plan.weights.tolist() == [0.3] * 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mixing": 0.0}, "mixing must be positive"),
        ({"mixing": 1.5}, "mixing must lie between 0 and 1"),
        ({"concurrency": 0}, "concurrency must be a whole number"),
        ({"staleness_exponent": -1.0}, "staleness_exponent must be zero or positive"),
        ({"mixng": 0.5}, "did you mean 'mixing'"),
    ],
)
def test_bad_options_are_refused(options, said):
    with pytest.raises(InputError, match=said):
        make(FedAsync, equal_fleet(4), 2, **options)
