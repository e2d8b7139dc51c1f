"""A SuperNode's executor, ``flower-superexec``, and what of it can be replaced."""

from flwr.supercore.cli.flower_superexec import flower_superexec
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec import run_superexec
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResult
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor

from fedtempo.flower.inner.client_task import ClientTask

__all__ = ["ExecutionSpec", "LaunchResult", "SubprocessExecutor", "client_task", "run_with"]


def client_task(spec: ExecutionSpec) -> ClientTask | None:
    """Return what a ClientApp is to be started with; None: something else is to be started, or installed first."""
    if spec.task_type != TaskType.CLIENT_APP or spec.runtime_dependency_install:
        return None
    return ClientTask(
        address=spec.runtime_api_address,
        token=spec.token,
        root_certificates=spec.root_certificates_path,
        insecure=spec.insecure,
        parent=spec.parent_pid,
    )


def run_with(executor: type[SubprocessExecutor]) -> None:
    """Be the program ``flower-superexec``, with its arguments, but for the executor."""
    run_superexec.get_executor = lambda *_, **__: executor()  # type: ignore[attr-defined]  # where it looks it up
    flower_superexec()
