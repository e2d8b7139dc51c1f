"""Statistics of batch normalisation: the loop keeps them and blends them by the weights of the plan."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fedtempo import Fleet
from fedtempo.flower import TempoStrategy, tempo_client
from fedtempo.policies.policy import Restart, RoundPlan
from support.flower_grid import InProcessGrid
from support.flower_runs import StoppedError, nodes_of

SHARE = np.array([0.1, 0.2, 0.3, 0.4])
FLEET = Fleet(SHARE, np.ones(4), np.linspace(1, 2, 4), np.linspace(2, 1, 4))
FIRST = {
    "weight": np.zeros(3, np.float32),
    "bn.running_mean": np.zeros(2, np.float32),
    "bn.running_var": np.ones(2, np.float32),
    "bn.num_batches_tracked": np.array(0),
}

app = ClientApp(mods=[tempo_client()])


@app.train()
def train_with_statistics(message, context):
    """Move weights a little; the statistics of client i become those of its own data, i and 1 + i."""
    client = context.node_config["partition-id"]
    arrays = {name: array.numpy() for name, array in message.content.array_records["arrays"].items()}
    arrays["weight"] = arrays["weight"] + np.float32(0.01 * (client + 1))
    arrays["bn.running_mean"] = np.full(2, client, np.float32)
    arrays["bn.running_var"] = np.full(2, 1 + client, np.float32)
    arrays["bn.num_batches_tracked"] = np.asarray(arrays["bn.num_batches_tracked"] + 1)
    content = ArrayRecord({name: Array(values) for name, values in arrays.items()})
    return Message(RecordDict({"arrays": content}), reply_to=message)


def trained(policy, rounds=1, **settings):
    """Return the arrays at the end and the records of a run."""
    grid, seen = InProcessGrid(app, [{"partition-id": number} for number in range(4)]), []
    then = settings.pop("progress", lambda loop, record: None)

    def progress(loop, record):
        seen.append(record)
        then(loop, record)

    strategy = TempoStrategy(
        policy, cohort_size=2, step_size=0.1, local_steps=1, fleet=FLEET, nodes=nodes_of(grid), progress=progress,
        **settings,
    )  # fmt: skip
    initial = ArrayRecord({name: Array(values) for name, values in FIRST.items()})
    result = strategy.start(grid, initial, rounds)
    return {name: array.numpy() for name, array in result.arrays.items()}, seen


@pytest.mark.parametrize("clock", ["wall", "simulated"])
def test_full_participation_averages_by_data(clock):
    arrays, _ = trained("full", clock=clock)
    np.testing.assert_allclose(arrays["bn.running_mean"], np.arange(4) @ SHARE, rtol=1e-6)
    np.testing.assert_allclose(arrays["bn.running_var"], (1 + np.arange(4)) @ SHARE, rtol=1e-6)
    assert arrays["bn.num_batches_tracked"] == 0, "counters stay as they were at the start"


@pytest.mark.parametrize("policy", ["uniform", "weighted", "kvib", "tempo"])
def test_statistics_follow_the_weights_of_the_plan_under_either_clock(policy):
    """Never beyond what clients report, though weights of updates may add up to more than 1."""
    for clock in ("wall", "simulated"):
        arrays, rounds = trained(policy, rounds=4, clock=clock)
        mean = np.zeros(2)
        for record in rounds:
            shares = np.maximum(record.weights, 0.0)
            shares = shares / max(shares.sum(), 1.0)
            mean = mean + sum(share * (client - mean) for share, client in zip(shares, record.members, strict=True))
        np.testing.assert_allclose(arrays["bn.running_mean"], mean, rtol=1e-6)
        assert (arrays["bn.running_var"] > 0).all()


def test_a_run_that_goes_on_has_the_statistics_that_it_had(tmp_path):
    def stop(loop, record):
        if loop.state.rounds_done == 2:
            raise StoppedError

    with pytest.raises(StoppedError):
        trained("uniform", rounds=4, records=tmp_path, progress=stop)
    arrays, rounds = trained("uniform", rounds=4, records=tmp_path)
    whole, _ = trained("uniform", rounds=4)
    assert len(rounds) == 2
    for name, values in whole.items():
        np.testing.assert_array_equal(arrays[name], values)


def test_who_starts_again_has_the_statistics_of_the_start():
    """Pilots end at once, and training starts from w₀ and its buffers: as if it were the first."""

    class Restarting:
        def __init__(self, setting):
            self.done = 0

        def plan(self, context):
            if self.done == 1:
                self.done = 2
                return Restart()
            return RoundPlan(members=np.arange(4), weights=SHARE)

        def observe(self, report):
            self.done = max(self.done, 1)

    arrays, _ = trained(Restarting, rounds=2)
    once, _ = trained("full", rounds=1)
    for name, values in once.items():
        np.testing.assert_array_equal(arrays[name], values)
