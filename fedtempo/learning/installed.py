"""Libraries that are loaded when they are needed, and may be missing."""

from types import ModuleType

from fedtempo.checks import MissingDependencyError


def torch_models(purpose: str) -> ModuleType:
    """Return the models on torch."""
    try:
        from fedtempo.learning import models
    except ModuleNotFoundError:
        raise MissingDependencyError("torch", "torch", purpose) from None
    return models
