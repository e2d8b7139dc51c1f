"""ClientApps as forks of one process, which has imported all that they need and loaded the kernels."""

import json
import os
import signal
import sys

import fedtempo.flower.app.client_app  # noqa: F401  # which the ClientApp finds imported
from fedtempo.flower.inner.client_program import run_client_program
from fedtempo.flower.inner.client_task import ClientTask
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
            run_client_program(ClientTask(**json.loads(line)))
            sys.exit()
