"""From an experiment to its problem: the one place where data, model, fleet and channel are put together."""

import os
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedtempo.checks import InputError, Vector
from fedtempo.data.federation import FederatedData
from fedtempo.data.sources import NoFilesError
from fedtempo.experiments.running.identity import data_contents, digest_of, model_digests
from fedtempo.experiments.running.own_data import data_of_file, data_of_function
from fedtempo.experiments.settings.config import (
    ChannelConfig,
    DataConfig,
    Experiment,
    FileExperiment,
    ModelConfig,
    TimesConfig,
)
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.experiments.settings.problem_experiment import ProblemExperiment
from fedtempo.fleet import Fleet
from fedtempo.learning.trainer import Trainer
from fedtempo.own_code import is_reference, load_reference
from fedtempo.randomness import stream
from fedtempo.simulator.absences import WithAbsences
from fedtempo.simulator.channel import Channel, StaticChannel, TraceChannel, UnknownTimes
from fedtempo.simulator.fading import FadingChannel
from fedtempo.simulator.problem import Problem, make_trainer
from fedtempo.simulator.problem import model_bits as bits_of
from fedtempo.simulator.times import TimesSpec, benchmark_times, draw_times
from fedtempo.simulator.traces import RateTrace, read_mahimahi, read_rate_csv, upload_seconds

# What makers of data call their arguments, and [data] its settings.
SETTINGS_OF_DATA = {"num_clients": "clients", "num_samples": "samples", "the total": "samples"}


def problem_of(experiment: Experiment, *, model_bits: float | None = None) -> Problem:
    """Return the problem of an experiment; runs in one process share it.

    ``model_bits``: the size of an upload, where it is not that of the model.
    """
    if isinstance(experiment, ProblemExperiment):
        return _as_made_here(experiment.problem)
    assert isinstance(experiment, FileExperiment)
    times, channel = experiment.times, experiment.channel
    names = [] if times.compute_scores is None else [times.compute_scores]
    names += channel.traces if channel.kind == "traces" else ()
    # Files may change while this process runs.
    own = *data_contents(experiment.data), *model_digests(experiment.model).values()
    contents = (*own, *map(digest_of, names))
    return _problem(experiment.data, experiment.model, times, channel, contents, model_bits)


def problem_of_file(path: Path | str, preset: str) -> Problem:
    """Return the problem of a file under a preset."""
    return problem_of(load_experiment(path, preset))


@cache
def _problem(
    data: DataConfig,
    model: ModelConfig,
    times: TimesConfig,
    channel: ChannelConfig,
    contents: tuple[object, ...],
    model_bits: float | None,
) -> Problem:
    trainer = load_trainer(model, data)
    bits = bits_of(trainer) if model_bits is None else model_bits
    fleet, varying = _fleet_and_channel(times, channel, load_data(data), bits)
    named: dict[str, object] = {"model": model.kind, "device": model.device, "loss": model.loss, "metric": model.metric}
    named |= {"optimiser": model.optimiser, **{f"code of {part}": code for part, code in model_digests(model).items()}}
    given = {part: name for part, name in named.items() if name is not None}
    return Problem.of_fleet(load_data(data), trainer, fleet, varying, given)


_from_elsewhere: dict[str, Problem] = {}


def _as_made_here(problem: Problem) -> Problem:
    """Return a problem, or what came before of it from another process: runs in one process share its trainer."""
    if problem.made_in == os.getpid():
        return problem
    if problem.key not in _from_elsewhere:
        _from_elsewhere.clear()  # a grid has one problem, and data may be large
    return _from_elsewhere.setdefault(problem.key, problem)


def load_data(config: DataConfig) -> FederatedData:
    """Return the data of an experiment; runs in one process share them."""
    return _data(config, data_contents(config))


def data_of(experiment: Experiment) -> FederatedData:
    """Return the data of an experiment, from a file or from Python."""
    if isinstance(experiment, ProblemExperiment):
        return experiment.problem.data
    assert isinstance(experiment, FileExperiment)
    return load_data(experiment.data)


