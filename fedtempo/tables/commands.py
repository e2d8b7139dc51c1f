"""A command as a person would give it, from the names of its settings: the one place that spells them."""

import shlex


def command_line(verb: str, *arguments: str, **settings: str | int | None) -> str:
    """Return a command of fedtempo; settings that are None are left out."""
    words = [f"--{name.replace('_', '-')} {_word(value)}" for name, value in settings.items() if value is not None]
    return " ".join(["fedtempo", verb, *arguments, *words])


def _word(value: str | int) -> str:
    return str(value) if isinstance(value, int) else shlex.quote(value)
