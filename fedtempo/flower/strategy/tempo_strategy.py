"""A Flower strategy that lets a fedtempo policy decide who trains, how often and with what bandwidth.

    strategy = TempoStrategy("tempo", cohort_size=4, step_size=0.05, local_steps=50)
    strategy.start(grid=grid, initial_arrays=ArrayRecord(model.state_dict()), num_rounds=20)

``start`` runs fedtempo's own loop in place of Flower's: policies may step as updates arrive, ask before they plan, or
start again from w₀, which Flower's loop of rounds does not know. ``configure_train`` and ``aggregate_train`` are
therefore not used, and say so.
"""

import time
from collections.abc import Iterable, Mapping
from logging import INFO
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedtempo.checks import check_count
from fedtempo.engine.loop import Loop
from fedtempo.engine.records import RECORDS, RoundRecord, read_records
from fedtempo.engine.run import Progress
from fedtempo.engine.settings import TrainingSettings, check_training_names
from fedtempo.fleet import Fleet
from fedtempo.flower.inner.uploads import notice_ends_of_uploads
from fedtempo.flower.link.allotment import Link
from fedtempo.flower.log import log
from fedtempo.flower.strategy.evaluation import EvaluateFunction
from fedtempo.flower.strategy.flower_run import FlowerRun, StartRequest
from fedtempo.flower.strategy.messenger import LONGEST_POLL_SECONDS, POLL_SECONDS
from fedtempo.flower.strategy.progress import complete, round_line, round_metrics
from fedtempo.flower.strategy.roster import Roster, find_roster, named_roster
from fedtempo.flower.strategy.run_header import check_header, run_header
from fedtempo.flower.strategy.settings import Clock, Evaluator, StrategySettings
from fedtempo.policies.registry import PolicyLike

DEFAULT_DEADLINE = 600.0  # s
REAL_TRAINING = {"duplicates": "physical"}  # nobody uploads the same thing twice
USUAL_TRAINING: dict[str, Any] = {"schedule": "constant", "link": "shared", **REAL_TRAINING}


