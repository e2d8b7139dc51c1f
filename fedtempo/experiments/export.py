"""Records as one table for other tools: a row for each round."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

from fedtempo.checks import InputError, MissingDependencyError
from fedtempo.engine.records import RoundRecord
from fedtempo.experiments.running.results import Run, read_run
from fedtempo.files import whole_file

NAMES_OF_RUN = ("experiment", "preset", "policy", "seed")  # of its header
NAMES_OF_ROUND = tuple(name for name in RoundRecord.__struct_fields__ if name != "note")

Row = dict[str, object]


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
    """Return a row for each round: which run it is of, and its numbers."""
    named = {"run": str(run.folder)} | {name: run.header[name] for name in NAMES_OF_RUN}
    return [named | {name: record[name] for name in NAMES_OF_ROUND} for record in run.records]


def _write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write rows of the same columns; lists as JSON."""
    with whole_file(path) as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: json.dumps(one) if isinstance(one, list) else one for name, one in row.items()})


def _write_parquet(rows: Sequence[Row], path: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingDependencyError("pyarrow", "report", "Parquet") from None
    with whole_file(path, "wb") as stream:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), stream)
