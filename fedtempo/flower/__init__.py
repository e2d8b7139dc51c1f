"""Training on Flower: real SuperNodes, or its simulation."""

from importlib import import_module
from typing import Any

_OF = {
    "tempo_client": "fedtempo.flower.strategy.client_mod",
    "note_gradient": "fedtempo.flower.strategy.client_mod",
    "TempoStrategy": "fedtempo.flower.strategy.tempo_strategy",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Load what is asked for: a node has no use for the server's side."""
    if name not in _OF:
        raise AttributeError(f"module 'fedtempo.flower' has no attribute {name!r}")
    return getattr(import_module(_OF[name]), name)


__all__ = ["TempoStrategy", "note_gradient", "tempo_client"]
