"""Evaluation by the server and by clients: which loss counts, and whose."""

import math
import time
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedtempo import Fleet, InputError
from fedtempo.engine.divergence import DivergedError
from fedtempo.engine.records import RECORDS
from fedtempo.flower.app.client_app import app as client_app
from fedtempo.flower.app.model_arrays import pack
from fedtempo.flower.strategy import messenger
from fedtempo.flower.strategy.evaluation import ClientsEvaluation
from fedtempo.flower.strategy.metric_names import EVALUATION_LOSSES, evaluation_of, loss_of
from fedtempo.flower.strategy.tempo_strategy import TempoStrategy
from support.flower_runs import grid_of, nodes_of, problem_of, train


@pytest.mark.parametrize(("evaluated", "known"), [(("loss",), (True, False)), (("accuracy",), (False, False))])
def test_what_nobody_evaluates_is_left_open(config, tmp_path, evaluated, known):
    run = train(config, "uniform", evaluated=evaluated, records=tmp_path / "run")
    for record in (*run.rounds, run.summary):
        assert tuple(record[name] is not None for name in ("loss", "accuracy")) == known
    assert "NaN" not in (tmp_path / "run" / RECORDS).read_text()


def test_a_loss_that_is_no_number_ends_the_run(config):
    with pytest.raises(DivergedError, match="the loss is nan"):
        train(config, "uniform", nonsense=True)


@pytest.mark.parametrize(
    ("metrics", "loss"),
    [
        ({"val_loss": 9.0, "loss": 1.0}, 1.0),
        ({"packet-loss": 9.0, "Train_Loss": 2.0}, 2.0),
        ({"nll_loss": 3.0}, 3.0),
        ({"eval_loss": 9.0, "train_loss": 4.0}, 4.0),
    ],
)
def test_the_loss_is_the_metric_with_a_usual_name_if_there_is_one(metrics, loss):
    assert loss_of(metrics) == loss
    for other in ({"accuracy": 1.0}, {"packet_loss": 0.1}, {"loss_weight": 2.0}):
        assert np.isnan(loss_of(other))
    assert loss_of({"train_loss": 9.0, "eval_loss": 4.0}, EVALUATION_LOSSES) == 4.0


@pytest.mark.parametrize(("first", "rises"), [(-2.0, 1.0), (-2.0, -0.1), (0.0, 0.5), (1e-9, 1e-3), (2.0, 5.0)])
def test_losses_below_zero_or_next_to_it_do_not_diverge(config, first, rises):
    def evaluate(server_round, arrays):
        return MetricRecord({"loss": first + rises * server_round})

    run = train(config, "uniform", rounds=3, evaluate_fn=evaluate)
    assert run.summary.rounds == 3
    assert run.rounds[-1].loss == pytest.approx(first + 3 * rises)


@pytest.mark.parametrize(
    ("losses", "found"),
    [
        ([2.0, 2.0, 1e9], 2.0),
        ([2.0, 2.0, -1500.0], 2.0),
        ([0.0, 0.0, 0.6], 0.2),
        ([-3.0, -2.0, -1.0], -2.0),
        ([1e-4, 0.2], 0.1),
        ([2.0, 2.0, float("nan")], 2.0),
    ],
)
def test_one_loss_far_from_all_others_does_not_count(losses, found):
    fleet = Fleet(np.full(len(losses), 1 / len(losses)), *np.ones((3, len(losses))))
    answers = {
        client: messenger.Reply(client, "", RecordDict({"metrics": MetricRecord({"loss": loss, "f1": 1.0})}), 0.0)
        for client, loss in enumerate(losses)
    }
    asked = SimpleNamespace(
        online=lambda: np.ones(len(losses), dtype=bool), send=lambda *_: {}, collect=lambda *_: dict(answers)
    )
    evaluation = ClientsEvaluation(asked, fleet, {}, 1.0)
    assert evaluation(None, 1).loss == pytest.approx(found, abs=1e-3)
    assert evaluation.metrics["f1"] == 1.0


def test_who_does_not_evaluate_is_left_out_for_a_while(config):
    grid = grid_of(config, "uniform")
    nodes = nodes_of(grid)
    grid.silent = {1063}
    app = ClientApp()
    app.train()(client_app)
    app.evaluate()(client_app)
    began = time.monotonic()
    rounds = train(
        config, "uniform", grid, rounds=6, nodes=nodes, deadline=1.5, evaluate="clients", seed=2, cohort_size=1
    ).rounds
    waited = time.monotonic() - began - sum(record.round_time for record in rounds)
    assert waited < 3 * 1.5 + 2, "it is asked at the start, then after two more evaluations"
    assert all(math.isfinite(record.loss) for record in rounds)


def test_one_absurd_evaluation_neither_ends_a_run_nor_moves_its_loss(config, caplog):
    """Of those who evaluate, client 2 reports an impossible loss from the second time on."""
    asked = []

    def evaluate(message, context):
        reply = client_app(message, context)
        if context.node_config["partition-id"] == 2:
            asked.append(1)
            if len(asked) > 1:
                reply.content["metrics"] = MetricRecord({"loss": 1e30})
        return reply

    app = ClientApp()
    app.train()(client_app)
    app.evaluate()(evaluate)
    settings = {"rounds": 2, "evaluate": "clients"}
    rounds = train(config, "full", grid_of(config, "full", app=app), **settings).rounds
    expected = train(config, "full", **settings).rounds
    for record, other in zip(rounds, expected, strict=True):
        assert record.loss == pytest.approx(other.loss, rel=0.3)
    assert "client 2 reported a loss of 1e+30" in caplog.text


@pytest.mark.parametrize(
    "settings", [{"policy": "proposed", "options": {"losses": [0.5]}}, {"policy": "uniform", "target_loss": 0.5}]
)
def test_nobody_waits_for_a_loss_that_nobody_evaluates(config, settings):
    grid, model = grid_of(config, "uniform"), problem_of(config).initial_model(0)
    strategy = TempoStrategy(cohort_size=2, nodes=nodes_of(grid), **settings)
    with pytest.raises(InputError, match="give start evaluate_fn"):
        strategy.start(grid, pack(model), 3)


@pytest.mark.parametrize(
    ("metrics", "loss"),
    [({"packet_loss": 9, "val_acc": 0.5}, None), ({"crossentropyloss": 2}, 2), ({"eval_loss": 3, "a_loss": 1}, 3)],
)
def test_an_evaluation_has_a_loss_or_is_none(metrics, loss):
    found = evaluation_of(metrics)
    assert (None if found is None else found.loss) == loss
