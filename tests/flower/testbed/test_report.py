"""Predicted against measured times of a run on the testbed."""

import pytest

from fedtempo.flower.testbed.report import report_on, summary_of
from support.testbed_records import FLEET, record, training


def test_uploads_that_wait_in_line_are_predicted_with_their_wait():
    """Of policies that step as updates come in, whatever the link of rounds, and behind those of earlier steps."""
    first = record([(0, 1.0, 1.0, 6.0)], seconds=6.0)  # from 5 to 6 s
    later = record([(1, 1.0, 3.0, 2.0), (2, 1.0, 3.5, 3.0)], seconds=4.0)  # from 5 and 5.5 s, one after another
    for one in (first, later):
        one["note"]["staleness"] = [0] * len(one["members"])
    report = report_on([first, later], FLEET, training())
    assert [m["predicted_upload"] for one in report["rounds"] for m in one["members"]] == [1.0, 3.0, 3.5]
    assert [one["predicted_time"] for one in report["rounds"]] == [None, None]
    assert summary_of(report)["upload_error"] == 0.0


def test_who_is_drawn_twice_uploads_once_and_computes_as_long_as_it_was_told():
    once = report_on([record([(0, 0.5, 2.0, 5.0), (1, 0.5, 4.0, 7.0)])], FLEET, training("equal"))
    twice = report_on([record([(0, 0.5, 2.0, 5.0), (1, 0.5, 4.0, 7.0)], counts=[3, 1])], FLEET, training("equal"))
    assert twice == once
    assert once["rounds"][0]["predicted_time"] == pytest.approx(2.0 + 2.0 / 0.5)
    half = report_on([record([(0, 0.5, 2.0, 5.0), (1, 0.5, 4.0, 7.0)], local_steps=[5, 5])], FLEET, training("equal"))
    assert half["rounds"][0]["predicted_time"] == pytest.approx(1.0 + 2.0 / 0.5)
    overheads = [report["rounds"][0]["overhead"] for report in (once, half)]
    assert overheads == pytest.approx([10.0 - 1.0 - 4.0, 10.0 - 0.5 - 4.0])
