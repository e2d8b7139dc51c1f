"""The ClientApp of the ready app: a node trains on its part of an experiment's data, as the simulator would."""

import time
from pathlib import Path

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedtempo.engine.clients import Start
from fedtempo.flower.app.assembly import AppSetup, data_of, read_setup
from fedtempo.flower.app.emulated import meet
from fedtempo.flower.app.model_arrays import MODEL, pack, unpack
from fedtempo.flower.strategy.client_mod import tempo_client
from fedtempo.flower.strategy.local_training import server_direction
from fedtempo.flower.strategy.messages import (
    ARRAYS,
    CLIENT,
    COMPUTE_SECONDS,
    CONFIG,
    LARGEST_GRADIENT_NORM,
    MEAN_GRADIENT_NORM,
    MEASUREMENTS,
    PARTITION,
    Instructions,
)
from fedtempo.learning.quantisation import upload_share
from fedtempo.learning.threads import one_thread
from fedtempo.learning.trainer import NO_BUFFERS, Buffers, LocalResult, Parameters
from fedtempo.simulator.workers import LocalWorkers, Work

PATIENCE = 0.25  # share of the deadline that emulated devices wait for each other


def num_examples(context: Context) -> int:
    """Return how many samples this node has."""
    return int(data_of(context.run_config).sizes[int(context.node_config[PARTITION])])


app = ClientApp(mods=[tempo_client(num_examples)])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Run the local steps of one round."""
    asked = Instructions.read(message.content.config_records[CONFIG])
    setup, (model, buffers) = read_setup(context.run_config), unpack(message)
    began = time.time()
    with one_thread():
        result = _train(setup, asked, model, buffers)
    metrics = {
        LARGEST_GRADIENT_NORM: float(result.largest_gradient_norm[0]),
        MEAN_GRADIENT_NORM: float(result.mean_gradient_norm[0]),
        "mean-loss": float(result.mean_loss[0]),
    }
    if setup.config.emulate:
        metrics[COMPUTE_SECONDS] = _emulate(setup, asked, began)
    salt = asked.client + 1, asked.server_round, context.run_id
    buffers = NO_BUFFERS if result.buffers is None else result.buffers[0]
    ballast, trained = setup.config.ballast, model + result.update[0]
    if asked.upload_bits is not None:
        ballast = round(ballast * upload_share(asked.upload_bits, model.size, buffers.size))
        trained = model + result.update[0].astype(np.float64)  # of which the mod takes the model again, to the digit
    arrays = pack(trained, ballast, *salt, buffers=buffers)
    return Message(RecordDict({ARRAYS: arrays, MEASUREMENTS: MetricRecord({**metrics})}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Report the loss over this node's samples."""
    client = int(message.content.config_records[CONFIG][CLIENT])  # type: ignore[arg-type]
    setup, (model, buffers) = read_setup(context.run_config), unpack(message)
    start = Start(model=model, buffers=buffers, round_index=0, rounds_done=0, time=0.0, step_size=0.0)
    with one_thread():
        loss = float(_workers(setup).losses(np.array([client]), start)[0])
    return Message(RecordDict({"metrics": MetricRecord({"loss": loss})}), reply_to=message)


def _workers(setup: AppSetup) -> LocalWorkers:
    problem, training = setup.problem, setup.training
    return LocalWorkers(problem.trainer, problem.batches(training, setup.config.seed), training)


def _train(setup: AppSetup, asked: Instructions, model: Parameters, buffers: Buffers) -> LocalResult:
    direction = server_direction()
    start = Start(
        model=model,
        buffers=buffers,
        round_index=asked.round_index,
        rounds_done=asked.server_round - 1,
        time=0.0,
        step_size=asked.step_size,
        direction=None if direction is None else direction.arrays[MODEL],
    )
    work = Work(
        clients=np.array([asked.client]),
        local_steps=np.array([asked.local_steps]),
        step_size=np.array([asked.step_size]),
    )
    return _workers(setup).train(work, start)


def _emulate(setup: AppSetup, asked: Instructions, began: float) -> float:
    """Wait until the nominal time of computing is over, since all members of the cohort began; return its seconds."""
    config = setup.config
    if asked.cohort is not None:
        patience = PATIENCE * config.deadline
        began = meet(Path(config.emulate, asked.cohort), asked.client, asked.cohort_size, patience)
    nominal = setup.problem.fleet.compute_time[asked.client] * asked.local_steps / setup.training.local_steps
    time.sleep(max(0.0, began + float(nominal) - time.time()))
    return time.time() - began
