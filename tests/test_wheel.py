"""The package as others get it: a wheel in an environment of its own, used from an empty folder."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support.pages import fenced_blocks
from support.paths import ROOT

SOURCES = ("LICENSE", "README.md", "configs", "examples", "fedtempo", "pyproject.toml")
BUILD = "import sys, setuptools.build_meta as backend; backend.build_sdist(sys.argv[1])"
SMALL_LEADERBOARD = "leaderboard --setups setup2 --regimes plain --policies uniform,weighted --seeds 1 --draws 1"
COMMANDS = (
    "policies",
    "init",
    "run experiment.toml --policy weighted --max-rounds 3",
    "run setup2 --policy tempo --set stop.max_rounds=3 --set training.link=shared",
    "compare experiment.toml --policies uniform,weighted --seeds 2 --target-loss 2 --report page.html --json runs.json",
    "tune experiment.toml --policies uniform --step-sizes 0.05,0.1 --seeds 1 --target-loss 2.0",
    "reproduce setup2 --seeds 2 --set stop.max_rounds=30",
    f"{SMALL_LEADERBOARD} --set stop.target_loss=2.0 --set stop.max_time=200.0",
    "report runs/compare -o report.html",
    "export runs/compare -o rounds.parquet",
    "export runs/compare -o rounds.csv",
    "estimate runs/compare -o clients.csv",
    "split experiment.toml -o split.png",
    "check-policy weighted",
    "init examples.toml --examples",
    "plan fleet.csv --model-size 5 --cohort-size 5 --beta-over-alpha 0.1 --plot plan.png -o plan.csv",
)
WRITTEN = (
    "experiment.toml", "fleet.csv", "runs/experiment/weighted-seed0/records.jsonl", "page.html", "runs.json",
    "reproduction/setup2.md", "reproduction/setup2.png", "leaderboard/setup2-static-plain.md", "report.html",
    "rounds.csv", "clients.csv", "plan.png", "plan.csv", "split.png", "digits.py", "compare.ipynb",
)  # fmt: skip
READ = """
import pandas
import fedtempo

rounds, runs = fedtempo.read_runs("runs/compare"), fedtempo.read_runs("runs/compare", kind="runs")
assert runs.groupby("policy").seed.nunique().to_dict() == {"uniform": 2, "weighted": 2}, runs
assert (runs.end == "target").all() and (rounds.phase == "train").sum() == runs["rounds"].sum()
assert (rounds.phase == "step-size").sum() == len(runs), "each run finds its step size"
assert len(pandas.read_parquet("rounds.parquet")) == len(rounds)
"""

ELSEWHERE = re.compile(r"\b(make|testbed|flwr|git clone|pip install|fedtempo fetch)\b")

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]


def clean_environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FEDTEMPO", "COV"))}
    return kept | {"HOME": str(folder), "NUMBA_CACHE_DIR": str(folder / "kernels")}


def pip(python: Path, *arguments: object) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        str(python),
        *map(str, arguments),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder outside of the repository with its sources, as it has them, and a new environment."""
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "sources").mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            left_out = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / "sources" / name, symlinks=True, ignore=left_out)
        else:
            shutil.copy(ROOT / name, folder / "sources" / name)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    return folder


@pytest.fixture(scope="module")
def wheels(place):
    """A wheel built from the sources, and one built from the sdist that they make."""
    python, sources = place / "env/bin/python", place / "sources"
    try:
        pip(python, "install", "--quiet", "setuptools>=77")
    except AssertionError as error:
        pytest.skip(f"no index of packages: {error}")
    build = [python, "-c", BUILD, place / "sdist"]
    subprocess.run(build, cwd=sources, check=True, capture_output=True, env=clean_environment(place))
    (sdist,) = (place / "sdist").glob("*.tar.gz")
    found = []
    for name, source in (("direct", sources), ("by-sdist", sdist)):
        pip(python, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", place / name, source)
        found += (place / name).glob("*.whl")
    return found


@pytest.fixture(scope="module")
def fedtempo(place, wheels):
    """The command of an environment that has the wheel, with what it needs in the newest versions."""
    pip(place / "env/bin/python", "install", "--quiet", f"{wheels[1]}[report]")

    def call(line: str, folder: Path) -> str:
        command = [place / "env/bin/fedtempo", *shlex.split(line)]
        ended = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, env=clean_environment(place)
        )
        assert ended.returncode == 0, (line, ended.stderr)
        return ended.stdout

    return call


def test_the_sdist_makes_the_same_wheel_with_all_that_commands_read(wheels):
    direct, by_sdist = (sorted(zipfile.ZipFile(wheel).namelist()) for wheel in wheels)
    assert direct == by_sdist
    for path in (ROOT / "configs").glob("*.toml"):
        assert zipfile.ZipFile(wheels[0]).read(f"fedtempo/configs/{path.name}") == path.read_bytes()
    data = {str(path.relative_to(ROOT)) for end in ("css", "csv", "html", "js", "toml", "typed")
            for path in (ROOT / "fedtempo").rglob(f"*.{end}")}  # fmt: skip
    assert data <= set(direct)


def test_every_command_works_from_an_empty_folder(place, fedtempo, tmp_path):
    assert fedtempo("--version", tmp_path).strip() in (ROOT / "fedtempo/__init__.py").read_text()
    for line in COMMANDS:
        fedtempo(line, tmp_path)
    for name in WRITTEN:
        assert (tmp_path / name).stat().st_size > 0, name
    assert not list(tmp_path.rglob("*.part"))
    read = [place / "env/bin/python", "-c", READ]
    ended = subprocess.run(
        read, cwd=tmp_path, capture_output=True, text=True, check=False, env=clean_environment(place)
    )
    assert ended.returncode == 0, ended.stderr


def test_the_readme_works_from_an_empty_folder(place, fedtempo, tmp_path):
    """Each block as it stands, but for those that need the clone, Flower or a download."""
    given = [(kind, text) for kind, text in fenced_blocks(ROOT / "README.md") if not ELSEWHERE.search(text)]
    assert [kind for kind, _ in given] == ["console", "", "", "python", "python"]
    environment = clean_environment(place)
    environment["PATH"] = f"{place / 'env/bin'}:{environment['PATH']}"
    for kind, text in given:
        shell = ["python", "-c"] if kind == "python" else ["sh", "-e", "-c"]
        ended = subprocess.run(
            [*shell, text], cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
        )
        assert ended.returncode == 0, (text, ended.stderr)
    for name in ("report.html", "plan.png", "plan.csv", "my.toml"):
        assert (tmp_path / name).stat().st_size > 0, name
