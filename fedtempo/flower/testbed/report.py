"""What a run on the testbed came to: predicted and measured times side by side."""

from collections.abc import Sequence
from statistics import median

import msgspec

from fedtempo.engine.records import RoundRecord
from fedtempo.engine.settings import TrainingSettings
from fedtempo.fleet import Fleet
from fedtempo.flower.strategy.failures import FailureKind
from fedtempo.flower.strategy.notes import failures_in
from fedtempo.flower.testbed.prediction import ONE_BLOCK, PredictedRound, RoundPredictor, UploadNumbers

LONGEST_EVENT = 100  # characters of what went wrong


class FailureEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One update that did not come, or was refused."""

    round: int
    client: int
    kind: FailureKind
    what: str  # as a person reads it


class TestbedReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run; its fields are the keys of the JSON that ``fedtempo testbed`` writes."""

    __test__ = False  # pytest, which goes by names

    rounds: list[PredictedRound]
    nodes: int
    refused: int  # updates
    failures: int  # of other kinds
    events: list[FailureEvent]


class Medians(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over uploads and rounds; None where there is nothing to take one of."""

    upload_error: float | None  # |measured / predicted - 1|
    spread_of_ends: float | None  # of a round's uploads, over the end of the last
    overhead: float | None  # s of a round that the engine took
    predicted_time: float | None  # s of a round
    measured_time: float | None


def report_times(
    records: Sequence[RoundRecord],
    fleet: Fleet,
    training: TrainingSettings,
    upload_numbers: UploadNumbers = ONE_BLOCK,
) -> TestbedReport:
    """Return the rounds with predicted and measured times, and how many updates were refused or did not come.

    ``upload_numbers``: of the model, parameters and buffers, where uploads have fewer than 32 bits.
    """
    predictor = RoundPredictor(fleet, training, upload_numbers)
    events = [
        FailureEvent(round=number, client=client, kind=failure.kind, what=str(failure))
        for number, record in enumerate(records)
        for client, failure in failures_in(record).items()
    ]
    refused = sum(event.kind is FailureKind.REFUSED for event in events)
    return TestbedReport(
        rounds=[predictor.follow(record) for record in records],
        nodes=len(fleet),
        refused=refused,
        failures=len(events) - refused,
        events=events,
    )


def medians_of(report: TestbedReport) -> Medians:
    """Return how far off uploads are, how far apart they end, what rounds take and what of that is the engine's."""
    uploads = [member for one in report.rounds for member in one.members]
    ends = [[member.upload_ended for member in one.members] for one in report.rounds]
    predicted = [one for one in report.rounds if one.predicted_time is not None]
    return Medians(
        upload_error=_median([abs(one.measured_upload / one.predicted_upload - 1) for one in uploads]),
        spread_of_ends=_median([(max(some) - min(some)) / max(some) for some in ends if len(some) > 1]),
        overhead=_median([one.overhead for one in report.rounds]),
        predicted_time=_median([one.predicted_time for one in predicted]),
        measured_time=_median([one.measured_time for one in predicted]),
    )


def report_lines(report: TestbedReport) -> list[str]:
    """Return in words what the run came to."""
    medians, measured = medians_of(report), sum(one.measured_time for one in report.rounds)
    lines = [f"rounds: {len(report.rounds)}, nodes: {report.nodes}, {measured:,.0f} s in all"]
    if medians.upload_error is not None:
        lines.append(f"uploads differ from what was predicted by {medians.upload_error:.1%} in the median")
    if medians.spread_of_ends is not None:
        lines.append(f"uploads of a round end within {medians.spread_of_ends:.1%} of each other in the median")
    if medians.predicted_time is not None:
        without = f"{medians.predicted_time:.1f} s without the engine"
        lines.append(f"a round takes {medians.measured_time:.1f} s in the median, {without}")
    if medians.overhead is not None:
        lines.append(f"the engine's own overhead is {medians.overhead:.1f} s a round in the median")
    lines.append(f"{report.refused} updates refused, {report.failures} failures")
    lines += [f"round {one.round}, client {one.client}: {one.what[:LONGEST_EVENT]}" for one in report.events]
    return lines


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
