"""What a person sees of a run on the testbed."""

import io

from rich.console import Console

from fedtempo.engine.records import Header, HeaderLine, encode
from fedtempo.flower.testbed.records_tail import RecordsTail
from fedtempo.flower.testbed.running import Started, Starting
from fedtempo.flower.testbed.screen import NodesTable, Screen
from support.testbed_records import FLEET, record, training

HEADER = HeaderLine(
    Header(experiment="", preset=None, policy="uniform", seed=0, config={}, data_checksum="", samples=[1])
)  # fmt: skip


def started(rounds_done=0):
    return Started(fleet=FLEET, training=training(), rounds=5, rounds_done=rounds_done, model_bits=8e6)


def test_the_table_tells_pilots_from_rounds():
    shown = NodesTable(started())
    lines = []
    for phase in ("pilot-uniform", "pilot-weighted", "train"):
        shown.take(record([(0, 1.0, 1.0, 3.0)], phase=phase))
        lines.append(shown.line().split(",")[0])
    assert lines == ["pilot round 1", "pilot round 2", "round 1 of 5"]
    assert shown.drawn == [3, 0, 0, 0]


def test_a_run_that_goes_on_is_shown_from_its_start(tmp_path):
    """What came after the checkpoint is cut off and comes again, otherwise."""
    path, shown = tmp_path / "records.jsonl", NodesTable(started())
    rounds = [record([(0, 1.0, 1.0 + number, 3.0)], round=number) for number in range(6)]
    lines = RecordsTail(path)
    again = [HEADER, *rounds[:1], *rounds[4:]]
    for written in ([HEADER, *rounds[:3]], again, again):
        path.write_bytes(b"".join(encode(one) for one in written))
        for one in lines:
            shown.take(one)
        assert (shown.done, shown.drawn[0]) == (3, 3)


def lines_of(*events):
    """Return what is printed of some events, outside of a terminal."""
    text = io.StringIO()
    with Screen(Console(file=text, width=120)) as screen:
        for event in events:
            screen.show(event)
    return text.getvalue().splitlines()


def test_outside_of_a_terminal_each_new_round_has_a_line_and_the_table_comes_last():
    failed = record([(0, 0.5, 2.0, 5.0)], failed=[0], note={"failures": {"0": {"kind": "lost", "detail": ""}}})
    lines = lines_of(Starting(4), started(rounds_done=1), HEADER, record([(0, 0.5, 2.0, 5.0)]), failed)
    assert lines[:3] == [
        "starting a SuperLink and 4 SuperNodes",
        "all nodes are connected; the run goes on after round 1",
        "round 2 of 5, 10 s, loss 1.0000",
    ]
    assert "drawn" in lines[4]
    assert [line.split("│")[-2].strip() for line in lines[6:10]] == ["lost", "", "", ""]
