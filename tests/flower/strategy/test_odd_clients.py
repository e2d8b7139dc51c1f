"""Clients of real federations: away, slow, silent, wrong about numbers, or sending what no model is."""

import json
import math
import threading
import time

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from test_flower_strategy import StoppedError, config, grid_of, nodes_of, stop_after_three, train

from fedtempo import InputError
from fedtempo.engine.records import RECORDS
from fedtempo.experiments import runner
from fedtempo.experiments.config import read_experiment
from fedtempo.flower.strategy.layout import Layout
from fedtempo.flower.strategy.client_mod import Meter, _measuring, note_gradient, tempo_client
from fedtempo.flower.app.client_app import app as client_app
from fedtempo.flower.strategy.evaluation import evaluation_of
from fedtempo.flower.strategy.messages import ARRAYS, ASK, CONFIG, MEASURED
from fedtempo.flower.strategy.roster import ROSTER_FILE
from fedtempo.flower.app.run_config import MODEL, pack
from fedtempo.flower.strategy.tempo_strategy import TempoStrategy, _name
from fedtempo.randomness import stream

__all__ = ["config"]


def spoiled(spoil, whom=lambda number, context: context.node_config["partition-id"] == 2):
    """Return the ready app, of which some train replies are spoiled: by their number, or by whose they are."""
    replies = []

    def train_and_spoil(message, context):
        reply = client_app(message, context)
        if message.content.config_records[CONFIG].get(ASK) is None:
            replies.append(context.node_id)
            if whom(len(replies), context):
                spoil(reply)
        return reply

    app = ClientApp()
    app.train()(train_and_spoil)
    app.evaluate()(client_app)
    return app


def send(data, stype="numpy.ndarray"):
    def spoil(reply):
        model = reply.content[ARRAYS][MODEL]
        reply.content[ARRAYS] = ArrayRecord({MODEL: Array(model.dtype, model.shape, stype, data or model.data)})

    return spoil


@pytest.mark.parametrize(
    "spoil", [send(None, "torch"), send(b" "), send(b"PK\x03\x04 no archive"), send(b"\x93NUMPY")],
    ids=["other kind", "empty", "archive", "cut off"],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(config, spoil):
    grid = grid_of(config, "full", app=spoiled(spoil))
    *rounds, summary = train(config, "full", grid, rounds=2, nodes=nodes_of(grid))[0]
    assert summary["rounds"] == 2
    assert [record["failed"] for record in rounds] == [[2], [2]]
    assert rounds[0]["note"]["failures"]["2"].startswith("refused: ")


@pytest.mark.parametrize("policy", ["proposed", "tempo", "oort"])
def test_numbers_that_cannot_be_count_as_not_told(config, policy, tmp_path):
    def spoil(reply):
        reply.content[MEASURED] = MetricRecord(
            {
                "compute-seconds": math.inf,
                "largest-gradient-norm": math.nan,
                "mean-gradient-norm": -1.0,
                "loss": math.inf,
            }
        )

    grid = grid_of(config, policy, app=spoiled(spoil, lambda number, context: number % 2 == 0))
    *_, summary = train(config, policy, grid, rounds=6, nodes=nodes_of(grid), records=tmp_path)[0]
    assert summary["rounds"] == 6
    for line in (tmp_path / RECORDS).read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} in the records"))


def absurd(reply):
    reply.content[ARRAYS] = pack(reply.content[ARRAYS][MODEL].numpy() + np.float32(1e6))


@pytest.mark.parametrize("policy", ["tempo", "fedbuff", "uniform"])
def test_the_very_first_update_may_be_absurd(config, policy):
    grid = grid_of(config, policy, app=spoiled(absurd, lambda number, context: number == 1))
    records, model = train(config, policy, grid, rounds=5, nodes=nodes_of(grid))
    assert records[0]["failed"]
    assert np.abs(model).max() < 10


def test_updates_of_nothing_do_not_make_the_others_absurd(config):
    def nothing(reply):
        reply.content[ARRAYS] = pack(0 * reply.content[ARRAYS][MODEL].numpy())

    grid = grid_of(config, "full", app=spoiled(nothing, lambda number, context: number <= 7))
    records, model = train(config, "full", grid, rounds=1, nodes=nodes_of(grid))
    assert records[0]["failed"] == []
    assert np.abs(model).max() > 0


