"""Predicted against measured times of a run on the testbed."""

import json

import numpy as np
import pytest

from fedtempo import Fleet
from fedtempo.engine.settings import TrainingSettings
from fedtempo.flower.testbed.screen import NodesTable, summary_lines
from fedtempo.flower.testbed.federation import _Tail
from fedtempo.flower.testbed.report import report_on, summary_of

FLEET = Fleet([0.25] * 4, [1.0] * 4, [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 1.0, 2.0])


def record(uploads, *, seconds=10.0, **more):
    """Return the record of a round with uploads as (client, share, seconds, end)."""
    members = [client for client, *_ in uploads]
    return {
        "phase": "train", "time": seconds, "round_time": seconds, "loss": 1.0, "members": members, "failed": [],
        "counts": [1] * len(members), "compute_time": [1.0] * len(members), "local_steps": [10] * len(members),
        "note": {
            "uploads": {str(c): {"share": share, "seconds": s, "end": end, "bytes": 1} for c, share, s, end in uploads}
        },
    } | more  # fmt: skip


def training(link="paper", duplicates="paper"):
    return TrainingSettings(cohort_size=2, local_steps=10, link=link, duplicates=duplicates)


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


def test_a_person_reads_both_times_of_a_round():
    report = report_on([record([(0, 1.0, 1.1, 3.0)], seconds=8.0)], FLEET, training())
    lines = summary_lines(report, summary_of(report))
    assert "a round takes 8.0 s in the median, 2.0 s without the engine" in lines
    assert "uploads differ from what was predicted by 10.0% in the median" in lines


def test_the_table_tells_pilots_from_rounds():
    shown = NodesTable(FLEET, training(), 5, 8e6)
    lines = []
    for phase in ("pilot-uniform", "pilot-weighted", "train"):
        shown.take(record([(0, 1.0, 1.0, 3.0)], phase=phase))
        lines.append(shown.line().split(",")[0])
    assert lines == ["pilot round 1", "pilot round 2", "round 1 of 5"]
    assert np.array(shown.drawn).tolist() == [3, 0, 0, 0]


def test_a_run_that_goes_on_is_shown_from_its_start(tmp_path):
    """What came after the checkpoint is cut off and comes again, otherwise."""
    path, shown = tmp_path / "records.jsonl", NodesTable(FLEET, training(), 5, 8e6)
    header = {"header": {}}
    rounds = [record([(0, 1.0, 1.0 + number, 3.0)]) | {"round": number} for number in range(6)]
    lines = _Tail(path)
    again = [header, *rounds[:1], *rounds[4:]]
    for there in ([header, *rounds[:3]], again, again):
        path.write_text("".join(json.dumps(one) + "\n" for one in there))
        for one in lines:
            shown.take(one)
        assert (shown.done, shown.drawn[0]) == (3, 3)
