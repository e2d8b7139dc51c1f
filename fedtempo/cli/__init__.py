"""The command line: parse, call one function, print. Errors become one sentence and an exit code."""

import atexit
import inspect
import re
import signal
import sys
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import ArgumentInfo

from fedtempo import __version__
from fedtempo.checks import InputError
from fedtempo.cli.fleets import plan
from fedtempo.cli.flower import credentials, link, run_on_testbed
from fedtempo.cli.records import estimate, export, report
from fedtempo.cli.runs import compare, run
from fedtempo.cli.split import split
from fedtempo.cli.start import check_policy, fetch, init, policies
from fedtempo.cli.studies import leaderboard, reproduce, tune
from fedtempo.cli.terminal import BAD_INPUT, FAILED, INTERRUPTED, Interrupted, fail, spelling
from fedtempo.files import FULL

WRONG_PATH = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
ASKED_ONCE = re.compile(r"(\. Did you mean .*?\?).*")  # typer asks, and click since 8.5 too

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Who trains, how often and with what bandwidth, so that federated learning ends soonest.",
)


@app.callback(invoke_without_command=True)
def common(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    """Take the options that belong to no command."""
    if show_version:
        print(__version__)
    elif context.invoked_subcommand is None:
        print(context.get_help())


class _OptionError(Exception):
    """Input that was refused, in a sentence that names options as they are given."""


class _Command(TyperCommand):
    """A command whose arguments have a help: click has one of its own since 8.5, which typer 0.20 leaves empty."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        """Run it; what is refused, and stands in no file, is called by its option: --cohort-size, not cohort_size."""
        try:
            return super().invoke(ctx)
        except InputError as error:
            raise _OptionError(error.sentence(spelling(ctx))) from None

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401
        super().__init__(*given, **named)
        hints = get_type_hints(inspect.unwrap(self.callback), include_extras=True) if self.callback else {}
        for parameter in self.params:
            for given in getattr(hints.get(parameter.name), "__metadata__", ()):
                if isinstance(given, ArgumentInfo):
                    parameter.help = given.help


for command in (
    plan, run, compare, reproduce, tune, leaderboard, report, policies, check_policy, init, split, estimate, export,
    fetch, credentials, link,
):  # fmt: skip
    app.command(cls=_Command)(command)
app.command("testbed", cls=_Command)(run_on_testbed)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; bad input ends with one sentence and code 2, a failed run with code 1."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without β shows ?, rather than a traceback
    before = signal.signal(signal.SIGINT, _interrupt_once)
    try:
        code = app(arguments, standalone_mode=False) or 0
        if code == INTERRUPTED:  # what some versions of typer make of Ctrl-C
            raise KeyboardInterrupt
        _end_workers()
    except (Exception, KeyboardInterrupt) as error:
        code = _explain(error)
    finally:
        if signal.getsignal(signal.SIGINT) is _interrupt_once:  # it has not been heard
            signal.signal(signal.SIGINT, before)
            atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a traceback at the exit would say nothing
    sys.exit(code)


def _end_workers() -> None:
    """End processes that wait for more runs, while Ctrl-C is still heard: at the exit it would break into their end."""
    if "joblib" in sys.modules:
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)


def _interrupt_once(signum: int, frame: object) -> None:
    """End the command; Ctrl-C once more must not break into its end, when workers are ended too."""
    signal.signal(signum, signal.SIG_IGN)
    raise KeyboardInterrupt


def _explain(error: BaseException) -> int:
    """Turn an error that a user can mend into one sentence and a code; raise any other."""
    if isinstance(error, InputError | _OptionError):
        return fail(str(error), BAD_INPUT)
    if isinstance(error, Interrupted):
        return fail(f"interrupted; {error}", INTERRUPTED)
    if isinstance(error, (typer.Abort, KeyboardInterrupt)):
        return fail("interrupted; a run goes on when the same command is given again", INTERRUPTED)
    if hasattr(error, "format_message"):  # an error of the command line itself, whichever click typer brings
        return fail(ASKED_ONCE.sub(r"\1", error.format_message()), BAD_INPUT)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        remedy = "; once there is room, the same command goes on" if error.errno in FULL else ""
        return fail(f"{where}{error.strerror}{remedy}", BAD_INPUT if isinstance(error, WRONG_PATH) else FAILED)
    if isinstance(error, ArithmeticError):
        return fail(str(error), FAILED)
    raise error
