"""The server's direction in the steps of an app's own training, with PyTorch and without."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedtempo import InputError
from fedtempo.flower import TempoStrategy, follow_direction, server_direction, tempo_client
from fedtempo.flower.strategy.local_training import LocalTraining, measuring
from fedtempo.flower.strategy.messages import (
    ARRAYS,
    CONFIG,
    DIRECTION,
    FOLLOWED_DIRECTION,
    LOCAL_DIRECTION,
    ROUND_INDEX,
)
from support.flower_grid import InProcessGrid
from support.flower_runs import nodes_of

SHARE, STEP = 0.25, 0.1


def direction_of(module):
    """Return a direction that moves each parameter by one."""
    return ArrayRecord({name: Array(np.ones(tuple(one.shape), np.float32)) for name, one in module.named_parameters()})


def stepped(module, training=None, *, follow=True, times=1):
    """Take steps of which the gradient of each parameter is 3; return the parameters."""
    torch = pytest.importorskip("torch", reason="modules are PyTorch's; pip install '.[torch]'")
    optimiser = torch.optim.SGD(module.parameters(), lr=STEP)
    with measuring(training or LocalTraining()):
        for _ in range(times):
            optimiser.zero_grad()
            (3 * sum(one.sum() for one in module.parameters())).backward()
            if follow:
                follow_direction(module)
            optimiser.step()
    return [one.detach().numpy().copy() for one in module.parameters()]


@pytest.fixture
def module():
    torch = pytest.importorskip("torch", reason="modules are PyTorch's; pip install '.[torch]'")
    made = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    for one in made.parameters():
        torch.nn.init.zeros_(one)
    return made


def test_steps_follow_a_share_of_the_direction_and_norms_are_those_of_gradients(module):
    training = LocalTraining(SHARE, direction_of(module))
    for one in stepped(module, training, times=2):
        np.testing.assert_allclose(one, 2 * STEP * (SHARE * 1 - (1 - SHARE) * 3), rtol=1e-6)
    numbers = sum(one.numel() for one in module.parameters())
    assert training.count == 2, "each step counts once"
    assert training.largest == pytest.approx(3 * np.sqrt(numbers), rel=1e-6)
    assert training.metrics()[FOLLOWED_DIRECTION] == SHARE


def test_without_a_direction_steps_follow_gradients(module):
    for training in (LocalTraining(), LocalTraining(SHARE)):  # no lever; or the first round, with none yet
        start = [one.detach().numpy().copy() for one in module.parameters()]
        for before, after in zip(start, stepped(module, training), strict=True):
            np.testing.assert_allclose(after - before, -STEP * 3, rtol=1e-5)
        training.check_followed()
    assert server_direction() is None, "nothing is measured now"


def test_a_training_that_does_not_follow_is_refused_by_name(module):
    training = LocalTraining(SHARE, direction_of(module))
    stepped(module, training, follow=False)
    assert FOLLOWED_DIRECTION not in training.metrics()
    with pytest.raises(RuntimeError, match=r"local_direction must be followed .* call follow_direction\(model\)"):
        training.check_followed()


def test_a_module_of_other_parameters_is_refused_by_name(module):
    training = LocalTraining(SHARE, ArrayRecord({"other": Array(np.ones(3, np.float32))}))
    with pytest.raises(InputError, match=r"the module must have the parameters .*0\.weight.* server_direction\(\)"):
        stepped(module, training)


def test_gradients_may_be_sparse():
    torch = pytest.importorskip("torch", reason="sparse gradients are PyTorch's; pip install '.[torch]'")
    table = torch.nn.Embedding(4, 1, sparse=True)
    training = LocalTraining(SHARE, direction_of(table))
    before = table.weight.detach().numpy().copy()
    with measuring(training):
        table(torch.tensor([1, 1])).sum().backward()
        follow_direction(table)
        torch.optim.SGD(table.parameters(), lr=STEP).step()
    moved = table.weight.detach().numpy() - before
    expected = STEP * (SHARE - (1 - SHARE) * np.array([[0.0], [2.0], [0.0], [0.0]]))
    np.testing.assert_allclose(moved, expected, rtol=1e-5)


def own_app(*, follows, mods):
    """Return an app with arithmetic of its own: each step adds one, or follows what it is sent."""

    def train(message: Message, context: Context) -> Message:
        config, model = message.content[CONFIG], message.content[ARRAYS]["w"].numpy().copy()
        direction = server_direction() if follows else None
        for _ in range(config["local-steps"]):
            step = np.ones_like(model)
            if direction is not None:
                step = (1 - direction.share) * step + direction.share * direction.arrays["w"]
            model += config["lr"] * step
        reply = {ARRAYS: ArrayRecord({"w": Array(model)}), "metrics": MetricRecord({"train-loss": 1.0})}
        return Message(RecordDict(reply), reply_to=message)

    app = ClientApp(mods=mods)
    app.train()(train)
    return app


def started(app, rounds=3, **settings):
    """Run some rounds of two steps on four nodes, all of which train; return the messages and the model."""
    grid = InProcessGrid(app, [{"partition-id": number} for number in range(4)])
    strategy = TempoStrategy("full", cohort_size=4, step_size=STEP, local_steps=2, nodes=nodes_of(grid), **settings)
    result = strategy.start(grid, ArrayRecord({"w": Array(np.zeros(5, np.float32))}), rounds)
    return grid.sent, result.arrays["w"].numpy()


def test_an_app_of_ones_own_follows_by_itself():
    """Its gradient is -1 at each step, so the direction for one step is 1, and following it changes nothing."""
    sent, model = started(own_app(follows=True, mods=[tempo_client()]), local_direction=0.5)
    np.testing.assert_allclose(model, 3 * 2 * STEP, rtol=1e-5)
    assert {message.content[CONFIG][LOCAL_DIRECTION] for message in sent} == {0.5}
    np.testing.assert_allclose(sent[-1].content[DIRECTION]["w"].numpy(), 1.0, rtol=1e-5)


def test_an_app_that_does_not_follow_ends_the_run_and_says_what_to_do():
    app = own_app(follows=False, mods=[tempo_client()])
    with pytest.raises(RuntimeError, match=r"local_direction must be followed .* call follow_direction\(model\)"):
        started(app, rounds=20, local_direction=0.5)


@pytest.mark.parametrize("lever", [{"server_average": 0.5}, {"server_optimiser": "fedexp"}, {"upload_bits": 8}])
def test_levers_of_the_server_need_nothing_of_an_app(lever):
    _, model = started(own_app(follows=False, mods=[tempo_client()]), **lever)
    assert np.isfinite(model).all()
    assert 0 < model[0] <= 3 * 2 * STEP * 1.0001


def test_a_mean_of_models_is_what_comes_back():
    """After three steps of equal length, the mean of the models stands at two of them."""
    _, model = started(own_app(follows=False, mods=[tempo_client()]), server_average=0.9)
    np.testing.assert_allclose(model, 2 * 2 * STEP, rtol=1e-5)


def test_messages_of_other_strategies_have_no_direction():
    """The mod does nothing there, and neither does an app that asks."""
    app, seen = ClientApp(mods=[tempo_client()]), []

    def train(message: Message, context: Context) -> Message:
        seen.append(server_direction())
        return Message(RecordDict({"metrics": MetricRecord({"a": 1.0})}), reply_to=message)

    app.train()(train)
    grid = InProcessGrid(app, [{"partition-id": 0}])
    asked = Message(RecordDict({CONFIG: ConfigRecord({"lr": 0.1})}), dst_node_id=1000, message_type="train")
    grid.send_and_receive([asked])
    assert seen == [None]
    assert ROUND_INDEX not in asked.content[CONFIG]
