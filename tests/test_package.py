"""The package as a whole: what importing it costs, and what it offers."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version

import fedtempo
from fedtempo.checks import EXTRAS
from support.paths import ROOT


def test_importing_the_package_needs_arrays_only():
    code = (
        "import sys, fedtempo\n"
        "heavy = {'cvxpy', 'flwr', 'matplotlib', 'numba', 'pandas', 'rich', 'scipy', 'torch', 'typer'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or None)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_every_public_name_is_there_and_says_what_it_is():
    assert set(fedtempo.__all__) <= set(dir(fedtempo))
    for name in fedtempo.__all__:
        assert getattr(fedtempo, name).__doc__, name


def test_the_version_is_the_one_installed():
    command = [sys.executable, "-m", "fedtempo", "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == fedtempo.__version__ == version("fedtempo")


def test_all_brings_every_extra_but_dev():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = extras["all"][0].removeprefix("fedtempo[").removesuffix("]").split(",")
    assert sorted(named) == sorted(set(extras) - {"all", "dev"})


def test_errors_name_the_extra_of_every_package_that_one_brings():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in set(extras) - {"all", "dev", "flower-simulation"}:  # the last is flower with more
        for requirement in extras[extra]:
            assert EXTRAS[re.match(r"[\w-]+", requirement)[0]] == extra
    assert set(EXTRAS.values()) <= set(extras)
