"""ClientApps as forks of one process, which has imported all that they need and loaded the kernels."""

import json
import os
import signal
import sys

from flwr.supercore.tls import validate_and_resolve_root_certificates
from flwr.supernode.runtime.run_clientapp import run_clientapp

import fedtempo.flower.app.client_app  # noqa: F401  # which the ClientApp finds imported
from fedtempo.simulator.kernels import load_kernels


def serve() -> None:
    """Fork a ClientApp for each line of the standard input; end with that."""
    load_kernels()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            sys.stdin = open(os.devnull)  # noqa: SIM115  # to the end of the process
            os.dup2(sys.stdin.fileno(), 0)  # nor is there a line for what the app starts in turn
            _run(**json.loads(line))
            sys.exit()


def _run(*, address: str, token: str, root_certificates: str | None, insecure: bool, parent: int | None) -> None:
    """Do what Flower's program `flwr-clientapp` does: answer one message, and exit."""
    run_clientapp(
        runtime_api_address=address,
        token=token,
        insecure=insecure,
        certificates=validate_and_resolve_root_certificates(root_certificates, insecure),
        parent_pid=parent,
    )
