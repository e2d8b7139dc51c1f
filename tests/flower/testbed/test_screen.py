"""What a person sees of a run on the testbed."""

import json

import numpy as np

from fedtempo.flower.testbed.federation import _Tail
from fedtempo.flower.testbed.report import report_on, summary_of
from fedtempo.flower.testbed.screen import NodesTable, summary_lines
from support.testbed_records import FLEET, record, training


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
