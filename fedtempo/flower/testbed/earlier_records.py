"""Records of an earlier run on the testbed: whether this run goes on with them, or they hold all of it already."""

import json
from collections.abc import Mapping
from pathlib import Path

from fedtempo.checks import InputError
from fedtempo.engine.records import RECORDS, Records, read_records
from fedtempo.experiments.settings.decode import merged
from fedtempo.flower.testbed.request import TestbedRequest


def earlier_records(request: TestbedRequest) -> Records | None:
    """Return what the folder of a request holds, None where it holds nothing; refuse another run's."""
    folder = request.records
    if folder is None:
        return None
    if folder.exists() and not folder.is_dir():
        raise InputError(name="records", rule="be a folder", got=f"the file {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    if not (path := folder / RECORDS).exists():
        return None
    found = read_records(path)
    _check_same_run(found, request, folder)
    return found


def _check_same_run(found: Records, request: TestbedRequest, folder: Path) -> None:
    header = found.header
    if header is None:
        return
    for name, recorded, asked in (("policy", header.policy, request.policy), ("seed", header.seed, request.seed)):
        if recorded != asked:
            raise InputError(
                name="records",
                rule="be a new folder or hold the same run",
                got=f"one with {name} {recorded}, and {asked} is asked for",
                remedy="choose another folder, or delete this one",
            )
    if found.summary is not None and found.summary.rounds > request.rounds:
        rule = f"be at least the {found.summary.rounds} that {folder} has"
        raise InputError(name="rounds", rule=rule, got=request.rounds)


def holds_all(found: Records | None, table: Mapping[str, object], rounds: int) -> bool:
    """Return whether records are of this experiment on real nodes, with as many rounds; others the run goes into."""
    if found is None or found.header is None or found.summary is None:
        return False
    if found.summary.end != "max_rounds" or found.summary.rounds != rounds:
        return False
    alike = {"stop": {"max_rounds": rounds}, "training": {"duplicates": "physical"}}
    asked = merged(json.loads(json.dumps(table)), alike)
    return found.header.config == asked and found.header.clock == "wall" and not found.header.files
