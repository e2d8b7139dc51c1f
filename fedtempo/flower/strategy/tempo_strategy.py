"""A Flower strategy that lets a fedtempo policy decide who trains, how often and with what bandwidth.

    strategy = TempoStrategy("tempo", cohort_size=4, step_size=0.05, local_steps=50)
    strategy.start(grid=grid, initial_arrays=ArrayRecord(model.state_dict()), num_rounds=20)

``start`` runs fedtempo's own loop in place of Flower's: policies may step as updates arrive, ask before they plan, or
start again from w₀, which Flower's loop of rounds does not know. ``configure_train`` and ``aggregate_train`` are
therefore not used, and say so.
"""

import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from fedtempo.checks import InputError, check_choice, check_count, check_positive, check_seed
from fedtempo.engine.clients import Clients
from fedtempo.engine.loop import Loop
from fedtempo.engine.records import RECORDS, RunFiles, read_lines
from fedtempo.engine.run import Progress, run_into
from fedtempo.engine.settings import StopSettings, TrainingSettings, check_training_names
from fedtempo.experiments.runner import made_with
from fedtempo.files import whole_file
from fedtempo.fleet import Fleet
from fedtempo.flower.link.shaped import Link
from fedtempo.flower.strategy.evaluation import ClientsEvaluation, EvaluateFunction, GlobalLoss
from fedtempo.flower.strategy.grid_workers import GridWorkers
from fedtempo.flower.strategy.layout import Layout
from fedtempo.flower.strategy.messages import STEP_SIZE, STEPS
from fedtempo.flower.strategy.messenger import Messenger, notice_ends_of_uploads
from fedtempo.flower.strategy.nodes import FlowerClients
from fedtempo.flower.strategy.roster import Newcomers, Roster, find_roster, given_roster
from fedtempo.learning.trainer import Parameters
from fedtempo.policies.fixed import Sampler
from fedtempo.policies.policy import Policy, PolicySetting
from fedtempo.policies.registry import check_name, make
from fedtempo.simulator.channel import StaticChannel
from fedtempo.simulator.simulated_clients import SimulatedClients

Clock = Literal["wall", "simulated"]
DEFAULT_DEADLINE = 600.0
LONGEST_SHOWN = 120  # characters of what went wrong, in a line of the log
TELL_THE_LOSS = 'give start evaluate_fn, or the strategy evaluate="clients"'
PILOTED = ("proposed", "statistical")  # policies that cannot do without losses
MODEL_FILE = "model.npz"  # beside the records: the arrays at the end


