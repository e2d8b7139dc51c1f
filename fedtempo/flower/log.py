"""Lines in Flower's own log, which ``flwr run --stream`` and ``flwr log`` show."""

import logging
import re

log = logging.getLogger("flwr").log

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def without_colours(text: str) -> str:
    """Return text of Flower's processes without what colours it on a terminal."""
    return _COLOURS.sub("", text)
