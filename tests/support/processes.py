"""Processes that tests start and look for, and the experiment of a small testbed."""

import sys
import time
from pathlib import Path

import psutil

from fedtempo.flower.testbed.watched import MARK, FlowerProcess

# A parent whose child has a session of its own and ignores whatever can be ignored, as Flower's executors may.
FAMILY = """
import signal, subprocess, sys, time
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(99)"
subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
time.sleep({parent_lives})
"""


class Script(FlowerProcess):
    """A Python script in the place of a Flower process."""

    def __init__(self, folder: Path, script: str):
        super().__init__("script", folder)
        self.script = script

    def _command(self) -> list[str]:
        return [sys.executable, "-c", self.script]


def marked(mark: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def wait_until_none(mark: str, timeout: float = 10) -> None:
    deadline = time.monotonic() + timeout
    while left := marked(mark):
        assert time.monotonic() < deadline, f"{left} are left behind"
        time.sleep(0.05)


PATIENCE = 60.0  # s for something that takes a few on a machine that has nothing else to do
TABLE = {
    "name": "three nodes",
    "data": {"kind": "synthetic", "clients": 3, "samples": 300},
    "model": {"kind": "softmax"},
    "times": {
        "compute": {"kind": "uniform", "low": 0.1, "high": 0.5},
        "upload": {"kind": "uniform", "low": 0.5, "high": 1.0},
    },
    "training": {"cohort_size": 2, "local_steps": 5, "schedule": "constant", "link": "paper", "duplicates": "physical"},
    "stop": {"max_rounds": 3},
}


def eventually(true, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)
