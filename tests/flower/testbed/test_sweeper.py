"""What is removed at the end of a block, also where the process that runs it is killed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedtempo.flower.testbed.sweeper import Sweeper, swept_folder

NAMESPACES = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and ip"
)
HOLD = """
import sys, time
from fedtempo.flower.testbed.namespaces import Namespaces
from fedtempo.flower.testbed.sweeper import swept_folder

with swept_folder("fedtempo-swept-") as folder:
    (folder / "kept").touch()
    if "namespaces" in sys.argv:
        with Namespaces(2) as made:
            print(folder, made.bridge, flush=True)
            time.sleep(60)
    print(folder, flush=True)
    time.sleep(60)
"""


def gone_within(seconds, *there):
    end = time.monotonic() + seconds
    while any(one() for one in there) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(one() for one in there)


def shown(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True).stdout


def test_a_folder_is_there_for_the_time_of_the_block():
    with swept_folder("fedtempo-swept-") as folder:
        (folder / "file").touch()
    assert not folder.exists()
    with pytest.raises(ZeroDivisionError), swept_folder("fedtempo-swept-") as folder:
        raise ZeroDivisionError
    assert not folder.exists()


def test_orders_are_carried_out_the_last_first(tmp_path):
    log = tmp_path / "log"
    with Sweeper() as sweeper:
        for number in (1, 2):
            sweeper.order("sh", "-c", f"echo {number} >> {log}")
        sweeper.order("false")
        assert not log.exists()
    assert log.read_text() == "2\n1\n"


def test_orders_before_the_start_are_refused():
    with pytest.raises(RuntimeError, match="must be started"):
        Sweeper().order("true")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("what", ["folder", pytest.param("namespaces", marks=NAMESPACES)])
def test_nothing_stays_of_a_process_that_was_killed(what, how):
    process = subprocess.Popen([sys.executable, "-c", HOLD, what], stdout=subprocess.PIPE, text=True)
    try:
        folder, *bridge = process.stdout.readline().split()
        there = [Path(folder).exists]
        if bridge:
            there += [lambda: bridge[0] in shown("link"), lambda: bridge[0] in shown("netns", "list")]
        assert all(one() for one in there)
    finally:
        process.send_signal(how)
        process.wait(10)
        process.stdout.close()
    assert gone_within(20, *there)
