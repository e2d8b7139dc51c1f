"""Lines of records: what is written is read back, of this format and of the first; whatever else is refused."""

import json
import math

import msgspec
import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.engine.records import (
    FORMAT,
    RECORDS,
    HeaderLine,
    RoundRecord,
    Summary,
    decode_line,
    encode,
    read_header,
    read_records,
)
from fedtempo.engine.run_folder import RunFolder
from support.grids import made_up

RUN = made_up("uniform", 0, [2.0, None, 1.0], 1.0)
LINES = [HeaderLine(RUN.header), *RUN.records, RUN.summary]
NOT_TEXT = b"\xff"


def written(folder, lines):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORDS).write_bytes(b"".join(lines))
    return folder / RECORDS


def edited(number, change):
    """Return the lines of a run with one of them, counted from 1, changed."""
    lines = [encode(line) for line in LINES]
    values = json.loads(lines[number - 1])
    change(values)
    lines[number - 1] = json.dumps(values).encode() + b"\n"
    return lines


def test_what_is_written_is_read_back(tmp_path):
    found = read_records(written(tmp_path, map(encode, LINES)))
    assert (found.header, found.rounds, found.summary) == (RUN.header, RUN.records, RUN.summary)
    assert read_header(tmp_path / RECORDS) == RUN.header
    assert [decode_line(encode(line), "it", "line 1") for line in LINES] == LINES


@pytest.mark.parametrize(("whole", "rounds"), [(0, 0), (1, 0), (3, 2), (4, 3)])
def test_a_run_is_read_as_far_as_it_was_written(tmp_path, whole, rounds):
    lines = [encode(line) for line in LINES]
    found = read_records(written(tmp_path, [*lines[:whole], lines[whole][:-5]]))
    assert (found.header is None, len(found.rounds), found.summary) == (whole == 0, rounds, None)


def test_numbers_of_numpy_and_what_is_no_number_are_written(tmp_path):
    record = msgspec.structs.replace(
        RUN.records[0], round=np.int64(4), note={"share": np.float32(0.5), "each": np.arange(3), "far": math.inf}
    )
    line = decode_line(encode(record), "it", "line 2")
    assert (line.round, line.notes) == (4, {"share": 0.5, "each": [0, 1, 2], "far": None})
    assert RUN.records[0].notes == {}
    with pytest.raises(TypeError, match="records hold JSON values, got function"):
        encode(msgspec.structs.replace(record, note={"policy": lambda: None}))


def test_fields_can_be_read_by_name():
    record = RUN.records[0]
    assert (record["loss"], record.get("loss"), "loss" in record) == (2.0, 2.0, True)
    assert ("note" in record, record.get("note", 5), "keys" in record) == (False, 5, False)
    assert dict(record) == json.loads(encode(record))
    for name in ("note", "keys", "other"):
        with pytest.raises(KeyError, match=name):
            record[name]


def test_records_of_the_first_format_are_read(tmp_path):
    """They name no format, and have infinite settings and numbers of notes as Python writes them."""

    def first(values):
        del values["header"]["format"]
        values["header"]["config"]["policy"] = {"tempo": {"largest_factor": math.inf}}

    lines = edited(1, first)
    lines[1:3] = edited(2, lambda values: values.update(note={"failures": {"0": "gone"}, "far": math.nan}))[1:3]
    assert b"Infinity" in lines[0]
    assert b"NaN" in lines[1]
    found = read_records(written(tmp_path, lines))
    assert found.header.format == read_header(tmp_path / RECORDS).format == 1
    assert found.header.config["policy"] == {"tempo": {"largest_factor": math.inf}}
    assert found.rounds[0].notes["failures"] == {"0": "gone"}
    assert math.isnan(found.rounds[0].notes["far"])
    assert (found.rounds[1:], found.summary) == (RUN.records[1:], RUN.summary)


@pytest.mark.parametrize("more", [{}, {"later": 1}, {"seed": "another kind"}])
def test_records_of_a_later_format_are_refused_as_such(tmp_path, more):
    lines = edited(1, lambda values: values["header"].update(format=FORMAT + 1, **more))
    path = written(tmp_path / "run", lines)
    said = f"{path} must be of format {FORMAT} or before, got {FORMAT + 1}; read it with the code that wrote it"
    for read in (
        lambda: read_records(path),
        lambda: read_header(path),
        lambda: decode_line(lines[0], path, "line 1"),
        lambda: RunFolder(path.parent, RUN.header).open(),
    ):
        with pytest.raises(InputError) as caught:
            read()
        assert str(caught.value) == said
    assert path.read_bytes() == b"".join(lines), "whoever goes on with a run leaves it as it was"


@pytest.mark.parametrize(
    ("number", "change", "said"),
    [
        (1, lambda values: values["header"].update(later=1), "unknown field `later`"),
        (1, lambda values: values["header"].pop("policy"), "missing required field `policy`"),
        (1, lambda values: values["header"].update(seed="0"), "Expected `int`, got `str`"),
        (1, lambda values: values.update(later=1), "unknown field `later`"),
        (1, lambda values: values.pop("header"), "missing required field `header`"),
        (2, lambda values: values.update(later=1), "unknown field `later`"),
        (3, lambda values: values.pop("loss"), "missing required field `loss`"),
        (4, lambda values: values.update(members=["a"]), "Expected `int`, got `str`"),
        (4, lambda values: values.update(aggregate_norm=None), "Expected `float`, got `null`"),
        (5, lambda values: values.update(later=1), "unknown field `later`"),
        (5, lambda values: values.pop("time"), "missing required field `time`"),
        (5, lambda values: values.update(end="never"), "Invalid enum value 'never'"),
    ],
)
def test_a_line_of_another_shape_is_refused_in_a_sentence(tmp_path, number, change, said):
    path = written(tmp_path, edited(number, change))
    with pytest.raises(InputError) as caught:
        read_records(path)
    start = f"{path} must hold the records of a run, got something else in line {number}: "
    assert str(caught.value).startswith(start)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("number", [1, 2, 4, 5])
@pytest.mark.parametrize(
    "line", [b"no records\n", b"\n", b"[" * 100_000 + b"\n", b"null\n", b"[1]\n", b'{"end":"' + NOT_TEXT + b'"}\n']
)
def test_what_is_no_line_is_refused_in_a_sentence(tmp_path, number, line):
    lines = [encode(line) for line in LINES]
    lines[number - 1] = line
    path = written(tmp_path, lines)
    with pytest.raises(InputError, match=f"must hold the records of a run, got something else in line {number}: "):
        read_records(path)


def test_a_line_is_what_it_says_it_is():
    kinds = [type(decode_line(encode(line), "it", "line 1")) for line in LINES]
    assert kinds == [HeaderLine, RoundRecord, RoundRecord, RoundRecord, Summary]
    with pytest.raises(InputError, match="it must hold the records of a run, got something else in line 9: "):
        decode_line(b"{}\n", "it", "line 9")