def test_who_is_silent_when_asked_costs_the_chosen_nothing(config):
    """Optimal client sampling asks everyone first, and fetches then; both must end by the deadline."""
    grid = grid_of(config, "ocs")
    grid.silent, grid.delay = {1000}, 0.4
    *rounds, summary = train(config, "ocs", grid, rounds=3, nodes=nodes_of(grid), deadline=4.0)[0]
    assert summary["rounds"] == 3
    assert all(record["failed"] == [] for record in rounds)
    assert all(record["round_time"] < 6 for record in rounds)


def test_without_a_link_uploads_are_what_computing_leaves(config):
    grid = grid_of(config, "full")
    grid.delay = 0.5
    first, *_ = train(config, "full", grid, rounds=1, nodes=nodes_of(grid), deadline=60.0, link="shared")[0]
    assert all(0.4 < seconds < 30 for seconds in first["upload_time"])


def test_a_run_starts_and_goes_on_while_a_device_is_away(config, tmp_path, monkeypatch):
    monkeypatch.setattr("fedtempo.engine.run.CHECKPOINT_SECONDS", 0.0)

    grid = grid_of(config, "uniform")
    grid.online.discard(1000)
    with pytest.raises(StoppedError):
        train(config, "uniform", grid, rounds=6, records=tmp_path, deadline=1.0, progress=stop_after_three)
    assert [row["client"] for row in json.loads((tmp_path / ROSTER_FILE).read_text())] == [*range(1, 10)]
    asked = len(grid.sent)
    grid.online ^= {1000, 1007}  # the first is there now, the second away
    rounds, _ = train(config, "uniform", grid, rounds=12, records=tmp_path, deadline=1.0)
    drawn = {client for record in rounds[:-1] for client in record["members"]}
    assert 0 in drawn
    assert 1 not in drawn
    describing = [one for one in grid.sent[asked:] if ASK in one.content.config_records[CONFIG]]
    assert [one.metadata.dst_node_id for one in describing] == [1000], "those who are known are not asked again"


def joined(grid, node, partition):
    """Let a node come that was not there."""
    like = grid.contexts[1000]
    grid.contexts[node] = Context(1, node, {"partition-id": partition}, RecordDict(), like.run_config)
    grid.online.add(node)


def test_who_comes_later_is_drawn(config, tmp_path):
    """Client 2 is away at the start; then its device comes, with an id that nobody knew."""
    grid = grid_of(config, "full")
    grid.online -= {1014}

    def come(loop, record):
        if record.get("round") == 1:
            joined(grid, 5000, 2)

    settings = {"rounds": 6, "deadline": 2.0, "records": tmp_path / "run", "progress": come}
    *rounds, _ = train(config, "full", grid, **settings)[0]
    assert not any(2 in record["members"] for record in rounds[:2])
    assert 2 in rounds[-1]["members"]
    assert {row["client"]: row["node"] for row in json.loads((tmp_path / "run" / ROSTER_FILE).read_text())}[2] == 5000


def test_a_restarted_device_with_a_new_id_takes_its_place_once_the_old_one_is_gone(config, tmp_path, caplog):
    grid = grid_of(config, "full")

    def change(loop, record):
        if record.get("round") == 0:
            joined(grid, 5000, 2)
            joined(grid, 6000, 99)  # nobody's place
        if record.get("round") == 3:
            grid.online -= {1014}

    *rounds, _ = train(config, "full", grid, rounds=8, deadline=2.0, progress=change)[0]
    assert not any(record["failed"] for record in rounds)
    assert all(record["members"] == rounds[0]["members"] for record in (*rounds[:4], rounds[-1]))
    asked = [message.metadata.dst_node_id for message in grid.sent]
    assert 2 <= asked.count(5000) <= 1 + 4, "who it is, and rounds after the old one is gone"
    assert asked.count(1014) == 1 + 4
    assert asked.count(6000) == 1
    assert "node 5000 takes the place of client 2" in caplog.text


def test_a_stranger_that_cannot_say_who_it_is_does_no_harm(config, caplog):
    grid = grid_of(config, "uniform")
    answer = grid.answer
    grid.answer = lambda message, context: (
        answer(message, context)
        if context.node_id < 5000
        else Message(Error(0, "no such mod"), reply_to=message)
    )  # fmt: skip

    def come(loop, record):
        if record.get("round") == 0:
            joined(grid, 5000, 1)

    *rounds, summary = train(config, "uniform", grid, rounds=4, progress=come)[0]
    assert summary["rounds"] == 4
    assert not any(record["failed"] for record in rounds)
    assert "it is not drawn: node 5000 must say who it is, got no such mod" in caplog.text


