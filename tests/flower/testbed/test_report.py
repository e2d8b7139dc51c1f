"""Predicted against measured times of a run on the testbed."""

import pytest

from fedtempo.flower.strategy.failures import FailureKind
from fedtempo.flower.testbed.report import FailureEvent, medians_of, report_lines, report_times
from fedtempo.flower.testbed.running import TestbedRun
from support.testbed_records import FLEET, record, training


def test_uploads_that_wait_in_line_are_predicted_with_their_wait():
    """Of policies that step as updates come in, whatever the link of rounds, and behind those of earlier steps."""
    first = record([(0, 1.0, 1.0, 6.0)], seconds=6.0, staleness=[0])  # from 5 to 6 s
    two = [(1, 1.0, 3.0, 2.0), (2, 1.0, 3.5, 3.0)]  # from 5 and 5.5 s, one after another
    report = report_times([first, record(two, seconds=4.0, staleness=[0, 0])], FLEET, training())
    assert [member.predicted_upload for one in report.rounds for member in one.members] == [1.0, 3.0, 3.5]
    assert [one.predicted_time for one in report.rounds] == [None, None]
    assert medians_of(report).upload_error == 0.0
    assert medians_of(report).predicted_time is None


def test_who_is_drawn_twice_uploads_once_and_computes_for_its_local_steps():
    once = report_times([record([(0, 0.5, 2.0, 5.0), (1, 0.5, 4.0, 7.0)])], FLEET, training("equal"))
    twice = report_times([record([(0, 0.5, 2.0, 5.0), (1, 0.5, 4.0, 7.0)], counts=[3, 1])], FLEET, training("equal"))
    assert twice == once
    assert once.rounds[0].predicted_time == pytest.approx(2.0 + 2.0 / 0.5)
    half = report_times(
        [record([(0, 0.5, 2.0, 5.0), (1, 0.5, 4.0, 7.0)], local_steps=[5, 5])], FLEET, training("equal")
    )
    assert half.rounds[0].predicted_time == pytest.approx(1.0 + 2.0 / 0.5)
    overheads = [report.rounds[0].overhead for report in (once, half)]
    assert overheads == pytest.approx([10.0 - 1.0 - 4.0, 10.0 - 0.5 - 4.0])


def test_a_person_reads_both_times_of_a_round():
    lines = report_lines(report_times([record([(0, 1.0, 1.1, 3.0)], seconds=8.0)], FLEET, training()))
    assert "a round takes 8.0 s in the median, 2.0 s without the engine" in lines
    assert "uploads differ from what was predicted by 10.0% in the median" in lines


def test_failures_are_counted_by_their_kinds():
    """An error whose text begins as a refusal does is still an error, in both formats of records."""
    failures = {
        "0": {"kind": "refused", "detail": "an update must be finite"},
        "1": {"kind": "error", "detail": "refused to start"},
        "2": {"kind": "no_reply", "detail": "within 3 s"},
        "3": "refused: of an earlier format",
    }
    report = report_times([record([], note={"failures": failures})], FLEET, training())
    assert (report.refused, report.failures) == (2, 2)
    what = "no reply within 3 s"
    assert report.events[2] == FailureEvent(round=0, client=2, kind=FailureKind.NO_REPLY, what=what)
    assert report_lines(report)[-4:] == [
        "round 0, client 0: refused: an update must be finite",
        "round 0, client 1: refused to start",
        f"round 0, client 2: {what}",
        "round 0, client 3: refused: of an earlier format",
    ]


def test_the_json_of_a_run_has_the_keys_that_are_documented():
    report = report_times([record([(0, 0.5, 2.0, 5.0)])], FLEET, training())
    table = TestbedRun(report=report, started=True).as_json()
    assert set(table) == {"rounds", "nodes", "refused", "failures", "events"}
    (one,) = table["rounds"]
    assert set(one) == {"round", "predicted_time", "measured_time", "overhead", "loss", "failed", "members"}
    member = {"client", "bandwidth", "predicted_upload", "measured_upload", "upload_ended"}
    assert [set(found) for found in one["members"]] == [member]


def test_smaller_uploads_are_predicted_by_their_bytes():
    """A whole one, and one of 8 bits: by bytes 0.262 of it, with header, scales and a last block that is filled up."""
    numbers = (1000, 0)
    uploads = [(0, 0.5, 2.0, 5.0), (1, 0.5, 2 * 0.262 * 2.0, 7.0)]  # client, share, seconds, end
    whole = report_times([record(uploads)], FLEET, training("equal"))
    found = report_times([record(uploads, upload_bits=[32, 8])], FLEET, training("equal"), numbers)
    share = (8 + 4 * 4 + 1024) / 4000
    before = [one.predicted_upload for one in whole.rounds[0].members]
    assert [one.predicted_upload for one in found.rounds[0].members] == pytest.approx([before[0], share * before[1]])
    assert found.rounds[0].predicted_time < whole.rounds[0].predicted_time
    shared = report_times([record(uploads, upload_bits=[8, 8])], FLEET, training("shared"), numbers)
    assert shared.rounds[0].members[0].predicted_upload == pytest.approx(share * 1.0)
