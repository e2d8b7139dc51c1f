"""Optimisers of local training: plain SGD, one of torch by its name, or a function of one's own."""

from collections.abc import Callable
from typing import Any

import torch

from fedtempo.checks import InputError, near_miss
from fedtempo.learning.module_errors import one_sentence

MakeOptimiser = Callable[[list[torch.Tensor]], torch.optim.Optimizer]
NEEDS_CLOSURE = ("LBFGS",)
STEPS = "step along the gradients of the module"


def known_optimisers() -> dict[str, MakeOptimiser]:
    """Return torch's optimisers that step once for each gradient, by name."""
    found = vars(torch.optim).items()
    kinds: dict[str, Any] = {
        name: kind
        for name, kind in found
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
    }
    return {name: kind for name, kind in kinds.items() if name not in NEEDS_CLOSURE}


def optimiser_of(optimiser: str | MakeOptimiser | None) -> MakeOptimiser | None:
    """Return what makes an optimiser of some parameters; None: plain SGD."""
    if optimiser is None:
        return None
    if isinstance(optimiser, str):
        known = known_optimisers()
        by_lower = {name.lower(): kind for name, kind in known.items()}
        if optimiser.lower() not in by_lower:
            near = near_miss(optimiser.lower(), by_lower, otherwise=f"known are {', '.join(known)}")
            raise InputError(name="optimiser", rule="be one of torch.optim", got=repr(optimiser), remedy=near)
        return by_lower[optimiser.lower()]
    if isinstance(optimiser, torch.optim.Optimizer) or not callable(optimiser):
        rule = "be a name in torch.optim or a function from parameters to an optimiser"
        got = type(optimiser).__name__ if isinstance(optimiser, torch.optim.Optimizer) else repr(optimiser)
        raise InputError(name="optimiser", rule=rule, got=got, remedy="each client and round has a new one")
    return optimiser


class Stepper:
    """One client's optimiser in one round, fed with gradients."""

    def __init__(self, make: MakeOptimiser, weights: list[torch.Tensor]) -> None:
        """Make the optimiser."""
        with one_sentence("optimiser", STEPS):
            self.weights, self.optimiser = weights, make(weights)
            if not isinstance(self.optimiser, torch.optim.Optimizer):
                rule = "be a function that makes a torch.optim.Optimizer"
                raise InputError(name="optimiser", rule=rule, got=f"one that made {type(self.optimiser).__name__}")
            self.ratios = _ratios(self.optimiser.param_groups)

    def step(self, gradients: list[torch.Tensor], step_size: float) -> None:
        """Take a step, with the step size of the plan as the learning rate of the first group of parameters."""
        for weight, gradient in zip(self.weights, gradients, strict=True):
            weight.grad = gradient
        for group, ratio in zip(self.optimiser.param_groups, self.ratios, strict=True):
            group["lr"] = step_size * ratio
        with one_sentence("optimiser", STEPS):
            self.optimiser.step()

    def close(self) -> None:
        """Leave no gradients behind."""
        for weight in self.weights:
            weight.grad = None


def _ratios(groups: list[dict[str, Any]]) -> list[float]:
    """Return the learning rates of groups over that of the first; a single group may have any, or none."""
    if len(groups) == 1:
        return [1.0]
    rates = [float(group["lr"]) for group in groups]
    if not rates[0] > 0:
        rule = "have a learning rate above 0, to which those of others are relative"
        raise InputError(name="the first parameter group of the optimiser", rule=rule, got=f"{rates[0]:g}")
    return [rate / rates[0] for rate in rates]
