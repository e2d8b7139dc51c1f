"""The ServerApp of the ready app: an experiment of a configuration file on Flower nodes, with records as usual."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from threadpoolctl import threadpool_limits

from fedtempo.experiments.config import for_policy
from fedtempo.experiments.runner import BITS_OF_A_PARAMETER, load_data, load_trainer, make_fleet, make_header
from fedtempo.experiments.toml import merged
from fedtempo.flower.app.run_config import MODEL, from_run_config, pack, table_of
from fedtempo.flower.link.control import RemoteLink
from fedtempo.flower.strategy.tempo_strategy import TempoStrategy
from fedtempo.randomness import stream

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run it."""
    settings: Mapping[str, Any] = context.run_config
    experiment, policy, seed = from_run_config(settings), str(settings["policy"]), int(settings["seed"])
    training, options = for_policy(experiment, policy)
    data, trainer = load_data(experiment.data), load_trainer(experiment.model, experiment.data)
    fleet, _ = make_fleet(experiment, data, float(trainer.num_parameters * BITS_OF_A_PARAMETER))

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        with threadpool_limits(limits=1):
            found = trainer.evaluate(arrays[MODEL].numpy())
        return MetricRecord({"loss": found.loss, "accuracy": found.accuracy})

    ballast = int(settings.get("ballast", 0))
    strategy = TempoStrategy(
        policy,
        options=options,
        fleet=fleet,
        seed=seed,
        target_loss=experiment.stop.target_loss,
        target_accuracy=experiment.stop.target_accuracy,
        max_time=experiment.stop.max_time,
        uplink=_uplink(settings),
        header=make_header(experiment, _as_run(settings), policy, seed),
        **_given(settings),
        **asdict(training),
    )
    strategy.start(
        grid=grid,
        initial_arrays=pack(trainer.initial_model(stream(seed, "initial model")), ballast),
        num_rounds=int(settings["rounds"]),
        evaluate_fn=evaluate,
    )


def _as_run(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the experiment with the end that the run config gives it; who is drawn twice uploads once."""
    real = {"training": {"duplicates": "physical"}} if settings.get("clock") != "simulated" else {}
    return merged(table_of(settings), {"stop": {"max_rounds": int(settings["rounds"])}} | real)


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the strategy that the run config has; empty ones count as none."""
    given: dict[str, Any] = {name: settings[name] for name in ("clock", "deadline", "records") if settings.get(name)}
    if settings.get("nodes"):
        given["nodes"] = {int(node): client for node, client in json.loads(settings["nodes"]).items()}
    return given


def _uplink(settings: Mapping[str, Any]) -> RemoteLink | None:
    if not settings.get("link"):
        return None
    host, _, port = str(settings["link"]).rpartition(":")
    return RemoteLink((host, int(port)), Path(str(settings["link-token"])).read_text().strip())
