"""Libraries that are loaded when they are needed, and may be missing."""

from types import ModuleType

from fedtempo.checks import MissingDependencyError


def torch_networks(purpose: str) -> ModuleType:
    """Return the networks of torch."""
    try:
        from fedtempo.learning import networks
    except ModuleNotFoundError:
        raise MissingDependencyError("torch", purpose) from None
    return networks
