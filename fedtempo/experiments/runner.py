"""From an experiment to a run: make its parts, run it into a folder, resume it there."""

import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from fedtempo.checks import InputError, Vector
from fedtempo.data.federation import FederatedData
from fedtempo.engine.records import FORMAT, Header, Summary
from fedtempo.engine.headers import as_table
from fedtempo.engine.loop import Loop
from fedtempo.engine.run import Progress, run_into
from fedtempo.engine.run_files import RunFiles
from fedtempo.experiments.config import (
    ChannelConfig,
    DataConfig,
    Experiment,
    ModelConfig,
    files_of,
    for_policy,
    make_experiment,
    settings_of,
)
from fedtempo.experiments.toml import merged
from fedtempo.fleet import Fleet
from fedtempo.learning.trainer import Trainer
from fedtempo.policies.policy import Policy
from fedtempo.randomness import stream
from fedtempo.simulator import simulation
from fedtempo.simulator.absences import WithAbsences
from fedtempo.simulator.channel import Channel, StaticChannel, TraceChannel, Untold
from fedtempo.simulator.fading import FadingChannel
from fedtempo.simulator.problem import Problem, make_trainer, model_bits
from fedtempo.simulator.simulation import RunSettings
from fedtempo.simulator.times import benchmark_times, draw_times
from fedtempo.simulator.traces import RateTrace, read_mahimahi, read_rate_csv, upload_seconds

BITS_OF_A_PARAMETER = 32
PACKAGES = ("fedtempo", "numba", "numpy", "scipy", "torch")


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
        letters=config.letters,
        standardise=config.standardise,
        seed=config.seed,
    )


@cache
def load_trainer(model: ModelConfig, data: DataConfig) -> Trainer:
    """Return the trainer of an experiment; runs in one process share it."""
    try:
        return make_trainer(model.kind, load_data(data), device=model.device)
    except (RuntimeError, AssertionError) as error:  # what torch raises for a device that it does not know or have
        if model.device == "cpu":
            raise
        said = str(error).splitlines()[0][:80]
        raise InputError(
            name="model.device",
            rule="be one that torch has on this machine",
            got=f"{model.device!r} ({said})",
            remedy="leave it out",
        ) from None


def make_fleet(experiment: Experiment, data: FederatedData, model_bits: float) -> tuple[Fleet, Channel]:
    """Return the fleet with nominal times, and how these change from round to round.

    Its gradient bounds are 1, since nobody knows them yet. Over traces, nominal is the mean rate of a client's own.
    """
    times, size = experiment.times, data.num_clients

    def draw(purpose: str) -> Vector:
        return draw_times(getattr(times, purpose), size, stream(times.seed, purpose))

    if times.compute is not None:
        compute = draw("compute")
    else:
        compute = benchmark_times(str(times.compute_scores), size, times.compute_mean, stream(times.seed, "compute"))
    traced = None
    if experiment.channel.kind == "traces":
        traces = [_read_trace(Path(name)) for name in experiment.channel.traces]
        traced = TraceChannel(compute, traces, model_bits=model_bits, seed=experiment.channel.seed)
        upload = traced.nominal_upload_time
    elif times.upload is not None:
        upload = draw("upload")
    else:
        upload = upload_seconds(model_bits, draw("uplink_mbps"))
    download = None if times.download is None else draw("download")
    fleet = Fleet(data.data_share, 1.0, compute, upload, download_time=download)  # type: ignore[arg-type]
    channel = _with_absences(experiment.channel, traced or make_channel(experiment.channel, fleet))
    return fleet, channel if experiment.channel.told else Untold(channel)


def make_channel(config: ChannelConfig, fleet: Fleet) -> Channel:
    """Return a channel on which times vary about the fleet's, or not at all."""
    if config.kind == "fading":
        return FadingChannel(
            fleet.compute_time,
            fleet.upload_time,
            correlation=config.correlation,
            snr_db=config.snr_db,
            seed=config.seed,
        )
    return StaticChannel(fleet.compute_time, fleet.upload_time)


def _with_absences(config: ChannelConfig, channel: Channel) -> Channel:
    if config.present_share == 1:
        return channel
    return WithAbsences(
        channel, present_share=config.present_share, absence_rounds=config.absence_rounds, seed=config.seed
    )


def _read_trace(path: Path) -> RateTrace:
    return read_rate_csv(path) if path.suffix.lower() == ".csv" else read_mahimahi(path)


def make_simulation(experiment: Experiment, policy: str, seed: int) -> Loop:
    """Return the run of one policy under one seed, at its start."""
    return simulation.make_simulation(problem_of(experiment), _settings(experiment, policy, seed))


def make_policy(experiment: Experiment, policy: str, seed: int) -> Policy:
    """Return the policy of a run alone, which costs little."""
    return simulation.make_policy(problem_of(experiment), _settings(experiment, policy, seed))


def problem_of(experiment: Experiment) -> Problem:
    """Return what an experiment trains."""
    data, trainer = load_data(experiment.data), load_trainer(experiment.model, experiment.data)
    return Problem(data, trainer, *make_fleet(experiment, data, model_bits(trainer)))


def _settings(experiment: Experiment, policy: str, seed: int) -> RunSettings:
    training, options = for_policy(experiment, policy)
    return RunSettings(policy=policy, training=training, stop=experiment.stop, seed=seed, options=options)


def run(
    experiment: Experiment,
    table: dict[str, Any],
    *,
    policy: str,
    seed: int,
    folder: Path,
    progress: Progress = lambda simulation, record: None,
) -> Summary:
    """Run one policy under one seed into a folder, or go on where an earlier call was stopped; return the summary."""
    with one_thread(experiment):
        loop = make_simulation(experiment, policy, seed)
        files = RunFiles(folder, make_header(experiment, table, policy, seed), canonical)
        return run_into(files, loop, progress)


@contextmanager
def one_thread(experiment: Experiment) -> Iterator[None]:
    """Let one thread do all products: sums then have one order, however many runs share the machine."""
    load_trainer(experiment.model, experiment.data)  # loads libraries, before their threads can be limited
    with threadpool_limits(limits=1):
        yield


def make_header(experiment: Experiment, table: dict[str, Any], policy: str, seed: int) -> Header:
    """Return what a reader must know to run the same again."""
    data, files = load_data(experiment.data), files_of(experiment)
    return Header(
        format=FORMAT,
        experiment=experiment.name,
        preset=experiment.preset,
        policy=policy,
        seed=seed,
        config=table,
        files=files,  # what they hold
        data=data.name,
        data_checksum=data.checksum(),
        samples=data.sizes.tolist(),
        **made_with(),
    )


def made_with() -> dict[str, Any]:
    """Return the versions that a header names, and the commit where it is known."""
    return {
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def canonical(header: Header) -> dict[str, object]:
    """Return a header whose configuration is that of all headers of the same run, however its file was written."""
    settings = settings_of(make_experiment(header.config), header.policy)
    rest = {name: value for name, value in as_table(header).items() if name != "files"}
    return rest | {"config": merged(settings, header.files)}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _commit() -> str | None:
    """Return the commit of the source tree, with + if the code has changed since; None for an installed package."""
    package = Path(__file__).resolve().parents[1]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != package.parent:
            return None  # the repository of someone who installed the package inside it
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None
