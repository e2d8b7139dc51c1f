"""One run into a folder: records as they come, checkpoints, Ctrl-C; begun before, it goes on where it was."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fedtempo.checks import InputError
from fedtempo.engine.loop import DivergedError, Loop
from fedtempo.engine.records import RunFiles

CHECKPOINT_SECONDS = 10.0  # between two of a run that can be repeated
QUICK = 0.5  # seconds to write one; those of large fleets that take longer come as many times less often

Progress = Callable[[Any, dict[str, Any]], None]  # called with the loop and the record of each round


def run_into(
    files: RunFiles, loop: Loop, progress: Progress, at_end: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Run to the end, or go on where an earlier call was stopped; return the summary.

    ``at_end`` is called before the summary is written: should it fail, the run has not ended.
    """
    if (summary := files.finished()) is not None:
        return summary
    files.lock()
    try:
        if (summary := files.finished()) is not None:  # by another process, for which this one has waited
            return summary
        state = files.open()
        if state is not None:
            _restore(loop, state, files)
        elif loop.resumable:
            files.save(*loop.state())
        return _run(loop, files, progress, at_end)
    finally:
        files.close()


def _restore(loop: Loop, state: tuple[dict[str, Any], dict[str, Any]], files: RunFiles) -> None:
    try:
        loop.restore(*state)
    except (KeyError, TypeError) as error:
        raise InputError(
            name=files.checkpoint,
            rule="be a checkpoint of this version of fedtempo",
            got=f"one without {error}",
            remedy=f"go on with the version that wrote it, or delete {files.folder} to start again",
        ) from error


def _run(loop: Loop, files: RunFiles, progress: Progress, at_end: Callable[[], None]) -> dict[str, Any]:
    least = CHECKPOINT_SECONDS if loop.clients.repeatable else 0.0  # what cannot be repeated must not be lost
    saved, pause, record = time.monotonic(), least, {}
    try:
        with _stop_between_rounds() as stopped:
            for record in loop.rounds():
                last = loop.ended is not None
                if "end" in record:
                    at_end()
                files.write(record)
                # Who goes on to a later end repeats the rounds after the checkpoint, where that can be done: the last
                # one may have been evaluated for being the last.
                due = not loop.clients.repeatable if last else stopped or time.monotonic() - saved > pause
                if loop.resumable and due and "end" not in record:
                    begun = time.monotonic()
                    files.save(*loop.state())
                    saved = time.monotonic()
                    slow = (saved - begun) / QUICK
                    pause = CHECKPOINT_SECONDS * slow if slow > 1.0 else least
                progress(loop, record)
                if stopped and not last:
                    raise KeyboardInterrupt
    except DivergedError as error:
        loop.ended = "diverged"
        files.write(loop.summary() | {"error": str(error)})
        if not stopped:
            raise
    if stopped:  # in the last round: this run has ended, but there may be others to come
        raise KeyboardInterrupt
    return record


@contextmanager
def _stop_between_rounds() -> Iterator[list[int]]:
    """Hold back the first Ctrl-C until the round has ended, when nothing is half done; a second one stops at once."""
    stopped: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def hold_back(signum: int, frame: object) -> None:
        stopped.append(signum)
        signal.signal(signum, before)

    with ctrl_c(before if before is signal.SIG_IGN else hold_back):
        yield stopped


@contextmanager
def ctrl_c(handler: Any) -> Iterator[None]:  # noqa: ANN401
    """Answer Ctrl-C in this way for a while; outside the main thread, which alone hears it, change nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
