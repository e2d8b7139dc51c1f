"""A command as a person would give it, from the names of its settings: the one place that spells them."""

import shlex
from collections.abc import Sequence


def command_line(verb: str, *arguments: str, **settings: str | int | Sequence[str] | None) -> str:
    """Return a command of fedtempo; settings that are None are left out, and those with several values repeated."""
    given = [
        (name.replace("_", "-"), one)
        for name, value in settings.items()
        for one in ([] if value is None else [value] if isinstance(value, str | int) else value)
    ]
    return " ".join(["fedtempo", verb, *arguments, *(f"--{name} {_word(value)}" for name, value in given)])


def _word(value: str | int) -> str:
    return str(value) if isinstance(value, int) else shlex.quote(value)
