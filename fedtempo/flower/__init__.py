"""Training on Flower: real SuperNodes, or its simulation."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedtempo.flower.strategy.client_mod import tempo_client
    from fedtempo.flower.strategy.local_training import follow_direction, note_gradient, server_direction
    from fedtempo.flower.strategy.tempo_strategy import TempoStrategy

__all__ = ["TempoStrategy", "follow_direction", "note_gradient", "server_direction", "tempo_client"]

_MODULES = {
    "tempo_client": "fedtempo.flower.strategy.client_mod",
    "note_gradient": "fedtempo.flower.strategy.local_training",
    "follow_direction": "fedtempo.flower.strategy.local_training",
    "server_direction": "fedtempo.flower.strategy.local_training",
    "TempoStrategy": "fedtempo.flower.strategy.tempo_strategy",
}


def __getattr__(name: str) -> object:
    """Load what is asked for: a node has no use for the server's side."""
    if name not in _MODULES:
        raise AttributeError(f"module 'fedtempo.flower' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