def test_a_node_that_does_not_say_who_it_is_is_left_out(config, monkeypatch):
    monkeypatch.setattr("fedtempo.flower.strategy.messenger.DESCRIBE_SECONDS", 0.5)
    grid = grid_of(config, "uniform")
    grid.silent = {1007}
    *rounds, summary = train(config, "uniform", grid, rounds=10)[0]
    assert summary["rounds"] == 10
    assert not any(1 in record["members"] for record in rounds)
    grid.silent = set(grid.online)
    with pytest.raises(InputError, match="at least 2 nodes must say who they are, got 0"):
        train(config, "uniform", grid)


def test_clients_that_are_away_need_numbers(config):
    app = ClientApp(mods=[tempo_client()])
    app.train()(lambda message, context: message)
    grid = grid_of(config, "uniform", app=app)
    grid.online.discard(1000)
    for context in grid.contexts.values():
        context.node_config["partition-id"] += 5
    with pytest.raises(InputError, match="9 nodes for 10 clients"):
        train(config, "uniform", grid, deadline=0.5)


def sampler(fleet):
    return fleet.data_share


class Sampler:
    def __call__(self, fleet):
        return fleet.data_share


def test_policies_have_the_same_name_in_every_process():
    assert _name("tempo") == "tempo"
    assert _name(sampler) == "test_flower_odd_clients.sampler"
    assert _name(Sampler()) == _name(Sampler) == "test_flower_odd_clients.Sampler"


def test_who_does_not_evaluate_is_left_out_for_a_while(config):
    grid = grid_of(config, "uniform")
    nodes = nodes_of(grid)
    grid.silent = {1063}
    app = ClientApp()
    app.train()(client_app)
    app.evaluate()(client_app)
    began = time.monotonic()
    *rounds, _ = train(
        config, "uniform", grid, rounds=6, nodes=nodes, deadline=1.5, evaluate="clients", seed=2, cohort_size=1
    )[0]
    waited = time.monotonic() - began - sum(record["round_time"] for record in rounds)
    assert waited < 3 * 1.5 + 2, "it is asked at the start, then after two more evaluations"
    assert all(math.isfinite(record["loss"]) for record in rounds)


def test_one_absurd_evaluation_neither_ends_a_run_nor_moves_its_loss(config, caplog):
    """Of those who evaluate, client 2 tells an impossible loss from the second time on."""
    told = []

    def evaluate(message, context):
        reply = client_app(message, context)
        if context.node_config["partition-id"] == 2:
            told.append(1)
            if len(told) > 1:
                reply.content["metrics"] = MetricRecord({"loss": 1e30})
        return reply

    app = ClientApp()
    app.train()(client_app)
    app.evaluate()(evaluate)
    settings = {"rounds": 2, "evaluate": "clients"}
    *rounds, _ = train(config, "full", grid_of(config, "full", app=app), **settings)[0]
    *expected, _ = train(config, "full", **settings)[0]
    for record, other in zip(rounds, expected, strict=True):
        assert record["loss"] == pytest.approx(other["loss"], rel=0.3)
    assert "client 2 told a loss of 1e+30" in caplog.text


def test_statistics_of_batch_normalisation_are_averaged():
    first = {"weight": np.ones(2, np.float32), "bn.running_var": np.ones(2, np.float32), "bn.num": np.array(3)}
    layout = Layout(ArrayRecord({name: Array(value) for name, value in first.items()}))
    assert layout.size == 2
    trained = [ArrayRecord({n: Array(np.asarray(v * f, v.dtype)) for n, v in first.items()}) for f in (0.1, 0.3)]
    layout.blend(np.array([3.0, 1.0]), [layout.buffers_of(one) for one in trained])
    packed = layout.pack(np.zeros(2, np.float32))
    np.testing.assert_allclose(packed["bn.running_var"].numpy(), [0.15, 0.15], rtol=1e-6)
    layout.blend(np.array([0.5]), [layout.buffers_of(trained[0])])
    np.testing.assert_allclose(layout.buffers["bn.running_var"], [0.125, 0.125], rtol=1e-6)
    assert packed["bn.num"].numpy() == 3
    layout.start_again()
    np.testing.assert_array_equal(layout.buffers["bn.running_var"], [1.0, 1.0])