class TempoStrategy(Strategy):
    """Who trains, how often and with what bandwidth: a policy decides, Flower nodes train.

    - ``policy``: a name (``fedtempo policies`` lists them), a function from fleet to q, a class that takes a
      ``PolicySetting``, or a policy; ``options``: its options, by name.
    - ``fleet``: data shares and nominal times (seconds) of the clients; without one, nodes report how many examples
      they have, and times are learned.
    - ``nodes``: the client that each node id stands for; without it, nodes report their partition-id.
    - ``min_available_nodes``: so many must be connected at the start.
    - ``clock``: "wall" takes the seconds that rounds really take, "simulated" those that they would take by the
      fleet's times, for Flower's simulation.
    - ``uplink``: the link that enforces and measures the bandwidth of uploads.
    - ``evaluate``: who evaluates the global loss: "server", the function given to ``start``, or "clients".
    - ``deadline``: seconds that a client has to report; a round ends without those who have not.
    - ``target_loss``, ``target_accuracy`` (0 to 1), ``max_time`` (seconds of training): ends before the last round.
    - ``seed``: of cohorts.
    - ``records``: a folder to write records and at the end the model to, and to go on from; ``header``: fields of
      their header that lie over the strategy's own.
    - ``progress``: called with the loop and the record of each round.
    - ``training``: ``cohort_size``, the clients drawn in each round, and as for ``fedtempo.simulate``
      ``local_steps``, ``step_size``, ``schedule``, ``server_momentum``, ``link``, ``upload_bits``, ``server_average``,
      ``server_optimiser``, ``server_step_size``, ``local_direction`` and so on.
    """

    def __init__(
        self,
        policy: PolicyLike = "tempo",
        *,
        options: Mapping[str, object] | None = None,
        fleet: Fleet | None = None,
        nodes: Mapping[int, int] | None = None,
        min_available_nodes: int = 2,
        clock: Clock = "wall",
        uplink: Link | None = None,
        evaluate: Evaluator = "server",
        deadline: float = DEFAULT_DEADLINE,
        target_loss: float | None = None,
        target_accuracy: float | None = None,
        max_time: float | None = None,
        seed: int = 0,
        records: Path | str | None = None,
        header: Mapping[str, object] | None = None,
        progress: Progress | None = None,
        **training: Any,  # noqa: ANN401
    ) -> None:
        """Check the settings; nodes are looked for at the start."""
        check_training_names("TempoStrategy", training, with_cohort=True)
        check_header(header)
        ends = {"target_loss": target_loss, "target_accuracy": target_accuracy, "max_time": max_time}
        self.settings = StrategySettings(
            policy=policy,
            options=dict(options or {}),
            fleet=fleet,
            nodes=nodes,
            min_available_nodes=min_available_nodes,
            clock=clock,
            uplink=uplink,
            evaluated_by=evaluate,
            deadline=deadline,
            seed=seed,
            ends={name: value for name, value in ends.items() if value is not None},
            training=TrainingSettings(**(USUAL_TRAINING | training | (REAL_TRAINING if clock == "wall" else {}))),
            named=frozenset(training),
        )
        self.records, self.header, self.progress = records, header, progress

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
        """Train for so many rounds, or to a target or limit of the strategy; return the model and all metrics.

        - ``grid``: Flower's way to the nodes.
        - ``initial_arrays``: the model to start from.
        - ``num_rounds``: rounds of training at most; pilots of a policy come before them.
        - ``timeout``: seconds that a client has to report, where that is less than the strategy's deadline.
        - ``train_config``, ``evaluate_config``: what clients get in the config of each message; ``lr`` and
          ``local-steps`` count where the strategy was given no ``step_size`` and ``local_steps``.
        - ``evaluate_fn``: returns metrics of the model after a round, given the round's number and the model; the first
          whose name is that of a loss counts.
        """
        began = time.monotonic()
        notice_ends_of_uploads(POLL_SECONDS, LONGEST_POLL_SECONDS)
        self.summary()
        request = StartRequest(
            initial_arrays=initial_arrays,
            num_rounds=check_count("num_rounds", num_rounds),
            timeout=timeout,
            train_config=dict(train_config or {}),
            evaluate_config=dict(evaluate_config or {}),
            evaluate=evaluate_fn,
        )
        settings = self.settings.with_config(request.train_config)
        settings.check_evaluated(on_the_server=evaluate_fn is not None)
        folder = None if self.records is None else Path(self.records).absolute()
        roster = _find_roster(settings, grid, folder)
        settings.check_fleet(roster.fleet, len(roster.clients))
        run = FlowerRun(settings, request, grid, roster, folder)
        try:
            header = None if folder is None else run_header(settings, roster, num_rounds, self.header)
            run.result.arrays = run.train(header, self._show(run, num_rounds))
        finally:
            run.close()
        return _finished(run, time.monotonic() - began)

    def summary(self) -> None:
        """Log what was chosen."""
        training = self.settings.training
        chosen = f"policy {self.settings.policy_name}, cohorts of {training.cohort_size}, link {training.link}"
        log(INFO, f"\t└──> {chosen}")

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

    def _show(self, run: FlowerRun, num_rounds: int) -> Progress:
        """Return what is called after each round."""

        def show(loop: Loop, record: RoundRecord) -> None:
            run.result.train_metrics_clientapp[loop.state.rounds_done] = round_metrics(record, run.metrics)
            log(INFO, round_line(loop, num_rounds, record))
            if self.progress is not None:
                self.progress(loop, record)

        return show


def _find_roster(settings: StrategySettings, grid: Grid, folder: Path | None) -> Roster:
    """Return the node of each client, and the fleet."""
    if settings.nodes is not None:
        return named_roster(grid, settings.nodes, settings.fleet)
    return find_roster(
        grid,
        fleet=settings.fleet,
        least=settings.min_available_nodes,
        seconds=settings.deadline,
        folder=folder,
    )


def _finished(run: FlowerRun, seconds: float) -> Result:
    """Return the result of a run, complete with what its records know; ``seconds``: since ``start`` was called."""
    if run.folder is not None:
        by_clients = run.settings.evaluated_by == "clients"
        complete(run.result, read_records(run.folder / RECORDS), by_clients=by_clients)
    if run.loop.ended is not None:
        state, whole = run.loop.state, f"{seconds:.1f} s with start and evaluations"
        log(INFO, f"{state.rounds_done} rounds in {state.time:.1f} s ({whole}), ended by {run.loop.ended}")
    return run.result


def _not_used(name: str) -> NoReturn:
    raise NotImplementedError(f"{name} is not used: call start, which runs the loop of fedtempo")
