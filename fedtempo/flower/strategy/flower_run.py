"""One run of a strategy: the loop, the nodes that train in it, and what it leaves behind."""

from collections.abc import Mapping
from dataclasses import dataclass
from logging import INFO
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from fedtempo.engine.clients import Clients
from fedtempo.engine.loop import Loop, LoopSettings
from fedtempo.engine.records import Header, RoundRecord
from fedtempo.engine.run import Progress, run_into
from fedtempo.engine.run_folder import RunFolder
from fedtempo.engine.settings import policy_setting
from fedtempo.engine.upload_sizes import reference_share, uploads_of, with_upload_share
from fedtempo.flower.log import log
from fedtempo.flower.strategy.dispatch import Dispatch
from fedtempo.flower.strategy.evaluation import ClientsEvaluation, EvaluateFunction, GlobalLoss
from fedtempo.flower.strategy.grid_workers import GridWorkers
from fedtempo.flower.strategy.layout import Layout
from fedtempo.flower.strategy.messages import MessageConfig
from fedtempo.flower.strategy.messenger import Messenger
from fedtempo.flower.strategy.model_file import read_model, write_model
from fedtempo.flower.strategy.newcomers import Newcomers
from fedtempo.flower.strategy.nodes import FlowerClients
from fedtempo.flower.strategy.roster import Roster
from fedtempo.flower.strategy.settings import StrategySettings
from fedtempo.learning.quantisation import Quantiser
from fedtempo.policies.registry import make
from fedtempo.simulator.channel import StaticChannel
from fedtempo.simulator.simulated_clients import SimulatedClients


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class StartRequest:
    """What ``start`` of a strategy was given."""

    initial_arrays: ArrayRecord
    num_rounds: int
    timeout: float  # s
    train_config: MessageConfig
    evaluate_config: MessageConfig
    evaluate: EvaluateFunction | None


class FlowerRun:
    """A run at its start; making it sends no message and evaluates nothing."""

    def __init__(
        self, settings: StrategySettings, request: StartRequest, grid: Grid, roster: Roster, folder: Path | None
    ) -> None:
        """Take the nodes of the roster; ``folder``: where records go."""
        self.settings, self.roster, self.folder = settings, roster, folder
        self.layout, self.result = Layout.of(request.initial_arrays), Result()
        self.messenger = Messenger(grid, roster.nodes, len(roster.fleet))
        self.newcomers = Newcomers(grid, roster, settings.fleet, folder) if settings.nodes is None else None
        self.fleet = with_upload_share(roster.fleet, reference_share(settings.training, *self._upload_numbers))
        self.deadline = min(settings.deadline, request.timeout)
        self.loss = self._loss(request)
        self.workers = self._workers(request.train_config)
        self.loop = self._loop(request.num_rounds)
        self.loss.rounds_done = lambda: self.loop.state.rounds_done

    @property
    def metrics(self) -> Mapping[str, float]:
        """What apps reported of their own in the last round, on average."""
        return self.workers.metrics

    def train(self, header: Header | None, show: Progress) -> ArrayRecord:
        """Run to the end, with records where there is a folder for them; return the model."""
        if self.folder is None or header is None:
            for record in self.loop.rounds():
                show(self.loop, record)
            return self._arrays()
        return self._train_into(self.folder, header, show)

    def close(self) -> None:
        """Wait for no reply any longer."""
        self.messenger.forget_all()
        if self.newcomers is not None:
            self.newcomers.forget_all()

    def _train_into(self, folder: Path, header: Header, show: Progress) -> ArrayRecord:
        log(INFO, f"records: {folder}")
        unwritten = [self.roster]

        def write_roster_and_show(loop: Loop, record: RoundRecord) -> None:
            while unwritten:  # while nobody else can write this run
                unwritten.pop().write(folder)
            show(loop, record)

        files = RunFolder(folder, header)
        summary = run_into(files, self.loop, write_roster_and_show, lambda: write_model(folder, self._arrays()))
        if self.loop.ended is not None:
            return self._arrays()
        log(INFO, f"that run ended before, by {summary.end}: its model is returned, nothing was trained")
        return read_model(folder)

    def _arrays(self) -> ArrayRecord:
        return self.layout.pack(self.loop.model, self.loop.buffers)

    def _loss(self, request: StartRequest) -> GlobalLoss:
        clients = None
        if self.settings.evaluated_by == "clients":
            clients = ClientsEvaluation(self.messenger, self.roster.fleet, request.evaluate_config, self.deadline)
        return GlobalLoss(self.layout, self.result, request.evaluate, clients)

    @property
    def _upload_numbers(self) -> tuple[int, int]:
        """How many numbers an upload has: parameters, and buffers beside them."""
        return self.layout.num_parameters, self.layout.num_buffers

    def _workers(self, config: MessageConfig) -> FlowerClients | GridWorkers:
        """Return the nodes: under their own clock, or as workers under the simulated one."""
        settings, fleet = self.settings, self.fleet
        dispatch = Dispatch(
            self.messenger,
            self.layout,
            config,
            quantiser=Quantiser(settings.seed),
            local_direction=settings.training.local_direction,
        )
        if settings.clock == "simulated":
            return GridWorkers(
                dispatch,
                fleet=fleet,
                training=settings.training,
                loss=self.loss,
                deadline=self.deadline,
                newcomers=self.newcomers,
            )
        return FlowerClients(
            dispatch,
            fleet=fleet,
            training=settings.training,
            loss=self.loss,
            deadline=self.deadline,
            link=settings.uplink,
            newcomers=self.newcomers,
        )

    def _clients(self) -> Clients:
        if isinstance(self.workers, FlowerClients):
            return self.workers
        fleet = self.fleet
        return SimulatedClients(
            workers=self.workers,
            samples=np.array(self.roster.samples),
            fleet=fleet,
            channel=StaticChannel(fleet.compute_time, fleet.upload_time),
            training=self.settings.training,
        )

    def _loop(self, num_rounds: int) -> Loop:
        settings, fleet = self.settings, self.fleet
        uploads = uploads_of(settings.training, *self._upload_numbers)
        # An app may run a number of steps of its own.
        setting = policy_setting(fleet, settings.training, settings.options, None, plain_paths=False, **uploads)
        loop = LoopSettings(
            fleet=fleet,
            policy=make(settings.policy, setting),
            training=settings.training,
            stop=settings.stop(num_rounds),
            seed=settings.seed,
        )
        return Loop(loop, self._clients(), self.layout.initial_model, self.layout.initial_buffers)
