"""One local training on a client, while it runs: what it measures, and the server's direction that its steps follow."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord

from fedtempo.checks import InputError
from fedtempo.flower.strategy.messages import FOLLOWED_DIRECTION, LARGEST_GRADIENT_NORM, MEAN_GRADIENT_NORM

NOT_FOLLOWED = (
    "local_direction must be followed by the steps of the app's own training, which did not ask for the direction; "
    "call follow_direction(model) before each step of the optimiser, or leave local_direction out"
)


@dataclass(frozen=True, eq=False, slots=True)
class ServerDirection:
    """The server's last direction d, which local steps follow too: w ← w - η ((1 - α) g - α d)."""

    share: float  # α
    arrays: Mapping[str, npt.NDArray[Any]]  # d, named as the model's parameters are


class LocalTraining:
    """Gradient norms along the path of one local training, and whether it follows the server's direction."""

    def __init__(self, share: float = 0.0, direction: ArrayRecord | None = None) -> None:
        """Start with no norm; ``share``: α, 0 where steps follow gradients alone."""
        self.count, self.total, self.largest = 0, 0.0, 0.0
        self.share, self.followed, self.noted_before_step = share, False, False
        arrays = None if direction is None else {name: array.numpy() for name, array in direction.items()}
        self.direction = None if arrays is None else ServerDirection(share, arrays)
        self.tensors: dict[str, Any] = {}  # of the direction, where PyTorch follows it

    def add(self, norm: float) -> None:
        """Take the norm of one more gradient."""
        self.count += 1
        self.total += norm
        self.largest = max(self.largest, norm)

    def metrics(self) -> dict[str, float]:
        """Return what a reply reports."""
        norms = {LARGEST_GRADIENT_NORM: self.largest, MEAN_GRADIENT_NORM: self.total / self.count} if self.count else {}
        return {**norms, **({FOLLOWED_DIRECTION: self.share} if self.share and self.followed else {})}

    def check_followed(self) -> None:
        """Refuse a training that was to follow the server's direction, and did not ask for it."""
        if self.share and not self.followed:
            raise RuntimeError(NOT_FOLLOWED)


_running: list[LocalTraining] = []


def note_gradient(gradient: npt.ArrayLike | Sequence[npt.ArrayLike]) -> None:
    """Report the gradient of a local step, whole or as a list of layers, or its norm.

    For training without an optimiser of PyTorch, whose gradients the mod sees by itself. Outside of a training that the
    mod measures it does nothing.
    """
    if _running:
        parts = gradient if isinstance(gradient, list | tuple) else [gradient]
        squares = [float(np.sum(np.square(np.asarray(part, dtype=np.float64)))) for part in parts]
        _running[-1].add(math.sqrt(sum(squares)))


def server_direction() -> ServerDirection | None:
    """Return the direction that the steps of this training are to follow too, None where there is none.

    With it, a step goes along (1 - share) × gradient - share × direction in the place of the gradient. Who asks says by
    it that the steps do so.
    """
    if not _running:
        return None
    _running[-1].followed = True
    return _running[-1].direction


def follow_direction(module: Any) -> None:  # noqa: ANN401
    """Mix the server's direction into the gradients of a PyTorch module: call it before each step of the optimiser.

    Where the strategy has no ``local_direction``, and outside of a training that the mod measures, it does nothing.
    """
    direction = server_direction()
    if direction is None:
        return
    named = [(name, one) for name, one in module.named_parameters() if one.grad is not None]
    if missing := [name for name, _ in named if name not in direction.arrays]:
        remedy = "send module.state_dict() as the model, or use server_direction()"
        raise InputError("the module", "have the parameters of the model that it received", f"{missing}", remedy)
    training = _running[-1]
    training.add(_norm([one.grad for _, one in named]))
    training.noted_before_step = True
    for name, one in named:
        if one.grad.is_sparse:
            one.grad = one.grad.to_dense()
        if name not in training.tensors:
            training.tensors[name] = one.grad.new_tensor(direction.arrays[name])
        one.grad.mul_(1 - direction.share).sub_(training.tensors[name], alpha=direction.share)


@contextmanager
def measuring(training: LocalTraining) -> Iterator[LocalTraining]:
    """Take the gradients of every optimiser step of PyTorch, where it is loaded, and those of ``note_gradient``."""
    _running.append(training)
    torch: Any = sys.modules.get("torch")
    optimisers: Any = sys.modules.get("torch.optim.optimizer")
    hook = None
    if torch is not None and optimisers is not None:

        def see(optimiser: Any, args: object, kwargs: object) -> None:  # noqa: ANN401
            if training.noted_before_step:  # as it was, before the server's direction came into it
                training.noted_before_step = False
                return
            gradients = [p.grad for group in optimiser.param_groups for p in group["params"] if p.grad is not None]
            if gradients:
                training.add(_norm(gradients))

        hook = optimisers.register_optimizer_step_pre_hook(see)
    try:
        yield training
    finally:
        _running.remove(training)
        if hook is not None:
            hook.remove()


def _norm(gradients: Sequence[Any]) -> float:
    """Return the norm of gradients of PyTorch."""
    torch: Any = sys.modules["torch"]
    dense = [one.coalesce().values() if one.is_sparse else one for one in gradients]
    return math.sqrt(sum(float(torch.linalg.vector_norm(one)) ** 2 for one in dense))
