"""A torch module as two flat vectors: its parameters, and the buffers that are averaged."""

from functools import reduce

import torch
from torch import nn

from fedtempo.learning.trainer import NO_BUFFERS, Buffers, Parameters


class FlatModule:
    """Sets and reads the state of a module.

    Parameters that are shared stand once, in the order of ``module.parameters()``. Buffers of real numbers that a
    state dict would hold are averaged among clients, such as the statistics of batch normalisation. All others, its
    counters for instance, are as they were at first whenever the state is set, so that no client sees another's.
    """

    def __init__(self, module: nn.Module) -> None:
        """Take a module as it was made."""
        self.module = module
        self.weights = list(module.parameters())
        self.trained = [weight for weight in self.weights if weight.requires_grad]
        kept, buffers = module.state_dict(), dict(module.named_buffers())
        self.averaged = [name for name, one in buffers.items() if name in kept and one.is_floating_point()]
        self.first = {name: one.detach().clone() for name, one in buffers.items()}
        # Of labels, losses and norms: the type of the weights, but float32 at least.
        self.precise = reduce(torch.promote_types, [weight.dtype for weight in self.trained], torch.float32)
        self.exact = all(weight.dtype == torch.float32 for weight in self.weights)

    @property
    def num_parameters(self) -> int:
        """How many numbers the parameters are."""
        return sum(weight.numel() for weight in self.weights)

    @property
    def num_buffers(self) -> int:
        """How many numbers are averaged beside them."""
        return sum(self.first[name].numel() for name in self.averaged)

    @property
    def dtype(self) -> torch.dtype:
        """The type of real numbers that the module computes with."""
        return next((weight.dtype for weight in self.weights if weight.is_floating_point()), torch.float32)

    def set(self, flat: torch.Tensor, buffers: Buffers | None = None) -> None:
        """Set parameters and buffers; None: buffers as they were at first."""
        with torch.no_grad():
            first = 0
            for weight in self.weights:
                weight.copy_(flat[first : first + weight.numel()].view_as(weight))
                first += weight.numel()
            if self.first:
                self._set_buffers(buffers)

    def split(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Return the parts of a flat vector that belong to trained parameters, in their shapes and types."""
        parts = flat.split([weight.numel() for weight in self.weights])
        pairs = zip(self.weights, parts, strict=True)
        return [part.view_as(weight).to(weight.dtype) for weight, part in pairs if weight.requires_grad]

    def _set_buffers(self, buffers: Buffers | None) -> None:
        now, first = dict(self.module.named_buffers()), 0
        for name, begun in self.first.items():
            now[name].copy_(begun)
        for name in self.averaged if buffers is not None else ():
            size = now[name].numel()
            now[name].copy_(torch.from_numpy(buffers[first : first + size]).view_as(now[name]))  # type: ignore[index]
            first += size

    def parameters(self) -> Parameters:
        """Return the parameters, in double precision where the module has some of that."""
        flat = torch.cat([weight.detach().reshape(-1) for weight in self.weights])
        whole: Parameters = (flat if flat.dtype == torch.float64 else flat.float()).cpu().numpy()
        return whole

    def buffers(self) -> Buffers:
        """Return the buffers that are averaged."""
        if not self.averaged:
            return NO_BUFFERS
        now = dict(self.module.named_buffers())
        flat: Buffers = torch.cat([now[name].detach().reshape(-1).cpu().double() for name in self.averaged]).numpy()
        return flat