@cache
def _data(config: DataConfig, contents: tuple[object, ...]) -> FederatedData:
    if config.kind == "arrays":
        return data_of_file(config)
    if config.clients is None or config.samples is None:  # as of a function, which data sets are not
        return data_of_function(config)
    if config.kind == "synthetic":
        from fedtempo.data.synthetic import synthetic_data

        return synthetic_data(
            alpha=config.alpha,
            beta=config.beta,
            num_clients=config.clients,
            num_samples=config.samples,
            seed=config.seed,
        )
    if config.kind == "shakespeare":
        from fedtempo.data.shakespeare import shakespeare_data

        return shakespeare_data(num_clients=config.clients, num_samples=config.samples, seed=config.seed)
    from fedtempo.data.images import image_data

    return image_data(
        dataset="emnist-letters-or-mnist" if config.kind == "emnist" else config.kind,  # type: ignore[arg-type]
        num_clients=config.clients,
        num_samples=config.samples,
        classes=config.classes,
        partition=config.partition or "classes",
        concentration=config.concentration,
        letters=config.letters,
        standardise=config.standardise,
        seed=config.seed,
    )


def in_data_table(error: InputError, experiment: Experiment) -> InputError:
    """Return what is wrong with data as whoever wrote the experiment knows it: by the setting and the file."""
    if isinstance(error, NoFilesError):  # the file is right, and the machine lacks them
        return error
    setting = SETTINGS_OF_DATA.get(error.name, error.name)
    if setting in {field.name for field in fields(DataConfig)}:
        error = InputError(f"data.{setting}", error.rule, error.got, error.remedy, places=error.places)
    elif not error.places and not error.name.startswith("data."):
        error = error.within("data")
    return error if experiment.path is None else error.within(experiment.path)


def load_trainer(model: ModelConfig, data: DataConfig) -> Trainer:
    """Return the trainer of an experiment; runs in one process share it."""
    return _trainer(model, data, (*data_contents(data), *model_digests(model).values()))


@cache
def _trainer(model: ModelConfig, data: DataConfig, contents: tuple[object, ...]) -> Trainer:
    try:
        made_of: dict[str, Any] = {name: _own(name, getattr(model, name)) for name in ("loss", "metric", "optimiser")}
        return make_trainer(_own("kind", model.kind), load_data(data), device=model.device, **made_of)
    except InputError as error:
        if error.name != "device":
            raise
        raise InputError("model.device", error.rule, error.got, error.remedy) from None


def _own(setting: str, value: str | None) -> object:
    """Return what a setting of the model names: itself, or what somebody has defined."""
    return load_reference(f"model.{setting}", value) if value is not None and is_reference(value) else value


def _fleet_and_channel(
    times: TimesConfig, channel: ChannelConfig, data: FederatedData, model_bits: float
) -> tuple[Fleet, Channel]:
    """Return the fleet with nominal times, and how these change from round to round.

    Its gradient bounds are 1, since nobody knows them yet. Over traces, nominal is the mean rate of a client's own.
    """
    size = data.num_clients
    compute, traced = _compute_times(times, size), None
    if channel.kind == "traces":
        traces = [_read_trace(Path(name)) for name in channel.traces]
        traced = TraceChannel(compute, traces, model_bits=model_bits, seed=channel.seed)
        upload = traced.nominal_upload_time
    elif times.upload is not None:
        upload = _draw(times, "upload", times.upload, size)
    elif times.uplink_mbps is not None:
        upload = upload_seconds(model_bits, _draw(times, "uplink_mbps", times.uplink_mbps, size))
    download = None if times.download is None else _draw(times, "download", times.download, size)
    fleet = Fleet(data.data_share, np.ones(size), compute, upload, download_time=download)
    varying = _with_absences(channel, traced or _varying(channel, fleet))
    return fleet, varying if channel.times_known else UnknownTimes(varying)


def _compute_times(times: TimesConfig, size: int) -> Vector:
    if times.compute is not None:
        return _draw(times, "compute", times.compute, size)
    return benchmark_times(str(times.compute_scores), size, times.compute_mean, stream(times.seed, "compute"))


def _draw(times: TimesConfig, purpose: str, spec: TimesSpec, size: int) -> Vector:
    return draw_times(spec, size, stream(times.seed, purpose))


def _varying(config: ChannelConfig, fleet: Fleet) -> Channel:
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
