"""Runs of the small experiment on Flower nodes in this process."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from flwr.app import Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Result

from fedtempo.engine.records import RECORDS, RoundRecord, Summary, read_records
from fedtempo.experiments.running.runner import simulation_of
from fedtempo.experiments.settings.config import for_policy
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.flower.app.assembly import assemble
from fedtempo.flower.app.client_app import app as client_app
from fedtempo.flower.app.model_arrays import MODEL, pack
from fedtempo.flower.app.model_arrays import evaluate as evaluate_arrays
from fedtempo.flower.strategy.messages import CONFIG
from fedtempo.flower.strategy.tempo_strategy import TempoStrategy
from support.flower_grid import InProcessGrid
from support.runs import SMALL


@dataclass
class TrainedOnNodes:
    """What a run came to."""

    rounds: list[RoundRecord]  # of this start
    summary: Summary | None  # None: this start trained nothing, and kept no records
    result: Result

    @property
    def model(self):
        return self.result.arrays[MODEL].numpy()


def problem_of(config):
    return assemble(load_experiment(config))


def simulated(config, policy, *, rounds=3, seed=0):
    """Return the records and the model of the same run in the simulator."""
    simulation = simulation_like(config, policy, rounds=rounds, seed=seed)
    return list(simulation.rounds()), simulation.model


def simulation_like(config, policy, *, rounds=3, seed=0):
    """Return the same run in the simulator, at its start."""
    experiment = load_experiment(config)
    stop = replace(experiment.stop, target_loss=None, target_accuracy=None, max_rounds=rounds)
    return simulation_of(replace(experiment, stop=stop), policy, seed)


def grid_of(config, policy, seed=0, app=client_app, clients=None):
    clients = clients or len(problem_of(config).fleet)
    run_config = {"config": str(config), "preset": "paper", "policy": policy, "seed": seed}
    return InProcessGrid(app, [{"partition-id": number} for number in range(clients)], run_config)


def train(config, policy, grid=None, *, rounds=3, seed=0, evaluated=("loss", "accuracy"), nonsense=False, **settings):
    """Run on Flower nodes; ``evaluated``: which metrics the server's function returns, or ``nonsense``."""
    training, options = for_policy(load_experiment(config), policy)
    problem, seen = problem_of(config), []
    settings = {"options": options, "fleet": problem.fleet, "deadline": 5.0} | asdict(training) | settings
    then, evaluate_fn = settings.pop("progress", lambda loop, record: None), settings.pop("evaluate_fn", None)

    def progress(loop, record):
        seen.append((loop, record))
        then(loop, record)

    def evaluate(server_round, arrays):
        found = asdict(evaluate_arrays(problem.trainer, arrays))
        return MetricRecord({name: found[name] for name in evaluated} | ({"loss": np.nan} if nonsense else {}))

    result = TempoStrategy(policy, progress=progress, seed=seed, **settings).start(
        grid=grid or grid_of(config, policy, seed),
        initial_arrays=pack(problem.initial_model(seed), buffers=problem.initial_buffers(seed)),
        num_rounds=rounds,
        evaluate_fn=evaluate_fn or evaluate,
    )
    folder = settings.get("records")
    summary = seen[-1][0].summary() if seen else folder and read_records(Path(folder) / RECORDS).summary
    return TrainedOnNodes([record for _, record in seen], summary, result)


def with_training(config, lines, text=SMALL):
    """Write settings of training into the small experiment's file, or another text's."""
    pilots = "[policy.statistical]\nlosses = [2.2, 2.1]\nmax_rounds = 4\n"
    config.write_text(text.replace("[stop]", lines + "\n[stop]") + pilots)
    return config


def assert_same_to(found, expected, *, rtol=1e-6):
    """Compare records as numbers; notes of engines differ."""
    for record, other in zip(found, expected, strict=True):
        for name in other.keys():  # noqa: SIM118
            if isinstance(other[name], float) or (
                isinstance(other[name], list) and other[name][:1] != other["members"][:1]
            ):
                np.testing.assert_allclose(
                    np.array(record[name], dtype=float), np.array(other[name], dtype=float), rtol=rtol, err_msg=name
                )
            elif name != "note":
                assert record[name] == other[name], name


def nodes_of(grid):
    return {node: context.node_config["partition-id"] for node, context in grid.contexts.items()}


class StoppedError(Exception):
    """The server dies."""


def stop_after(rounds):
    """Return what stops a run after so many rounds."""

    def stop(loop, record):
        if loop.state.rounds_done == rounds:
            raise StoppedError

    return stop


stop_after_three = stop_after(3)


def failing(partition, *, when=lambda config: True, reason="no more memory"):
    """Return the ready app, of which one node fails."""

    def answer(message, context):
        config = message.content.config_records[CONFIG]
        if context.node_config["partition-id"] == partition and when(config):
            return Message(Error(0, reason), reply_to=message)
        return client_app(message, context)

    app = ClientApp()
    app.train()(answer)
    app.evaluate()(answer)
    return app


def joined(grid, node, partition):
    """Let a node connect that was not there."""
    like = grid.contexts[1000]
    grid.contexts[node] = Context(1, node, {"partition-id": partition}, RecordDict(), like.run_config)
    grid.online.add(node)
