"""Records as tables for other tools: a row for each round, or for each run."""

import csv
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args, get_origin, get_type_hints

from fedtempo.checks import InputError, MissingDependencyError, check_choice
from fedtempo.engine.records import RoundRecord, Summary, find_runs
from fedtempo.experiments.running.results import Run, read_run
from fedtempo.files import whole_file

if TYPE_CHECKING:
    import pandas as pd

NAMES_OF_RUN = ("experiment", "preset", "policy", "seed")  # of its header
NAMES_OF_ROUND = tuple(name for name in RoundRecord.__struct_fields__ if name != "note")
NAMES_OF_SUMMARY = tuple(name for name in Summary.__struct_fields__ if name != "error")

Row = dict[str, object]
Kind = Literal["rounds", "runs"]


def read_runs(folders: Path | str | Sequence[Path | str], kind: Kind = "rounds") -> "pd.DataFrame":
    """Return the records of all runs in a folder and below, or in several folders, as a data frame.

    ``kind`` "rounds" gives a row for each round, pilots included, with lists where a round has a number for each of
    its members; "runs" gives a row for each run with its summary, or with what there is so far of a run that has not
    ended, whose ``end`` is missing. Numbers that are missing are NaN. Times are in seconds.
    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingDependencyError("pandas", "a data frame") from None
    check_choice("kind", kind, get_args(Kind))
    several = [folders] if isinstance(folders, Path | str) else folders
    runs = [read_run(path) for path in find_runs([Path(folder) for folder in several])]
    if kind == "runs":
        frame = pd.DataFrame([summary_of(run) for run in runs])
        hints = get_type_hints(Summary)
    else:
        frame = pd.DataFrame([_with_nan(row) for run in runs for row in rows_of(run)], columns=_round_columns())
        hints = get_type_hints(RoundRecord)
    numbers = [name for name in frame.columns if float in (hints.get(name), *get_args(hints.get(name)))]
    return frame.astype({name: "float64" for name in numbers if get_origin(hints[name]) is not list})


def export_rounds(paths: Sequence[Path], target: Path) -> int:
    """Write one row for each round of some runs as Parquet or CSV, by the ending; return how many."""
    rows = [row for path in paths for row in rows_of(read_run(path))]
    if target.suffix == ".csv":
        _write_csv(rows, target)
    elif target.suffix == ".parquet":
        _write_parquet(rows, target)
    else:
        raise InputError(name="the file's ending", rule="be .parquet or .csv", got=repr(target.name))
    return len(rows)


def rows_of(run: Run) -> list[Row]:
    """Return a row for each round: which run it is of, and its numbers, None where records have none."""
    named = _named(run)
    return [named | {name: record.get(name) for name in NAMES_OF_ROUND} for record in run.records]


def summary_of(run: Run) -> Row:
    """Return what a run came to, or how far it has come."""
    named = _named(run) | {"data": run.header.data}
    if run.summary is not None:
        return named | {name: run.summary.get(name) for name in NAMES_OF_SUMMARY}
    evaluated = [record for record in run.trained if record.loss is not None]
    last = evaluated[-1] if evaluated else None
    return named | {
        "end": None,
        "rounds": len(run.trained),
        "time": run.time_trained,
        "pilot_rounds": len(run.records) - len(run.trained),
        "pilot_time": run.pilot_time,
        "loss": None if last is None else last.loss,
        "accuracy": None if last is None else last.accuracy,
        "time_to_loss": None,
        "time_to_accuracy": None,
    }


def _named(run: Run) -> Row:
    return {"run": str(run.folder)} | {name: run.header[name] for name in NAMES_OF_RUN}


def _round_columns() -> list[str]:
    return ["run", *NAMES_OF_RUN, *NAMES_OF_ROUND]


def _with_nan(row: Row) -> Row:
    """Return a row whose lists hold NaN where a number is missing."""
    return {
        name: [math.nan if one is None else one for one in value]
        if isinstance(value, list) and None in value
        else value
        for name, value in row.items()
    }


def _write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write rows of the same columns; lists as JSON."""
    with whole_file(path) as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: json.dumps(one) if isinstance(one, list) else one for name, one in row.items()})


def _write_parquet(rows: Sequence[Row], path: Path) -> None:
    """Write rows with the types of the records: a column in which nothing is known yet has its type all the same."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingDependencyError("pyarrow", "Parquet") from None
    hints = get_type_hints(RoundRecord) | {"seed": int}
    schema = pyarrow.schema([(name, _arrow_type(hints.get(name, str))) for name in _round_columns()])
    with whole_file(path, "wb") as stream:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows), schema=schema), stream)


def _arrow_type(hint: object) -> object:
    """Return the type of a column in Parquet."""
    import pyarrow

    for one in (hint, *get_args(hint)):  # or of a column that need not be there
        if get_origin(one) is list:
            return pyarrow.list_(_arrow_type(get_args(one)[0]))
    plain: dict[object, Callable[[], object]] = {int: pyarrow.int64, float: pyarrow.float64, str: pyarrow.string}
    kinds = [kind for kind in (hint, *get_args(hint)) if kind in plain]
    return plain[kinds[0]]()
