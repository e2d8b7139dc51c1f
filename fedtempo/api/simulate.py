"""Simulated runs from Python: a user's own data, model and policy in a few lines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Vector, check_seed
from fedtempo.data.federation import FederatedData
from fedtempo.engine.loop import DivergedError
from fedtempo.engine.records import RoundRecord, Summary
from fedtempo.engine.settings import StopSettings, TrainingSettings, check_training_names
from fedtempo.fleet import Fleet
from fedtempo.learning.threads import one_thread
from fedtempo.learning.trainer import Parameters
from fedtempo.policies.fixed import Sampler
from fedtempo.policies.policy import Policy
from fedtempo.simulator.channel import Channel, StaticChannel
from fedtempo.simulator.problem import Problem, make_trainer
from fedtempo.simulator.simulation import RunSettings, make_simulation


@dataclass(frozen=True, eq=False, slots=True)
class RunResult:
    """A finished run."""

    summary: Summary
    records: list[RoundRecord]  # one for each round
    model: Parameters

    def __repr__(self) -> str:
        """Name what the run came to, not its records."""
        known = ", ".join(f"{name}={value}" for name, value in dict(self.summary).items() if value is not None)
        return f"RunResult({known})"

    def series(self, name: str) -> tuple[Vector, Vector]:
        """Return seconds and values of ``loss`` or ``accuracy``, wherever they were evaluated."""
        seen = [(record.time, record[name]) for record in self.records if record[name] is not None]
        times, values = np.array(seen, dtype=np.float64).reshape(-1, 2).T
        return times, values


def simulate(
    data: FederatedData,
    *,
    compute_time: npt.ArrayLike | None = None,
    upload_time: npt.ArrayLike | None = None,
    policy: str | Policy | Sampler | type = "weighted",
    options: Mapping[str, object] | None = None,
    model: object = "softmax",
    device: str = "cpu",
    channel: Channel | None = None,
    download_time: npt.ArrayLike | None = None,
    bandwidth_cap: npt.ArrayLike | None = None,
    total_bandwidth: float = 1.0,
    seed: int = 0,
    max_rounds: int | None = None,
    max_time: float | None = None,
    target_loss: float | None = None,
    target_accuracy: float | None = None,
    **training: Any,  # noqa: ANN401
) -> RunResult:
    """Run federated training under a simulated clock.

    - ``data``: the samples of all clients.
    - ``compute_time``, ``upload_time``: τ and t of each client, or one for all: the nominal times in seconds, which
      policies plan with. A ``channel`` may have its own, and gives them where they are left out.
    - ``policy``: a name, a function from fleet to q, a class that takes a ``PolicySetting``, or a policy; ``options``:
      its options, by name.
    - ``model``: "softmax", "lenet5", a function that returns a ``torch.nn.Module``, or a ``Trainer``; ``device``: where
      torch trains it.
    - ``channel``: how times change from round to round, and who is available.
    - ``download_time``: seconds before computing can start. ``bandwidth_cap``: the most bandwidth of each client's own
      link. ``total_bandwidth``: f_tot, in the same units.
    - ``seed``: of cohorts, batches and the initial model.
    - ``max_rounds``, ``max_time`` (simulated seconds): when the run ends at the latest. ``target_loss``,
      ``target_accuracy``: when it ends before.
    - ``training``: ``cohort_size``, and where they differ from the defaults ``local_steps``, ``batch_size``,
      ``step_size``, ``schedule``, ``weight_decay``, ``server_momentum``, ``server_memory``, ``link``, ``duplicates``,
      ``evaluate_every``, ``evaluate_growth``.

    Diverging training raises ``DivergedError`` with the records until then.
    """
    check_data(data)
    check_seed("seed", seed)
    check_training_names("simulate", training)
    fleet = _fleet(
        data,
        channel,
        {"compute_time": compute_time, "upload_time": upload_time},
        {"download_time": download_time, "bandwidth_cap": bandwidth_cap, "total_bandwidth": total_bandwidth},
    )
    settings = RunSettings(
        policy=policy,
        options=options or {},
        training=TrainingSettings(**training),
        stop=StopSettings(
            max_rounds=max_rounds, max_time=max_time, target_loss=target_loss, target_accuracy=target_accuracy
        ),
        seed=seed,
    )
    trainer = make_trainer(model, data, device=device)  # loads libraries, before their threads can be limited
    problem = Problem(data, trainer, fleet, channel or StaticChannel(fleet.compute_time, fleet.upload_time))
    return _run(problem, settings)


def check_data(data: object) -> None:
    """Refuse what Python itself would complain of in its own words."""
    if not isinstance(data, FederatedData):
        remedy = "docs/data.md shows how to make one"
        raise InputError(name="data", rule="be a FederatedData", got=type(data).__name__, remedy=remedy)


def _fleet(
    data: FederatedData,
    channel: Channel | None,
    nominal: Mapping[str, Any],
    more: Mapping[str, Any],
) -> Fleet:
    """Return the fleet with nominal times, which the channel gives where they are left out."""
    if channel is not None:
        first = channel.at(0, 0.0)
        usual = {"compute_time": first.compute_time, "upload_time": first.upload_time}
        nominal = {name: usual[name] if times is None else times for name, times in nominal.items()}
    if any(times is None for times in nominal.values()):
        raise InputError(name="compute_time and upload_time", rule="be given where there is no channel", got="none")
    return Fleet(data_share=data.data_share, gradient_bound=np.ones(data.num_clients), **nominal, **more)


def _run(problem: Problem, settings: RunSettings) -> RunResult:
    """Run to the end."""
    records: list[RoundRecord] = []
    with one_thread():
        simulation = make_simulation(problem, settings)
        try:
            records.extend(simulation.rounds())
        except DivergedError as error:
            error.records = tuple(records)
            raise
    return RunResult(simulation.summary(), records, simulation.model)
