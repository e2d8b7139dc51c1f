"""What nodes, judge and evaluations know survives a stop: one dataclass for each."""

from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ArrayRecord

from fedtempo.flower.strategy import tempo_strategy
from fedtempo.flower.strategy.dispatch import Dispatch
from fedtempo.flower.strategy.evaluation import ClientsEvaluation, EvaluationState, GlobalLoss
from fedtempo.flower.strategy.grid_workers import GridWorkers
from fedtempo.flower.strategy.judge import Doubtful, JudgeState
from fedtempo.flower.strategy.layout import Layout
from fedtempo.flower.strategy.messenger import Messenger
from fedtempo.flower.strategy.nodes import FlowerClients, NodesState
from fedtempo.state import read_states, write_states
from support.flower_grid import InProcessGrid
from support.flower_runs import StoppedError, grid_of, nodes_of, train
from support.testbed_records import FLEET, training

EVALUATION = EvaluationState(silences={3: 2}, left_out={3: 4}, first_median=2.5)
JUDGE = JudgeState(accepted=[1.0], doubtful=Doubtful(2, 300.0), gradients=[0.5], statistics=[3.0])


def parts_of(kind, *, by_clients=True):
    """Return new nodes of one kind, and their parts."""
    layout = Layout.of(ArrayRecord([np.zeros(3, np.float32)]))
    grid = InProcessGrid(None, [{"partition-id": number} for number in range(4)])
    messenger = Messenger(grid, nodes_of(grid))
    evaluation = ClientsEvaluation(messenger, FLEET, {}, 1.0) if by_clients else None
    loss = GlobalLoss(layout, SimpleNamespace(), None, evaluation)
    nodes = kind(Dispatch(messenger, layout, {}), fleet=FLEET, training=training(), loss=loss, deadline=1.0)
    return nodes, nodes.parts if kind is FlowerClients else {"workers": nodes}


@pytest.mark.parametrize("by_clients", [True, False])
@pytest.mark.parametrize("kind", [FlowerClients, GridWorkers])
def test_a_new_process_knows_what_the_old_one_did(kind, by_clients):
    one, parts = parts_of(kind, by_clients=by_clients)
    one.dispatch.judge.state, one.loss.state = JUDGE, EVALUATION
    if kind is FlowerClients:
        one.state = NodesState(in_flight=[2], fruitless_rounds=3, failing=[0, 2])
    other, found = parts_of(kind, by_clients=by_clients)
    read_states(found, write_states(parts))
    assert (other.dispatch.judge.state, other.loss.state) == (JUDGE, EVALUATION)
    if kind is FlowerClients:
        assert other.state == NodesState(in_flight=[2], fruitless_rounds=3, failing=[0, 2])
        assert other.in_flight.tolist() == [2]


def test_who_evaluates_may_change_when_a_run_goes_on(config, tmp_path):
    """The clients' evaluations have a state of their own, which is there even where nobody asks them."""

    def stop(loop, record):
        if loop.state.rounds_done == 2:
            raise StoppedError

    grid = grid_of(config, "weighted")
    settings = {"records": tmp_path / "run", "nodes": nodes_of(grid)}
    with pytest.raises(StoppedError):
        train(config, "weighted", grid, rounds=4, progress=stop, **settings)
    assert train(config, "weighted", grid, rounds=4, evaluate="clients", **settings).summary.rounds == 4


def test_making_a_run_sends_nothing_and_evaluates_nothing(config, monkeypatch):
    """Work begins when the loop runs: whoever looks at it first sees no message."""
    grid, evaluated = grid_of(config, "weighted"), []

    class LookedAt(tempo_strategy.FlowerRun):
        def train(self, header, show):
            assert (len(grid.sent), evaluated, self.loop.state.initial_loss) == (0, [], None)
            raise StoppedError

    monkeypatch.setattr(tempo_strategy, "FlowerRun", LookedAt)
    with pytest.raises(StoppedError):
        train(config, "weighted", grid, nodes=nodes_of(grid), evaluate_fn=lambda *_: evaluated.append(1))