class TempoStrategy(Strategy):
    """Who trains, how often and with what bandwidth: a policy decides, Flower nodes train.

    ``policy``: a name (``fedtempo policies``), a function from fleet to q, or a policy. ``fleet``: data shares and
    nominal times of the clients; without one, nodes are asked how many examples they have, and times are learned.
    ``nodes``: the client that each node id stands for; without it, nodes are asked for their partition-id. ``clock``:
    "wall" takes the seconds that rounds really take, "simulated" those that they would take by the fleet's times,
    for Flower's simulation. ``records``: a folder to write records to, as the simulator does, and to
    go on from, with a ``header`` of one's own; the model goes there at the end.
    ``deadline``: seconds after which a round ends without those who have not answered. ``uplink``: the link that
    enforces and measures the bandwidth of uploads. ``evaluate``: whether the function given to ``start`` or the clients
    tell the global loss. ``training``: ``cohort_size``, and as for ``fedtempo.simulate`` ``local_steps``,
    ``step_size``, ``schedule``, ``server_momentum``, ``link`` and so on.
    """

    def __init__(
        self,
        policy: str | Policy | Sampler | type = "tempo",
        *,
        options: Mapping[str, Any] | None = None,
        fleet: Fleet | None = None,
        nodes: Mapping[int, int] | None = None,
        min_available_nodes: int = 2,
        clock: Clock = "wall",
        uplink: Link | None = None,
        evaluate: Literal["server", "clients"] = "server",
        deadline: float = DEFAULT_DEADLINE,
        target_loss: float | None = None,
        target_accuracy: float | None = None,
        max_time: float | None = None,
        seed: int = 0,
        records: Path | str | None = None,
        header: Mapping[str, Any] | None = None,
        progress: Callable[[Loop, dict[str, Any]], None] | None = None,
        **training: Any,  # noqa: ANN401
    ) -> None:
        """Check the settings; nodes are looked for at the start."""
        check_training_names("TempoStrategy", training)
        if isinstance(policy, str):
            check_name(policy)
        if fleet is not None and not isinstance(fleet, Fleet):
            raise InputError(
                name="fleet",
                rule="be a Fleet",
                got=f"{type(fleet).__name__}",
                remedy="read_fleet reads one from a file",
            )
        self.policy, self.options, self.fleet, self.nodes = policy, dict(options or {}), fleet, nodes
        self.min_available_nodes = check_count("min_available_nodes", min_available_nodes)
        self.clock = check_choice("clock", clock, ("wall", "simulated"))
        self.evaluated_by = check_choice("evaluate", evaluate, ("server", "clients"))
        self.uplink, self.deadline = uplink, check_positive("deadline", deadline)
        self.stop = {"target_loss": target_loss, "target_accuracy": target_accuracy, "max_time": max_time}
        self.seed, self.records, self.header, self.progress = check_seed("seed", seed), records, header, progress
        self._named = set(training)
        self.training = TrainingSettings(
            **({"schedule": "constant", "link": "shared", "duplicates": "physical"} | training)
        )
        if clock == "wall":  # nobody uploads the same thing twice
            self.training = replace(self.training, duplicates="physical")

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFunction | None = None,
    ) -> Result:
        """Train for so many rounds, or to a target or limit of the strategy; return the model and what was measured."""
        notice_ends_of_uploads()
        self.summary()
        check_count("num_rounds", num_rounds)
        config = self._take_settings_of(dict(train_config or {}))
        self._check_that_loss_is_told(evaluate_fn)
        began, layout, result = time.monotonic(), Layout(initial_arrays), Result()
        folder = None if self.records is None else Path(self.records).absolute()
        roster = self._find_clients(grid, folder)
        self._check_link(roster.fleet)
        newcomers = Newcomers(grid, roster, self.fleet, folder) if self.nodes is None else None
        messenger = Messenger(grid, roster.nodes, len(roster.fleet))
        asked = None
        if self.evaluated_by == "clients":
            asked = ClientsEvaluation(messenger, roster.fleet, dict(evaluate_config or {}), min(self.deadline, timeout))
        nodes = FlowerClients(
            messenger=messenger, layout=layout, fleet=roster.fleet, training=self.training, config=config,
            evaluate=GlobalLoss(layout, result, evaluate_fn, asked), deadline=min(self.deadline, timeout),
            link=self.uplink, newcomers=newcomers,
        )  # fmt: skip
        loop = self._loop(nodes, roster, layout.flatten(initial_arrays), num_rounds)

        def show(loop: Loop, record: dict[str, Any]) -> None:
            if "members" in record:
                result.train_metrics_clientapp[loop.rounds_done] = _metrics(record, nodes.metrics)
                log(INFO, _line(loop, num_rounds, record))
            if self.progress is not None:
                self.progress(loop, record)

        try:
            result.arrays = self._run(loop, roster, num_rounds, layout, folder, show)
        finally:
            messenger.forget_all()
            if newcomers is not None:
                newcomers.forget_all()
        if folder is not None:
            self._complete(result, folder)
        if loop.ended is not None:
            whole = f"{time.monotonic() - began:.1f} s with start and evaluations"
            log(INFO, f"{loop.rounds_done} rounds in {loop.time:.1f} s ({whole}), ended by {loop.ended}")
        return result

    def summary(self) -> None:
        """Log what was chosen."""
        log(
            INFO,
            f"\t└──> policy {_name(self.policy)}, cohorts of {self.training.cohort_size}, link {self.training.link}",
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Not used."""
        _not_used("configure_train")

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Not used."""
        _not_used("aggregate_train")

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Not used."""
        _not_used("configure_evaluate")

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Not used."""
        _not_used("aggregate_evaluate")

    def _take_settings_of(self, config: dict[str, Any]) -> dict[str, Any]:
        """Take the step size and steps that an app sends its clients, where the strategy was given none."""
        for key, name in ((STEP_SIZE, "step_size"), (STEPS, "local_steps")):
            if key in config and name not in self._named:
                self.training = replace(self.training, **{name: config[key]})
            elif key in config and config[key] != getattr(self.training, name):
                log(WARNING, f"train_config has {key} {config[key]}, but {name} {getattr(self.training, name)} counts")
        return config

    def _check_that_loss_is_told(self, evaluate_fn: EvaluateFunction | None) -> None:
        """Refuse what would wait for a loss that nobody tells."""
        if self.evaluated_by == "clients" or evaluate_fn is not None:
            return
        for name in ("target_loss", "target_accuracy"):
            if self.stop[name] is not None:
                raise InputError(name=name, rule=f"be evaluated: {TELL_THE_LOSS}")
        if self.policy in PILOTED:
            raise InputError(
                name=f"policy {self.policy}",
                rule="have losses, at which its pilots end",
                got="none",
                remedy=TELL_THE_LOSS,
            )
        log(INFO, f"no loss is evaluated: {TELL_THE_LOSS}")

    def _check_link(self, fleet: Fleet) -> None:
        """Refuse what no real link does here."""
        if self.clock == "wall" and self.training.link == "shared" and fleet.bandwidth_cap is not None:
            raise InputError(name="a fleet with bandwidth_cap", rule="have the link paper or equal", got="shared")

    def _complete(self, result: Result, folder: Path) -> None:
        """Add what the records know of rounds before this start."""
        by_clients = self.evaluated_by == "clients"
        told = result.evaluate_metrics_clientapp if by_clients else result.evaluate_metrics_serverapp
        rounds = [line for line in read_lines(folder / RECORDS) if "members" in line]
        for number, record in enumerate(rounds, 1):
            result.train_metrics_clientapp.setdefault(number, _metrics(record, {}))
            found = {name: record[name] for name in ("loss", "accuracy") if record[name] is not None}
            if found and number not in told:
                told[number] = MetricRecord(found)

    def _find_clients(self, grid: Grid, folder: Path | None) -> Roster:
        """Return the node of each client, and the fleet."""
        if self.nodes is not None:
            return given_roster(grid, self.nodes, self.fleet)
        return find_roster(
            grid, fleet=self.fleet, least=self.min_available_nodes, seconds=self.deadline, folder=folder
        )  # fmt: skip

    def _loop(self, nodes: FlowerClients, roster: Roster, initial: Parameters, num_rounds: int) -> Loop:
        """Return the run: nodes under their own clock, or under the simulated one."""
        fleet, training = roster.fleet, self.training
        clients: Clients = nodes
        if self.clock == "simulated":
            if len(roster.clients) < len(fleet):
                raise InputError(
                    name='clock="simulated"',
                    rule=f"have a node for each of {len(fleet)} clients",
                    got=len(roster.clients),
                )
            clients = SimulatedClients(
                workers=GridWorkers(nodes), samples=np.array(roster.samples), fleet=fleet,
                channel=StaticChannel(fleet.compute_time, fleet.upload_time), training=training,
            )  # fmt: skip
        setting = PolicySetting(
            fleet=fleet, cohort_size=training.cohort_size, link=training.link, duplicates=training.duplicates,
            server_momentum=training.server_momentum, options=self.options,
        )  # fmt: skip
        return Loop(
            clients=clients, initial=initial, fleet=fleet, policy=make(self.policy, setting), training=training,
            stop=StopSettings(max_rounds=num_rounds, **self.stop), seed=self.seed,
        )  # fmt: skip

    def _run(
        self, loop: Loop, roster: Roster, num_rounds: int, layout: Layout, folder: Path | None, show: Progress
    ) -> ArrayRecord:
        """Run to the end, with records where there is a folder for them; return the model."""
        if folder is None:
            for record in loop.rounds():
                show(loop, record)
            return layout.pack(loop.model)
        log(INFO, f"records: {folder}")
        files, path = RunFiles(folder, self._header(roster, num_rounds)), folder / MODEL_FILE
        unwritten = [roster]

        def write_roster_and_show(loop: Loop, record: dict[str, Any]) -> None:
            while unwritten:  # while nobody else can write this run
                unwritten.pop().write(folder)
            show(loop, record)

        summary = run_into(files, loop, write_roster_and_show, lambda: _write_model(path, layout.pack(loop.model)))
        if loop.ended is not None:
            return layout.pack(loop.model)
        log(INFO, f"that run ended before, by {summary['end']}: its model is returned, nothing was trained")
        return _read_model(path)

    def _header(self, roster: Roster, num_rounds: int) -> dict[str, Any]:
        """Return what a reader of the records must know: what was given, and what the strategy itself knows."""
        fleet, name = roster.fleet, _name(self.policy)
        told = [fleet.data_share, fleet.gradient_bound, fleet.compute_time, fleet.upload_time]
        told += [np.array(fleet.total_bandwidth), *([] if fleet.bandwidth_cap is None else [fleet.bandwidth_cap])]
        config: dict[str, Any] = {"training": asdict(self.training), "policy": {name: self.options}}
        header: dict[str, Any] = {
            "experiment": "Flower app", "preset": None, "policy": name, "seed": self.seed, "config": config,
            "data": "of the nodes", "data_checksum": _checksum(told), "samples": roster.samples,
            **made_with(),
        } | dict(self.header or {})  # fmt: skip
        limits = {"max_rounds": num_rounds} | {name: value for name, value in self.stop.items() if value is not None}
        config = {"times": {}, **header["config"]}
        config["stop"] = {**config.get("stop", {}), **limits}
        versions = {**header.get("versions", {}), "flwr": version("flwr")}
        return header | {"config": config, "versions": versions} | ({"clock": "wall"} if self.clock == "wall" else {})


def _checksum(arrays: Sequence[npt.NDArray[np.float64]]) -> str:
    return f"{zlib.crc32(b''.join(array.tobytes() for array in arrays)):08x}"


def _write_model(path: Path, arrays: ArrayRecord) -> None:
    with whole_file(path, "wb") as stream:
        np.savez(stream, **{name: array.numpy() for name, array in arrays.items()})  # type: ignore[arg-type]


def _read_model(path: Path) -> ArrayRecord:
    if not path.exists():
        raise InputError(
            name=path.parent, rule="hold the model of the run that has ended there", got="none", remedy="delete it"
        )
    with np.load(path) as saved:
        return ArrayRecord({name: Array(saved[name]) for name in saved.files})


def _name(policy: object) -> str:
    """Return what records call a policy: the same in every process."""
    if isinstance(policy, str):
        return policy
    named = policy if hasattr(policy, "__qualname__") else type(policy)
    return f"{named.__module__}.{named.__qualname__}"


def _metrics(record: Mapping[str, Any], told: Mapping[str, float]) -> MetricRecord:
    """Return what clients told, and what the round was."""
    counted = {"round-time": record["round_time"], "members": len(record["members"]), "failed": len(record["failed"])}
    return MetricRecord({**told, **counted})


def _line(loop: Loop, of: int, record: Mapping[str, Any]) -> str:
    trained = record["phase"] == "train"
    place = f"round {loop.rounds_done - loop.pilot_rounds} of {of}" if trained else f"pilot round {loop.pilot_rounds}"
    loss = "" if record["loss"] is None else f", loss {record['loss']:.4g}"
    reasons = (record.get("note") or {}).get("failures", {})
    shown = {client: reasons.get(str(client), "")[-LONGEST_SHOWN:] for client in record["failed"]}
    failed = "".join(f", {client} failed: {reason}" for client, reason in shown.items())
    return f"{place}: clients {record['members']}, {record['round_time']:.2f} s{loss}{failed}"


def _not_used(name: str) -> NoReturn:
    raise NotImplementedError(f"{name} is not used: call start, which runs the loop of fedtempo")