def test_gradients_may_be_told_by_layers():
    with _measuring() as meter:
        note_gradient([np.array([3.0, 0.0]), np.array([[4.0]])])
        note_gradient(np.array([3.0, 4.0]))
        note_gradient(5.0)
    assert (meter.count, meter.total, meter.largest) == (3, 15.0, 5.0)
    assert isinstance(meter, Meter)


def test_gradients_may_be_sparse():
    torch = pytest.importorskip("torch", reason="sparse gradients are PyTorch's; pip install '.[torch]'")
    table = torch.nn.Embedding(5, 2, sparse=True)
    optimiser = torch.optim.SGD(table.parameters(), lr=0.1)
    with _measuring() as meter:
        table(torch.tensor([1, 1, 3])).sum().backward()
        optimiser.step()
    assert meter.largest == pytest.approx(math.sqrt(2 * 2**2 + 2 * 1**2))


def test_nothing_is_asked_for_once_a_run_has_ended(config):
    grid = grid_of(config, "fedbuff")
    train(config, "fedbuff", grid, rounds=2, nodes=nodes_of(grid), deadline=60.0)
    end = time.monotonic() + 10
    while waiting := [one for one in threading.enumerate() if "_wait_for" in one.name]:
        assert time.monotonic() < end, waiting
        time.sleep(0.1)


def test_the_mod_does_nothing_under_other_strategies(config):
    grid = grid_of(config, "uniform")
    node = next(iter(grid.contexts))
    app = ClientApp(mods=[tempo_client()])
    app.train()(lambda message, context: Message(RecordDict({"metrics": MetricRecord({"a": 1.0})}), reply_to=message))
    asked = Message(RecordDict({CONFIG: ConfigRecord({"lr": 0.1})}), dst_node_id=node, message_type="train")
    grid.app = app
    (reply,) = grid.send_and_receive([asked])
    assert list(reply.content.metric_records) == ["metrics"]


def test_step_size_and_steps_of_an_app_count_where_the_strategy_has_none(config, caplog):
    grid, model = grid_of(config, "uniform"), trainer_of(config).initial_model(stream(0, "initial model"))
    app_config = ConfigRecord({"lr": 0.5, "local-steps": 7})
    for given, sent in (({}, (0.5, 7)), ({"step_size": 0.2}, (0.2, 7))):
        strategy = TempoStrategy("uniform", cohort_size=2, nodes=nodes_of(grid), **given)
        strategy.start(grid, pack(model), 1, train_config=app_config)
        last = grid.sent[-1].content.config_records[CONFIG]
        assert (last["lr"], last["local-steps"]) == sent
    assert "train_config has lr 0.5, but step_size 0.2 counts" in caplog.text


@pytest.mark.parametrize(
    ("policy", "settings", "message"),
    [
        ("tempo", {"cohort_size": 2, "fraction_train": 0.5}, "settings of TempoStrategy must be known"),
        ("tempo", {}, "cohort_size must be given"),
        ("temp", {"cohort_size": 2}, "did you mean 'tempo'"),
        ("tempo", {"cohort_size": 2, "fleet": "fleet.csv"}, "read_fleet"),
        ("tempo", {"cohort_size": 2, "seed": -1}, "seed must be a whole number of at least 0, got -1"),
    ],
)
def test_wrong_settings_are_refused_before_anything_starts(policy, settings, message):
    with pytest.raises(InputError, match=message):
        TempoStrategy(policy, **settings)


@pytest.mark.parametrize(
    "settings", [{"policy": "proposed", "options": {"losses": [0.5]}}, {"policy": "uniform", "target_loss": 0.5}]
)
def test_nobody_waits_for_a_loss_that_nobody_tells(config, settings):
    grid, model = grid_of(config, "uniform"), trainer_of(config).initial_model(stream(0, "initial model"))
    strategy = TempoStrategy(cohort_size=2, nodes=nodes_of(grid), **settings)
    with pytest.raises(InputError, match="give start evaluate_fn"):
        strategy.start(grid, pack(model), 3)


def trainer_of(config):
    experiment, _ = read_experiment(config)
    return runner.load_trainer(experiment.model, experiment.data)


@pytest.mark.parametrize(
    ("metrics", "loss"),
    [({"packet_loss": 9, "val_acc": 0.5}, None), ({"crossentropyloss": 2}, 2), ({"eval_loss": 3, "a_loss": 1}, 3)],
)
def test_an_evaluation_has_a_loss_or_is_none(metrics, loss):
    found = evaluation_of(metrics)
    assert (None if found is None else found.loss) == loss
