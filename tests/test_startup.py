"""Ctrl-C while packages are being imported: one line and code 130, of the command alone."""

import os
import signal
import subprocess
import sys

import pytest

from support.paths import ROOT

SLOW = "import time\nprint('importing', flush=True)\ntime.sleep(60)\n"
SCRIPT = "import sys\nfrom fedtempo.cli import main\nsys.exit(main())\n"  # as the installed command has it


def interrupted(folder, *arguments):
    """Return code and errors of a process that gets Ctrl-C while it imports numpy."""
    (folder / "slow").mkdir()
    (folder / "slow" / "numpy.py").write_text(SLOW)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(folder / "slow"), str(ROOT)))}
    with subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    ) as process:
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        return process.wait(timeout=30), process.stderr.read()


@pytest.mark.parametrize("options", [[], ["-B"]])
def test_the_module_ends_in_one_line(tmp_path, options):
    assert interrupted(tmp_path, *options, "-m", "fedtempo", "policies") == (130, "fedtempo: interrupted\n")


def test_the_script_ends_in_one_line(tmp_path):
    script = tmp_path / "fedtempo"
    script.write_text(SCRIPT)
    assert interrupted(tmp_path, script, "policies") == (130, "fedtempo: interrupted\n")


def test_programs_that_import_the_package_keep_their_own_way(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text("try:\n    import fedtempo\nexcept KeyboardInterrupt:\n    raise SystemExit(7)\n")
    assert interrupted(tmp_path, script, "-m", "fedtempo") == (7, "")
