"""From an experiment to a run: make its parts, run it into a folder, resume it there."""

import platform
import subprocess
import time
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from fedtempo.checks import Vector
from fedtempo.data.federation import FederatedData
from fedtempo.experiments.config import ChannelConfig, DataConfig, Experiment, ModelConfig, TimesConfig, for_policy
from fedtempo.experiments.records import RunFiles
from fedtempo.fleet import Fleet
from fedtempo.learning.trainer import Trainer
from fedtempo.randomness import stream
from fedtempo.simulator.api import assemble, make_trainer
from fedtempo.simulator.channel import Channel, StaticChannel, TraceChannel
from fedtempo.simulator.loop import DivergedError, Simulation
from fedtempo.simulator.markov import FadingChannel, WithAbsences
from fedtempo.simulator.times import benchmark_times, draw_times
from fedtempo.simulator.traces import read_mahimahi, read_rate_csv, upload_seconds

CHECKPOINT_SECONDS = 10.0
BITS_OF_A_PARAMETER = 32
PACKAGES = ("fedtempo", "numba", "numpy", "scipy", "torch")

Progress = Callable[[Simulation, dict[str, Any]], None]


@cache
def load_data(config: DataConfig) -> FederatedData:
    """Return the data of an experiment; runs in one process share them."""
    if config.kind == "synthetic":
        from fedtempo.data.synthetic import synthetic_data

        return synthetic_data(
            alpha=config.alpha,
            beta=config.beta,
            num_clients=config.clients,
            num_samples=config.samples,
            seed=config.seed,
        )
    from fedtempo.data.images import image_data

    return image_data(
        dataset="mnist" if config.kind == "mnist" else "emnist-letters-or-mnist",
        num_clients=config.clients,
        num_samples=config.samples,
        classes=config.classes,
        partition=config.partition,
        concentration=config.concentration,
        seed=config.seed,
    )


@cache
def load_trainer(model: ModelConfig, data: DataConfig) -> Trainer:
    """Return the trainer of an experiment; runs in one process share it."""
    return make_trainer(model.kind, load_data(data), device=model.device)


def make_fleet(times: TimesConfig, data: FederatedData, model_bits: float) -> Fleet:
    """Return the fleet with nominal times; its gradient bounds are 1, since nobody knows them yet."""
    size = data.num_clients

    def draw(purpose: str) -> Vector:
        return draw_times(getattr(times, purpose), size, stream(times.seed, purpose))

    if times.compute is not None:
        compute = draw("compute")
    else:
        compute = benchmark_times(str(times.compute_scores), size, times.compute_mean, stream(times.seed, "compute"))
    upload = draw("upload") if times.upload is not None else upload_seconds(model_bits, draw("uplink_mbps"))
    download = None if times.download is None else draw("download")
    return Fleet(data.data_share, 1.0, compute, upload, download_time=download)  # type: ignore[arg-type]


def make_channel(config: ChannelConfig, fleet: Fleet, model_bits: float) -> Channel:
    """Return how times change from round to round."""
    channel: Channel
    if config.kind == "traces":
        traces = [(read_rate_csv if name.endswith(".csv") else read_mahimahi)(name) for name in config.traces]
        channel = TraceChannel(fleet.compute_time, traces, model_bits=model_bits, seed=config.seed)
    elif config.kind == "fading":
        channel = FadingChannel(
            fleet.compute_time,
            fleet.upload_time,
            correlation=config.correlation,
            snr_db=config.snr_db,
            seed=config.seed,
        )
    else:
        channel = StaticChannel(fleet.compute_time, fleet.upload_time)
    if config.present_share == 1:
        return channel
    return WithAbsences(
        channel, present_share=config.present_share, absence_rounds=config.absence_rounds, seed=config.seed
    )


def make_simulation(experiment: Experiment, policy: str, seed: int) -> Simulation:
    """Return the run of one policy under one seed, at its start."""
    training, options = for_policy(experiment, policy)
    data, trainer = load_data(experiment.data), load_trainer(experiment.model, experiment.data)
    model_bits = float(trainer.num_parameters * BITS_OF_A_PARAMETER)
    fleet = make_fleet(experiment.times, data, model_bits)
    return assemble(
        data=data,
        trainer=trainer,
        fleet=fleet,
        channel=make_channel(experiment.channel, fleet, model_bits),
        policy=policy,
        options=options,
        training=training,
        stop=experiment.stop,
        seed=seed,
    )


def run(
    experiment: Experiment,
    table: dict[str, Any],
    *,
    policy: str,
    seed: int,
    folder: Path,
    progress: Progress = lambda simulation, record: None,
) -> dict[str, Any]:
    """Run one policy under one seed into a folder, or go on where an earlier call was stopped; return the summary.

    One thread does all products: sums then have one order, so bytes do not depend on how many runs share the machine.
    """
    with threadpool_limits(limits=1):
        simulation = make_simulation(experiment, policy, seed)
        files = RunFiles(folder, make_header(experiment, table, policy, seed))
        summary = files.finished()
        if summary is not None:
            return summary
        state = files.open()
        if state is not None:
            simulation.restore(*state)
        return _run(simulation, files, progress)


def _run(simulation: Simulation, files: RunFiles, progress: Progress) -> dict[str, Any]:
    saved, done, record = time.monotonic(), False, {}
    try:
        for record in simulation.rounds():
            files.write(record)
            progress(simulation, record)
            if time.monotonic() - saved > CHECKPOINT_SECONDS:
                files.save(*simulation.state())
                saved = time.monotonic()
        done = True
    except DivergedError:
        simulation.ended = "diverged"
        files.write(simulation.summary())
        done = True
        raise
    finally:
        if not done and simulation.ended is None and simulation.rounds_done:
            files.save(*simulation.state())  # Ctrl-C: nothing of what was run is lost
        files.close(done=done)
    return record


def make_header(experiment: Experiment, table: dict[str, Any], policy: str, seed: int) -> dict[str, Any]:
    """Return what a reader must know to run the same again."""
    data = load_data(experiment.data)
    return {
        "experiment": experiment.name,
        "policy": policy,
        "seed": seed,
        "config": table,
        "data": data.name,
        "data_checksum": data.checksum(),
        "samples": data.sizes.tolist(),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _commit() -> str | None:
    """Return the commit of the source tree, None if it is an installed package."""
    here = Path(__file__).parent
    try:
        command = ["git", "-C", str(here), "rev-parse", "HEAD"]
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
