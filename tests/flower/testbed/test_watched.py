"""Processes that are watched: the whole family ends, however its end comes."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("flwr", reason="flwr is not installed; it comes with fedtempo[flower]")


from fedtempo.flower.testbed.watched import Launch, ProcessError
from support.paths import ROOT
from support.processes import FAMILY, Script, marked, wait_until_none

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="watchers need pidfd_open, which Linux alone has")


def test_stop_ends_the_whole_family(tmp_path):
    process = Script(tmp_path, FAMILY.format(parent_lives=99))
    with process:
        process._wait_for_line("ready", 20)
        mark = process._mark
        assert len(marked(mark)) >= 2
    assert marked(mark) == []
    assert not process.running


def test_an_interrupt_ends_the_whole_family(tmp_path):
    process = Script(tmp_path, FAMILY.format(parent_lives=99))

    def interrupted() -> None:
        with process:
            process._wait_for_line("ready", 20)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert marked(process._mark) == []


@ON_LINUX
def test_orphans_end_with_the_process_that_left_them(tmp_path):
    process = Script(tmp_path, FAMILY.format(parent_lives=0))
    process.start()
    mark = process._mark
    try:
        wait_until_none(mark)
    finally:
        process.stop()


def test_who_starts_a_process_again_waits_for_the_one_who_kills_it(tmp_path):
    script = "import time; print('ready', flush=True); time.sleep(99)"
    with Script(tmp_path, script) as process:
        for _ in range(5):
            process._wait_for_line("ready", 30)
            killing = threading.Thread(target=process.kill)
            killing.start()
            while process.running:
                time.sleep(0.001)
            process.start()
            killing.join()
            time.sleep(0.1)
            assert process.running


@ON_LINUX
def test_the_whole_family_ends_when_its_caller_is_killed(tmp_path):
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER, str(tmp_path), FAMILY.format(parent_lives=99)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path])},
    )
    with caller:
        mark = caller.stdout.readline().decode().strip()
        assert len(marked(mark)) >= 2
        caller.send_signal(signal.SIGKILL)
    wait_until_none(mark)


CALLER = """
import sys, time
from pathlib import Path
from support.processes import Script
process = Script(Path(sys.argv[1]), sys.argv[2])
process.start()
process._wait_for_line("ready", 30)
print(process._mark, flush=True)
time.sleep(99)
"""


def test_errors_quote_the_end_of_the_log(tmp_path):
    with Script(tmp_path, "print('first'); print('the reason'); raise SystemExit(3)") as process:
        with pytest.raises(ProcessError, match=r"ended with code 3 before it was ready(.|\n)*\| the reason"):
            process._wait_for_line("ready", 20)
        process.script = "import time; print('slow', flush=True); time.sleep(99)"
        process.start()
        process._wait_for_line("slow", 20)
        with pytest.raises(ProcessError, match=r"not ready after 0.2 s(.|\n)*\| slow") as raised:
            process._wait_for_line("ready", 0.2)
        assert "the reason" not in str(raised.value)  # that was before the last start


def test_a_missing_program_is_named(tmp_path):
    process = Script(tmp_path, "")
    process._launch = Launch(prefix=("no-such-program",))
    with process, pytest.raises(ProcessError, match="no-such-program cannot be started: No such file"):
        process._wait_for_line("ready", 20)
