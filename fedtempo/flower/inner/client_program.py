"""Flower's program ``flwr-clientapp``: a ClientApp that answers one message."""

from flwr.supercore.tls import validate_and_resolve_root_certificates
from flwr.supernode.runtime.run_clientapp import run_clientapp

from fedtempo.flower.inner.client_task import ClientTask


def run_client_program(task: ClientTask) -> None:
    """Do what the program does: answer one message, and exit."""
    run_clientapp(
        runtime_api_address=task.address,
        token=task.token,
        insecure=task.insecure,
        certificates=validate_and_resolve_root_certificates(task.root_certificates, task.insecure),
        parent_pid=task.parent,
    )
