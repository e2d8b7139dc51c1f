"""The mod on clients: gradients that it sees, and other strategies."""

import math

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedtempo.flower.strategy.client_mod import tempo_client
from fedtempo.flower.strategy.local_training import LocalTraining, measuring, note_gradient
from fedtempo.flower.strategy.messages import CONFIG
from support.flower_runs import grid_of


def test_gradients_may_be_reported_by_layers():
    with measuring(LocalTraining()) as norms:
        note_gradient([np.array([3.0, 0.0]), np.array([[4.0]])])
        note_gradient(np.array([3.0, 4.0]))
        note_gradient(5.0)
    assert (norms.count, norms.total, norms.largest) == (3, 15.0, 5.0)
    assert isinstance(norms, LocalTraining)


def test_gradients_may_be_sparse():
    torch = pytest.importorskip("torch", reason="sparse gradients are PyTorch's; pip install '.[torch]'")
    table = torch.nn.Embedding(5, 2, sparse=True)
    optimiser = torch.optim.SGD(table.parameters(), lr=0.1)
    with measuring(LocalTraining()) as norms:
        table(torch.tensor([1, 1, 3])).sum().backward()
        optimiser.step()
    assert norms.largest == pytest.approx(math.sqrt(2 * 2**2 + 2 * 1**2))


def test_the_mod_does_nothing_under_other_strategies(config):
    grid = grid_of(config, "uniform")
    node = next(iter(grid.contexts))
    app = ClientApp(mods=[tempo_client()])
    app.train()(lambda message, context: Message(RecordDict({"metrics": MetricRecord({"a": 1.0})}), reply_to=message))
    asked = Message(RecordDict({CONFIG: ConfigRecord({"lr": 0.1})}), dst_node_id=node, message_type="train")
    grid.app = app
    (reply,) = grid.send_and_receive([asked])
    assert list(reply.content.metric_records) == ["metrics"]
