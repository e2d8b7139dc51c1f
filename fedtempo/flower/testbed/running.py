"""A policy on the testbed, from the request to the report."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from fedtempo.engine.records import Records
from fedtempo.engine.settings import TrainingSettings
from fedtempo.experiments.settings.config import for_policy
from fedtempo.fleet import Fleet
from fedtempo.flower.testbed.earlier_records import earlier_records, holds_all
from fedtempo.flower.testbed.federation import Testbed
from fedtempo.flower.testbed.prediction import ONE_BLOCK, UploadNumbers
from fedtempo.flower.testbed.records_tail import RecordLine
from fedtempo.flower.testbed.report import Medians, TestbedReport, medians_of, report_lines, report_times
from fedtempo.flower.testbed.request import TestbedRequest
from fedtempo.flower.testbed.sweeper import swept_folder
from fedtempo.policies.policy import Policy
from fedtempo.policies.proposed import PILOTS, PilotedSampling

ENGINE_SECONDS = 60.0  # that a round may take beyond its deadline


@dataclass(frozen=True, slots=True)
class Starting:
    """So many SuperNodes, and a SuperLink, are about to start."""

    nodes: int


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Started:
    """All nodes are connected; the run starts, or goes on."""

    fleet: Fleet
    training: TrainingSettings
    rounds: int  # that it is to have
    rounds_done: int  # by an earlier run, pilots included
    model_bits: float  # of an upload of 32 bits a number
    upload_numbers: UploadNumbers = ONE_BLOCK


Event: TypeAlias = Starting | Started | RecordLine
Show: TypeAlias = Callable[[Event], None]


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class TestbedRun:
    """What a run came to."""

    __test__ = False  # pytest, which goes by names

    report: TestbedReport
    started: bool  # False: an earlier run's records hold all rounds already

    @property
    def summary(self) -> Medians:
        """Medians over uploads and rounds."""
        return medians_of(self.report)

    def as_json(self) -> object:
        """Return the report as values of JSON."""
        return msgspec.to_builtins(self.report)

    def lines(self) -> list[str]:
        """Return in words what the run came to."""
        return report_lines(self.report)


def run_testbed(request: TestbedRequest, show: Show = lambda event: None) -> TestbedRun:
    """Run one policy on a federation of its own, or go on with its records; show what happens meanwhile."""
    settings = request.settings()
    found = earlier_records(request)
    complete = holds_all(found, settings.table, request.rounds)
    with swept_folder("fedtempo-testbed-") as folder:
        bed = Testbed(settings, folder)
        timeout = (request.rounds + _pilot_rounds(bed.make_policy(request.policy))) * (
            request.deadline + ENGINE_SECONDS
        )
        if found is None or not complete:
            found = _run(bed, request, timeout, 0 if found is None else len(found.rounds), show)
    training, _ = for_policy(bed.experiment, request.policy)
    report = report_times(found.rounds, bed.fleet, training, bed.problem.upload_numbers)
    return TestbedRun(report=report, started=not complete)


def _pilot_rounds(policy: Policy) -> int:
    """Return how many rounds come before those of training, at most."""
    return policy.pilots.max_rounds * len(PILOTS) if isinstance(policy, PilotedSampling) else 0


def _run(bed: Testbed, request: TestbedRequest, timeout: float, rounds_done: int, show: Show) -> Records:
    """Start the federation, run for at most so many seconds, and end it; return all records."""
    training, _ = for_policy(bed.experiment, request.policy)
    show(Starting(bed.num_nodes))
    with bed:
        show(
            Started(
                fleet=bed.fleet,
                training=training,
                rounds=request.rounds,
                rounds_done=rounds_done,
                model_bits=bed.model_bits,
                upload_numbers=bed.problem.upload_numbers,
            )
        )
        return bed.run(
            request.policy,
            rounds=request.rounds,
            seed=request.seed,
            records=request.records or bed.folder / "records",
            timeout=timeout,
            show=show,
        )
