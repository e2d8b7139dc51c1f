"""What makes two calls into one folder the same: whatever changes a run starts another."""

from functools import partial

import numpy as np
import pytest

import fedtempo
from fedtempo import ChannelState, InputError, Problem
from fedtempo.engine.records import RECORDS
from fedtempo.simulator.channel import StaticChannel, TraceChannel, UnknownTimes
from fedtempo.simulator.fading import FadingChannel
from fedtempo.simulator.traces import RateTrace

SHORT = {"cohort_size": 3, "local_steps": 2, "max_rounds": 2, "target_loss": 1.0, "jobs": 1, "seeds": 1}


class Slotted:
    """A channel of somebody's own, without a dict."""

    __slots__ = ("seconds",)

    def __init__(self, seconds):
        self.seconds = seconds

    def at(self, round_index, time):
        return ChannelState(np.full(10, self.seconds), np.ones(10))


class Listed:
    """A channel of somebody's own that keeps a list."""

    def __init__(self, *seconds):
        self.seconds = list(seconds)

    def at(self, round_index, time):
        return ChannelState(np.full(10, self.seconds[round_index % len(self.seconds)]), np.ones(10))


def traces(*rates):
    return TraceChannel(
        np.ones(10), [RateTrace.of_rates([0.0, 1.0], [rate, rate]) for rate in rates], model_bits=1e6, seed=0
    )


CHANNELS = {
    "static": (StaticChannel(np.ones(10), np.ones(10)), StaticChannel(np.full(10, 50.0), np.ones(10))),
    "slots": (Slotted(1.0), Slotted(2.0)),
    "list": (Listed(1.0, 2.0), Listed(1.0, 3.0)),
    "traces": (traces(1.0, 2.0), traces(1.0, 3.0)),
    "within": (
        UnknownTimes(FadingChannel(np.ones(10), np.ones(10), correlation=0.5, snr_db=3.0, seed=1)),
        UnknownTimes(FadingChannel(np.ones(10), np.ones(10), correlation=0.5, snr_db=3.0, seed=2)),
    ),
}


def runs_in(folder):
    return len(list(folder.rglob(RECORDS)))


@pytest.mark.parametrize("kind", CHANNELS)
def test_another_channel_is_another_run(own_data, tmp_path, kind):
    for number, channel in enumerate(CHANNELS[kind], 1):
        problem = Problem(own_data, compute_time=1.0, upload_time=1.0, channel=channel)
        found = fedtempo.compare(problem, ["weighted"], out=tmp_path / "out", **SHORT)
        alone = fedtempo.compare(problem, ["weighted"], **SHORT)
        assert found.runs[0].records == alone.runs[0].records
        assert runs_in(tmp_path / "out") == number


def test_another_meaning_of_a_name_is_another_run(problem, tmp_path):
    for number, policy in enumerate(("weighted", "full", lambda fleet: fleet.data_share), 1):
        found = fedtempo.compare(problem, {"a": policy}, out=tmp_path / "out", **SHORT)
        alone = fedtempo.compare(problem, {"a": policy}, **SHORT)
        assert found.runs[0].records == alone.runs[0].records
        assert runs_in(tmp_path / "out") == number


def test_a_loop_over_functions_of_one_name_runs_each(own_data, own_times, tmp_path):
    nn = pytest.importorskip("torch").nn
    for number, layer in enumerate((nn.ReLU, nn.Sigmoid), 1):
        problem = Problem(own_data, lambda: nn.Sequential(nn.Linear(60, 4), layer(), nn.Linear(4, 10)), **own_times)  # noqa: B023
        found = fedtempo.compare(problem, {"mine": lambda fleet: fleet.data_share}, out=tmp_path / "out", **SHORT)
        assert found.runs[0].records == fedtempo.compare(problem, {"mine": "weighted"}, **SHORT).runs[0].records
        assert runs_in(tmp_path / "out") == number


def test_what_a_partial_holds_counts(own_data, own_times):
    torch = pytest.importorskip("torch")

    def network(width):
        return torch.nn.Sequential(torch.nn.Linear(60, width), torch.nn.Linear(width, 10))

    def description(width):
        return Problem(own_data, partial(network, width), **own_times).description

    assert description(4) == description(4) != description(5)


def test_a_problem_of_a_file_keeps_the_names_of_its_model(config, tmp_path):
    pytest.importorskip("torch")
    layers = "lambda: nn.Sequential(nn.Linear(60, {}), nn.Linear({}, 10))"
    found = []
    for width in (4, 5):
        (tmp_path / f"net{width}.py").write_text(
            f"from torch import nn\nmake = {layers.format(width, width)}\n"
            "def metric(outputs, labels):\n    return outputs.mean()\n"
        )
        own = f'kind = "net{width}:make"\nmetric = "net{width}:metric"'
        text = config.read_text()
        (tmp_path / f"own{width}.toml").write_text(text.replace('kind = "softmax"', own))
        problem = Problem.from_file(tmp_path / f"own{width}.toml")
        found.append(fedtempo.compare(problem, ["weighted"], out=tmp_path / "out", **SHORT).runs[0])
    assert runs_in(tmp_path / "out") == 2
    assert [run.metric for run in found] == ["metric", "metric"]


def test_a_policy_that_is_there_already_is_refused(problem):
    class Mine:
        def plan(self, context):
            return fedtempo.RoundPlan(members=[0], weights=[1.0])

        def observe(self, report):
            pass

    with pytest.raises(InputError, match="be made anew for each run, got a Mine that is there already; give its class"):
        fedtempo.compare(problem, {"mine": Mine()}, **SHORT)


def test_oracles_by_another_name_stand_outside_a_ranking(problem):
    policies = {"known": ("proposed-oracle", {"beta_over_alpha": 0.1}), "weighted": "weighted"}
    asked = {name: value for name, value in SHORT.items() if name != "seeds"}
    found = fedtempo.rank(problem, policies, step_sizes=[0.05], seeds=2, tuning_seeds=1, **asked)
    assert found.order == ["weighted", "known"]
    with pytest.raises(InputError, match="seeds must be others than those of tuning"):
        fedtempo.rank(problem, ["weighted"], step_sizes=[0.05], first_seed=1000, **asked)
