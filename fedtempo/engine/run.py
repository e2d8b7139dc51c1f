"""One run into a folder: records as they come, checkpoints, Ctrl-C; begun before, it goes on where it was."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import msgspec

from fedtempo.checks import InputError
from fedtempo.engine.divergence import DivergedError
from fedtempo.engine.loop import Loop
from fedtempo.engine.records import RoundRecord, Summary
from fedtempo.engine.run_folder import RunFolder, other_version
from fedtempo.state import Arrays

CHECKPOINT_SECONDS = 10.0  # between two of a run that can be repeated
QUICK = 0.5  # seconds to write one; those of large fleets that take longer come as many times less often

Progress = Callable[[Loop, RoundRecord], None]  # called after each round
Handler = Callable[[int, FrameType | None], object] | signal.Handlers | int | None


def run_into(files: RunFolder, loop: Loop, progress: Progress, at_end: Callable[[], None] = lambda: None) -> Summary:
    """Run to the end, or go on where an earlier call was stopped; return the summary.

    ``at_end`` is called before the summary is written: should it fail, the run has not ended.
    """
    if (summary := files.finished()) is not None:
        return summary
    files.lock()
    try:
        if (summary := files.finished()) is not None:  # by another process, for which this one has waited
            return summary
        saved = files.open()
        if saved is not None:
            _resume(loop, saved, files)
        return _run(loop, files, progress, at_end, begun=saved is not None)
    finally:
        files.close()


def _resume(loop: Loop, saved: Arrays, files: RunFolder) -> None:
    try:
        loop.resume(saved)
    except InputError as error:
        raise other_version(files, f"another: {error}") from error


def _run(loop: Loop, files: RunFolder, progress: Progress, at_end: Callable[[], None], *, begun: bool) -> Summary:
    least = CHECKPOINT_SECONDS if loop.clients.repeatable else 0.0  # what cannot be repeated must not be lost
    saved, pause = time.monotonic(), least
    try:
        with _stop_between_rounds() as stopped:
            rounds = loop.rounds()
            if loop.resumable and not begun:
                files.save(loop.save())
            for record in rounds:
                last = loop.ended is not None
                files.write(record)
                # Who goes on to a later end repeats the rounds after the checkpoint, where that can be done: the last
                # one may have been evaluated for being the last.
                due = not loop.clients.repeatable if last else stopped or time.monotonic() - saved > pause
                if due and loop.resumable:  # a user's policy may take long to say what it learned
                    began = time.monotonic()
                    files.save(loop.save())
                    saved = time.monotonic()
                    slow = (saved - began) / QUICK
                    pause = CHECKPOINT_SECONDS * slow if slow > 1.0 else least
                progress(loop, record)
                if stopped and not last:
                    raise KeyboardInterrupt
            at_end()
            summary = loop.summary()
            files.write(summary)
    except DivergedError as error:
        loop.ended = "diverged"
        files.write(msgspec.structs.replace(loop.summary(), error=str(error)))
        if not stopped:
            raise
        raise KeyboardInterrupt from error
    if stopped:  # in the last round: this run has ended, but there may be others to come
        raise KeyboardInterrupt
    return summary


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
def ctrl_c(handler: Handler) -> Iterator[None]:
    """Answer Ctrl-C in this way for a while; outside the main thread, which alone hears it, change nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
