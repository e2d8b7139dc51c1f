"""Runs of the small experiment on Flower nodes in this process."""

from dataclasses import asdict

import numpy as np
from flwr.app import Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedtempo.experiments import runner
from fedtempo.experiments.config import for_policy, read_experiment
from fedtempo.flower.app.client_app import app as client_app
from fedtempo.flower.app.run_config import MODEL, pack
from fedtempo.flower.strategy.messages import CONFIG
from fedtempo.flower.strategy.tempo_strategy import TempoStrategy
from fedtempo.randomness import stream
from support.flower_grid import InProcessGrid


def grid_of(config, policy, seed=0, app=client_app, clients=None):
    experiment, _ = read_experiment(config)
    clients = clients or runner.load_data(experiment.data).num_clients
    run_config = {"config": str(config), "preset": "paper", "policy": policy, "seed": seed}
    return InProcessGrid(app, [{"partition-id": number} for number in range(clients)], run_config)


def train(
    config, policy, grid=None, *, rounds=3, seed=0, tells=("loss", "accuracy"), nonsense=False, whole=False, **settings
):
    """Return the records and the model of a run on Flower nodes, or the whole of Flower's result."""
    experiment, _ = read_experiment(config)
    training, options = for_policy(experiment, policy)
    data, trainer = runner.load_data(experiment.data), runner.load_trainer(experiment.model, experiment.data)
    fleet, _ = runner.make_fleet(experiment, data, 32.0 * trainer.num_parameters)
    records = []
    settings = {"options": options, "fleet": fleet, "seed": seed, "deadline": 5.0} | asdict(training) | settings
    stop = settings.pop("progress", lambda loop, record: None)
    evaluate_fn = settings.pop("evaluate_fn", None)

    def progress(loop, record):
        records.append(record)
        stop(loop, record)

    strategy = TempoStrategy(policy, progress=progress, **settings)

    def evaluate(server_round, arrays):
        found = trainer.evaluate(arrays[MODEL].numpy())
        told = {"loss": found.loss, "accuracy": found.accuracy}
        return MetricRecord({name: told[name] for name in tells} | ({"loss": np.nan} if nonsense else {}))

    result = strategy.start(
        grid=grid or grid_of(config, policy, seed),
        initial_arrays=pack(trainer.initial_model(stream(seed, "initial model"))),
        num_rounds=rounds,
        evaluate_fn=evaluate_fn or evaluate,
    )
    return records, result if whole else result.arrays[MODEL].numpy()


def nodes_of(grid):
    return {node: context.node_config["partition-id"] for node, context in grid.contexts.items()}


class StoppedError(Exception):
    """The server dies."""


def stop_after_three(loop, record):
    if loop.rounds_done == 3:
        raise StoppedError


def failing(partition, *, when=lambda config: True, reason="no more memory"):
    """Return the ready app, of which one node fails."""

    def answer(message, context):
        told = message.content.config_records[CONFIG]
        if context.node_config["partition-id"] == partition and when(told):
            return Message(Error(0, reason), reply_to=message)
        return client_app(message, context)

    app = ClientApp()
    app.train()(answer)
    app.evaluate()(answer)
    return app


def joined(grid, node, partition):
    """Let a node come that was not there."""
    like = grid.contexts[1000]
    grid.contexts[node] = Context(1, node, {"partition-id": partition}, RecordDict(), like.run_config)
    grid.online.add(node)


def trainer_of(config):
    experiment, _ = read_experiment(config)
    return runner.load_trainer(experiment.model, experiment.data)
