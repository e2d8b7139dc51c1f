"""The first moments of the command, while packages are being imported: Ctrl-C ends it in one line then too."""

import os
import signal
import sys

INTERRUPTED = 130  # the exit code


def is_command() -> bool:
    """Return whether this process is the command `fedtempo` or `python -m fedtempo`, not one that imports the package.

    Workers have the arguments of the process that started them, but not its command line.
    """
    name = sys.argv[0] if sys.argv else ""
    if name == "-m":  # what Python calls it until the package is imported
        return ("-m", "fedtempo") in zip(sys.orig_argv, sys.orig_argv[1:], strict=False)
    return name in sys.orig_argv and os.path.splitext(os.path.basename(name))[0] == "fedtempo"


def end_on_ctrl_c() -> None:
    """Let Ctrl-C end the process at once, until the command line takes it over."""
    signal.signal(signal.SIGINT, _end)


def _end(signum: int, frame: object) -> None:
    # An exception would pass through half-imported packages, which may turn it into another. There is nothing to close.
    os.write(2, b"fedtempo: interrupted\n")
    os._exit(INTERRUPTED)
