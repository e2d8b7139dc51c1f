"""The executor of the testbed's nodes: ClientApps are forks of one process, everything else is as in Flower."""

import json
import os
import subprocess
from dataclasses import replace

import pytest
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec.executor import ExecutionSpec
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
from flwr.supercore.superexec.executor.types import LaunchResultStatus

from fedtempo.flower.testbed import warm_executor
from fedtempo.flower.testbed.warm_executor import WarmExecutor, write_program


def spec(task_type=TaskType.CLIENT_APP, token="a token"):
    return ExecutionSpec(
        task_type=task_type,
        runtime_api_address="127.0.0.1:9",
        token=token,
        insecure=True,
        root_certificates_path=None,
        runtime_dependency_install=False,
        parent_pid=os.getpid(),
        suppress_output=False,
        task_id=1,
    )


@pytest.fixture
def executor(monkeypatch, tmp_path):
    """Have lines written to a file in place of forks."""
    copies = f"import sys\nfor line in sys.stdin: print(line, end='', file=open({str(tmp_path / 'lines')!r}, 'a'))"
    monkeypatch.setattr(warm_executor, "FORKS", copies)
    executor = WarmExecutor()
    yield executor
    executor.close()
    if executor._forks is not None:
        executor._forks.wait(10)  # it ends with its input


def test_one_process_gets_all_messages(executor, tmp_path):
    assert executor.launch(spec(token="one")).status == LaunchResultStatus.ACCEPTED
    first = executor._forks
    assert executor.launch(spec(token="two")).status == LaunchResultStatus.ACCEPTED
    assert executor._forks is first
    executor.close()
    assert first.wait(10) == 0
    tasks = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert [task["token"] for task in tasks] == ["one", "two"]
    assert tasks[0] == {
        "address": "127.0.0.1:9", "token": "one", "root_certificates": None, "insecure": True, "parent": os.getpid()
    }  # fmt: skip


def test_a_process_that_ended_is_started_anew(executor, monkeypatch):
    executor.launch(spec())
    first = executor._forks
    first.kill()
    first.wait(10)
    assert executor.launch(spec()).status == LaunchResultStatus.ACCEPTED
    assert executor._forks is not first
    monkeypatch.setattr(executor._forks, "poll", lambda: None)  # it ends between the look and the line
    executor._forks.kill()
    executor._forks.wait(10)
    assert executor.launch(spec()).status == LaunchResultStatus.FAILED


def test_other_tasks_are_left_to_flower(executor, monkeypatch):
    started = []
    monkeypatch.setattr(SubprocessExecutor, "launch", lambda self, spec: started.append(spec))
    others = [spec(TaskType.SERVER_APP), replace(spec(), runtime_dependency_install=True)]
    for other in others:
        executor.launch(other)
    assert started == others
    assert executor._forks is None


def test_the_program_is_flowers_but_for_the_executor(tmp_path):
    folder = write_program(tmp_path / "folder with spaces")
    done = subprocess.run([folder / "flower-superexec", "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert "--runtime-api-address" in done.stdout
