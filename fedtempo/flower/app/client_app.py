"""The ClientApp of the ready app: a node trains on its part of an experiment's data, as the simulator would."""

import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from threadpoolctl import threadpool_limits

from fedtempo.engine.clients import Start
from fedtempo.engine.settings import TrainingSettings
from fedtempo.experiments.config import for_policy
from fedtempo.experiments.runner import BITS_OF_A_PARAMETER, load_data, load_trainer, make_fleet
from fedtempo.fleet import Fleet
from fedtempo.flower.app.emulated import meet
from fedtempo.flower.app.run_config import MODEL, from_run_config, pack
from fedtempo.flower.strategy.client_mod import tempo_client
from fedtempo.flower.strategy.messages import (
    ARRAYS,
    CLIENT,
    COHORT,
    COHORT_SIZE,
    CONFIG,
    MEASURED,
    ROUND,
    ROUND_INDEX,
    STEP_SIZE,
    STEPS,
)
from fedtempo.learning.batches import Batches
from fedtempo.learning.trainer import Parameters
from fedtempo.simulator.simulated_clients import LocalWorkers

PATIENCE = 0.25  # share of the deadline that emulated devices wait for each other


def num_examples(context: Context) -> int:
    """Return how many samples this node has."""
    experiment = from_run_config(context.run_config)
    return int(load_data(experiment.data).sizes[int(context.node_config["partition-id"])])


app = ClientApp(mods=[tempo_client(num_examples)])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Run the local steps of one round."""
    config: dict[str, Any] = dict(message.content.config_records[CONFIG])
    model = _model(message)
    client, steps = np.array([int(config[CLIENT])]), np.array([int(config[STEPS])])
    start = Start(
        model=model,
        round_index=int(config[ROUND_INDEX]),
        rounds_done=0,
        time=0.0,
        step_size=float(config[STEP_SIZE]),
    )
    began = time.time()
    with threadpool_limits(limits=1):
        result = _workers(context).train(client, steps, np.array([start.step_size]), start)
    told: dict[str, Any] = {
        "largest-gradient-norm": float(result.largest_gradient_norm[0]),
        "mean-gradient-norm": float(result.mean_gradient_norm[0]),
        "mean-loss": float(result.mean_loss[0]),
    }
    if place := str(context.run_config.get("emulate") or ""):
        if COHORT in config:
            patience = PATIENCE * float(context.run_config["deadline"])
            began = meet(Path(place, config[COHORT]), int(client[0]), int(config[COHORT_SIZE]), patience)
        nominal = float(_fleet(context).compute_time[client[0]] * steps[0] / _training(context).local_steps)
        time.sleep(max(0.0, began + nominal - time.time()))
        told["compute-seconds"] = time.time() - began
    ballast = int(context.run_config.get("ballast", 0))
    arrays = pack(model + result.update[0], ballast, int(client[0]) + 1, int(config[ROUND]), context.run_id)
    return Message(RecordDict({ARRAYS: arrays, MEASURED: MetricRecord(told)}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Tell the loss over this node's samples."""
    config: dict[str, Any] = dict(message.content.config_records[CONFIG])
    client = np.array([int(config[CLIENT])])
    start = Start(model=_model(message), round_index=0, rounds_done=0, time=0.0, step_size=1.0)
    loss = float(_workers(context).losses(client, start)[0])
    return Message(RecordDict({"metrics": MetricRecord({"loss": loss})}), reply_to=message)


def _model(message: Message) -> Parameters:
    model: Parameters = message.content.array_records[ARRAYS][MODEL].numpy()
    return model


def _training(context: Context) -> TrainingSettings:
    return for_policy(from_run_config(context.run_config), str(context.run_config["policy"]))[0]


def _fleet(context: Context) -> Fleet:
    experiment = from_run_config(context.run_config)
    data, trainer = load_data(experiment.data), load_trainer(experiment.model, experiment.data)
    return make_fleet(experiment, data, float(trainer.num_parameters * BITS_OF_A_PARAMETER))[0]


def _workers(context: Context) -> LocalWorkers:
    experiment, training = from_run_config(context.run_config), _training(context)
    data, trainer = load_data(experiment.data), load_trainer(experiment.model, experiment.data)
    batches = Batches(data.offsets, batch_size=training.batch_size, seed=int(context.run_config["seed"]))
    return LocalWorkers(trainer, batches, weight_decay=training.weight_decay)
