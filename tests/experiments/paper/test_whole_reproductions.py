"""Reproductions from end to end, on small data: also after kills, and of other presets."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from fedtempo.engine.records import RECORDS
from fedtempo.experiments.comparing.amounts import amount
from fedtempo.experiments.running.results import read_run
from support.grids import cells
from support.runs import command

REPRODUCE = """
import sys
from fedtempo.cli import main
main(["reproduce", "setup2", "--configs", sys.argv[1], "--seeds", "2", "--jobs", "2",
      "--records", sys.argv[2] + "/runs", "-o", sys.argv[2] + "/out"])
"""


@pytest.mark.slow
def test_reproduce_killed_ten_times_ends_with_the_same_tables(setup2, tmp_path):
    setup2.write_text(setup2.read_text().replace("max_rounds = 6", "max_rounds = 800"))
    shown = [sys.executable, "-c", REPRODUCE, setup2.parent]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    begun = time.monotonic()
    subprocess.run([*shown, tmp_path / "whole"], check=True, capture_output=True, env=environment)
    whole = time.monotonic() - begun
    chance, kills = random.Random(5), 0
    while kills < 10:
        process = subprocess.Popen([*shown, tmp_path / "killed"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=chance.uniform(0.3, 0.5) * whole)
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
    assert kills >= 2
    subprocess.run([*shown, tmp_path / "killed"], check=True, capture_output=True, env=environment)
    for name in ("setup2.md", "setup2.png"):
        assert (tmp_path / "killed/out" / name).read_bytes() == (tmp_path / "whole/out" / name).read_bytes()
    ours, theirs = (sorted(path.name for path in (tmp_path / x / "runs").rglob("*-seed*")) for x in ("whole", "killed"))
    assert ours == theirs
    for path in (tmp_path / "whole/runs").rglob(RECORDS):
        assert path.read_bytes() == (tmp_path / "killed/runs" / path.relative_to(tmp_path / "whole/runs")).read_bytes()


@pytest.mark.slow
def test_small_reproductions_of_the_impact_of_k_and_e(setup2, tmp_path):
    for what in ("impact-of-k", "impact-of-e"):
        arguments = ["--configs", setup2.parent, "--seeds", 1, "--jobs", 2, "--records", tmp_path / "runs"]
        assert command("reproduce", what, *arguments, "-o", tmp_path / "out") == 0
        assert f"fedtempo reproduce {what} --seeds 1" in (tmp_path / "out" / f"{what}.md").read_text()
        rows = cells((tmp_path / "out" / f"{what}.md").read_text())[1:]
        assert [row[0] for row in rows] == (
            ["1", "4", "10", "16"] if what == "impact-of-k" else ["10", "25", "50", "100"]
        )
        for row, path in ((row, path) for row in rows for path in (tmp_path / "runs").rglob(RECORDS)):
            run = read_run(path)
            if what == "impact-of-k" and sum(run.trained[0].counts) == int(row[0]):
                assert amount(run.time_to(loss=1.2) or run.time[-1]) in row[1]
    assert command("reproduce", "table9", "-o", tmp_path / "out") == 2


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["best", "authors-code"])
def test_other_presets_are_reproduced_too(setup2, tmp_path, preset):
    setup2.write_text(
        setup2.read_text() + "[presets.authors-code.policy.uniform]\nreplacement = false\n"
        "[presets.best.policy.uniform.training]\ncohort_size = 2\n"
    )
    arguments = ["--configs", setup2.parent, "--seeds", 1, "--jobs", 2, "--preset", preset]
    assert command("reproduce", "setup2", *arguments, "--records", tmp_path / "runs", "-o", tmp_path / "out") == 0
    text = (tmp_path / "out" / f"setup2-{preset}.md").read_text()
    assert "Table 3" in text
    assert "Table 2" not in text
