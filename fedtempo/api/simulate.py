"""One simulated run from Python: a user's own data, model and policy in a few lines."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedtempo.api.run_result import RunResult
from fedtempo.checks import InputError, check_seed
from fedtempo.data.federation import FederatedData
from fedtempo.engine.divergence import DivergedError
from fedtempo.engine.loop import Loop
from fedtempo.engine.records import RoundRecord, read_records
from fedtempo.engine.settings import check_training_names
from fedtempo.experiments.running import runner
from fedtempo.experiments.running.display import somebody_looks
from fedtempo.experiments.running.planned import PlannedRun, plan_run
from fedtempo.experiments.running.progress import run_progress
from fedtempo.experiments.settings.problem_experiment import problem_experiment
from fedtempo.files import whole_file
from fedtempo.fingerprint import name_of
from fedtempo.learning.trainer import Buffers, Parameters
from fedtempo.policies.registry import PolicyLike
from fedtempo.simulator.channel import Channel
from fedtempo.simulator.problem import Problem
from fedtempo.simulator.simulation import make_simulation

MODEL = "model.npz"  # of a finished run, beside its records
Callback = Callable[[RoundRecord], object]  # called with the record of each round


def simulate(
    data: FederatedData | Problem,
    *,
    compute_time: npt.ArrayLike | None = None,
    upload_time: npt.ArrayLike | None = None,
    policy: PolicyLike = "weighted",
    options: Mapping[str, object] | None = None,
    model: object = "softmax",
    device: str = "cpu",
    channel: Channel | None = None,
    download_time: npt.ArrayLike | None = None,
    bandwidth_cap: npt.ArrayLike | None = None,
    total_bandwidth: float = 1.0,
    loss: Callable[..., object] | None = None,
    metric: Callable[..., object] | None = None,
    optimiser: str | Callable[..., object] | None = None,
    seed: int = 0,
    max_rounds: int | None = None,
    max_time: float | None = None,
    target_loss: float | None = None,
    target_accuracy: float | None = None,
    out: Path | str | None = None,
    progress: bool | None = None,
    callbacks: Sequence[Callback] = (),
    **training: object,
) -> RunResult:
    """Run federated training under a simulated clock.

    - ``data``: the samples of all clients, or a whole ``Problem``, which then has model, times and channel.
    - ``compute_time``, ``upload_time``: τ and t of each client, or one for all: the nominal times in seconds, which
      policies plan with. A ``channel`` may have its own, and gives them where they are left out.
    - ``policy``: a name, a function from fleet to q, a class that takes a ``PolicySetting``, or a policy; ``options``:
      its options, by name.
    - ``model``: "softmax", "lenet5", "cnn", "lstm", a function that returns a ``torch.nn.Module``, or a ``Trainer``;
      ``device``: where torch trains it; ``loss``, ``metric``, ``optimiser``: how (docs/models.md).
    - ``channel``: how times change from round to round, and who is available.
    - ``download_time``: seconds before computing can start. ``bandwidth_cap``: the most bandwidth of each client's own
      link. ``total_bandwidth``: f_tot, in the same units.
    - ``seed``: of cohorts, batches and the initial model.
    - ``max_rounds``, ``max_time`` (simulated seconds): when the run ends at the latest. ``target_loss``,
      ``target_accuracy``: when it ends before.
    - ``out``: a folder for records, checkpoints and at the end the model; a run that was stopped goes on from there.
      Data, settings and names are compared, functions are not.
    - ``progress``: whether to show how it gets on; left out, in terminals and notebooks. ``callbacks``: functions that
      are called with the record of each round; after a kill, rounds since the last checkpoint come again.
    - ``training``: nothing, and it is what ``fedtempo init`` writes, with a step size that the run finds; or
      ``cohort_size``, and where they differ from the paper's defaults ``local_steps``, ``batch_size``,
      ``step_size``, ``schedule``, ``weight_decay``, ``server_momentum``, ``server_memory``, ``link``, ``duplicates``,
      ``evaluate_every``, ``evaluate_growth``, ``slow_share``, ``clip_norm``, ``local_schedule``, ``proximal``,
      ``upload_bits``, ``upload_top``, ``error_feedback``, ``server_average``, ``server_optimiser``,
      ``server_step_size``, ``local_direction``, ``local_correction`` (docs/levers.md).

    Diverging training raises ``DivergedError`` with the records until then.
    """
    check_seed("seed", seed)
    if out is not None and not isinstance(out, (str, Path)):
        raise InputError(name="out", rule="be the path of a folder", got=repr(out))
    if not isinstance(callbacks, Iterable) or not all(map(callable, callbacks := list(callbacks))):
        raise InputError(name="callbacks", rule="be a list of functions", got=repr(callbacks))
    check_training_names("simulate", training)
    given = {
        "compute_time": compute_time, "upload_time": upload_time, "download_time": download_time,
        "bandwidth_cap": bandwidth_cap, "channel": channel, "loss": loss, "metric": metric, "optimiser": optimiser,
    }  # fmt: skip
    if isinstance(data, Problem):
        problem = data
        usual = {"model": model == "softmax", "device": str(device) == "cpu", "total_bandwidth": total_bandwidth == 1.0}
        over = [name for name, value in given.items() if value is not None]
        if over := over + [name for name, is_usual in usual.items() if not is_usual]:
            raise InputError(name=over[0], rule="not be given beside a Problem, which has its own", got="both")
    else:
        problem = Problem(data, model, device=device, total_bandwidth=total_bandwidth, **given)  # type: ignore[arg-type]
    ends = {"max_rounds": max_rounds, "max_time": max_time, "target_loss": target_loss}
    ends |= {"target_accuracy": target_accuracy}
    planned = _planned(problem, policy, seed, {"stop": ends, "training": training}, options or {}, out)
    return _run(planned, out, callbacks, shown=somebody_looks() if progress is None else progress)


def _planned(
    problem: Problem,
    policy: PolicyLike,
    seed: int,
    settings: Mapping[str, Mapping[str, object]],
    options: Mapping[str, object],
    out: Path | str | None,
) -> PlannedRun:
    known = {part: {k: v for k, v in table.items() if v is not None} for part, table in settings.items()}
    name = name_of(policy).rpartition(":")[2] if not isinstance(policy, str) else policy
    experiment = problem_experiment(problem, {**known, "policy": {name: options}})
    return plan_run(experiment, name, seed, Path(out or "."), policy)


def _run(planned: PlannedRun, out: Path | str | None, callbacks: Sequence[Callback], *, shown: bool) -> RunResult:
    with ExitStack() as stack:
        title = f"{planned.experiment.name}, {planned.policy}"
        show = stack.enter_context(run_progress(title, planned.settings.stop)) if shown else runner.no_progress

        def after_round(loop: Loop, record: RoundRecord) -> None:
            show(loop, record)
            for callback in callbacks:
                callback(record)

        return _in_memory(planned, after_round) if out is None else _into_folder(planned, after_round)


def _in_memory(planned: PlannedRun, after_round: Callable[[Loop, RoundRecord], None]) -> RunResult:
    records: list[RoundRecord] = []
    with runner.ready(planned.experiment) as problem:
        loop = make_simulation(problem, planned.settings)
        try:
            for record in loop.rounds():
                records.append(record)
                after_round(loop, record)
        except DivergedError as error:
            error.records = tuple(records)
            raise
    return RunResult(loop.summary(), records, loop.model, loop.buffers, planned)


def _into_folder(planned: PlannedRun, after_round: Callable[[Loop, RoundRecord], None]) -> RunResult:
    try:
        summary = runner.run(planned, after_round, lambda loop: _write_model(planned.folder, loop))
    except DivergedError as error:
        error.records = tuple(read_records(planned.records).rounds)
        raise
    found = read_records(planned.records)
    if found.header is not None:
        planned = replace(planned, header=found.header)
    return RunResult(summary, found.rounds, *_read_model(planned.folder), planned)


def _write_model(folder: Path, loop: Loop) -> None:
    with whole_file(folder / MODEL, "wb") as stream:
        np.savez(stream, model=loop.model, buffers=loop.buffers)


def _read_model(folder: Path) -> tuple[Parameters, Buffers]:
    try:
        with open(folder / MODEL, "rb") as stream, np.load(stream) as saved:
            return saved["model"], saved["buffers"]
    except OSError as error:
        got = (error.strerror or "an error").lower()
    except Exception:  # whatever NumPy and zipfile raise
        got = "other content"
    remedy = f"delete {folder} to run it again"
    raise InputError(f"{folder / MODEL}", "be the model of the finished run", got, remedy)
