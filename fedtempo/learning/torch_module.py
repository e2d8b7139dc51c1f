"""Any ``torch.nn.Module`` as a trainer, on any torch device."""

import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedtempo.checks import InputError, Integers, Vector
from fedtempo.data.federation import FederatedData
from fedtempo.learning.trainer import Evaluation, LocalResult, LocalWork, Parameters

SAMPLES_AT_ONCE = 512  # of an evaluation: the fastest of 32 to 1024 for LeNet-5


class TorchTrainer:
    """Train ``module()`` by plain SGD on the cross-entropy of its outputs.

    One module serves all clients, one after another: its parameters are set from the flat vector, its batches are taken
    by index from data that stay on the device. That was the fastest of the ways tried for small networks
    (docs/decisions).
    """

    def __init__(self, data: FederatedData, module: Callable[[], nn.Module], *, device: str = "cpu") -> None:
        """Put data and module onto the device."""
        if isinstance(module, nn.Module):
            raise InputError(
                name="the model", rule="be a function that makes a module", got=f"a {type(module).__name__} itself"
            )
        self.data, self.make_module, self.device = data, module, torch.device(device)
        self.module = self._new_module()
        if any(True for _ in self.module.buffers()):
            raise InputError(
                name="the module",
                rule="keep its whole state in parameters",
                got="buffers",
                remedy="use GroupNorm, not BatchNorm",
            )
        self.weights = list(self.module.parameters())
        self.trained = [weight for weight in self.weights if weight.requires_grad]
        self.num_parameters = sum(weight.numel() for weight in self.weights)
        self.inputs, self.labels = self._tensors(data.inputs, data.labels)
        self.test_inputs, self.test_labels = self._tensors(data.test_inputs, data.test_labels)
        self._check_outputs()

    def initial_model(self, rng: np.random.Generator) -> Parameters:
        """Return the module's own initialisation, seeded from ``rng`` and not from torch's global state."""
        with torch.random.fork_rng():
            torch.manual_seed(int(rng.integers(2**63)))
            return self._flat(list(self._new_module().parameters()))

    def train(self, models: Parameters, work: LocalWork) -> LocalResult:
        """Run local SGD for each client of ``work``, one after another."""
        starts = torch.from_numpy(np.ascontiguousarray(models)).to(self.device)
        rows = torch.from_numpy(work.rows).to(self.device)
        self.module.train()
        with torch.random.fork_rng(devices=self._generators()):
            return self._train(models, starts, rows, work)

    def _train(self, models: Parameters, starts: torch.Tensor, rows: torch.Tensor, work: LocalWork) -> LocalResult:
        updates, paths = [], []
        for k, start in enumerate(work.start.tolist()):
            self._set(starts[start])
            # Dropout and the like draw from torch's own stream: here it is one of this client and these batches.
            torch.manual_seed(_seed_of(work.rows[k]))
            norms, losses = [], []
            for batch in rows[k, : int(work.local_steps[k])]:
                loss = cross_entropy(self.module(self.inputs[batch]), self.labels[batch])
                gradients = list(torch.autograd.grad(loss, self.trained))
                with torch.no_grad():
                    if work.weight_decay:
                        torch._foreach_add_(gradients, self.trained, alpha=work.weight_decay)
                    norms.append(torch.stack(torch._foreach_norm(gradients)).norm())
                    torch._foreach_add_(self.trained, gradients, alpha=-float(work.step_size[k]))
                losses.append(loss.detach())
            updates.append(self._flat(self.weights) - models[start])
            path = torch.stack(norms)
            paths.append((float(path.max()), float(path.mean()), float(torch.stack(losses).mean())))
        largest, mean, mean_loss = np.array(paths).T
        return LocalResult(
            update=np.array(updates), largest_gradient_norm=largest, mean_gradient_norm=mean, mean_loss=mean_loss
        )

    def evaluate(self, model: Parameters) -> Evaluation:
        """Return the loss over all training data and the accuracy on the test data."""
        self._set(torch.from_numpy(model).to(self.device))
        self.module.eval()
        with torch.inference_mode():
            loss = self._total_loss(slice(0, len(self.labels)))
            right = sum(
                int((self.module(x).argmax(dim=1) == y).sum())
                for x, y in zip(
                    *(part.split(SAMPLES_AT_ONCE) for part in (self.test_inputs, self.test_labels)), strict=True
                )
            )
        return Evaluation(loss / len(self.labels), right / max(1, len(self.test_labels)))

    def client_losses(self, model: Parameters, clients: Integers) -> Vector:
        """Return F_i(w) for some clients."""
        self._set(torch.from_numpy(model).to(self.device))
        self.module.eval()
        ends = [(int(self.data.offsets[i]), int(self.data.offsets[i + 1])) for i in clients]
        with torch.inference_mode():
            return np.array([self._total_loss(slice(first, end)) / (end - first) for first, end in ends])

    def _total_loss(self, rows: slice) -> float:
        parts = zip(*(part[rows].split(SAMPLES_AT_ONCE) for part in (self.inputs, self.labels)), strict=True)
        return sum(float(cross_entropy(self.module(x), y, reduction="sum")) for x, y in parts)

    def _check_outputs(self) -> None:
        self.module.eval()
        try:
            with torch.inference_mode():
                shape = tuple(self.module(self.inputs[:1]).shape)
        except (RuntimeError, TypeError, ValueError) as error:
            raise InputError(
                name="the module", rule=f"take inputs of shape {self.data.input_shape}", got=f"{error}"
            ) from error
        if shape != (1, self.data.num_classes):
            raise InputError(
                name="the module", rule=f"give {self.data.num_classes} numbers for a sample", got=f"shape {shape}"
            )

    def _generators(self) -> list[torch.device]:
        return [] if self.device.type == "cpu" else [self.device]

    def _new_module(self) -> nn.Module:
        module = self.make_module().to(self.device)
        return module.to(memory_format=torch.channels_last) if len(self.data.input_shape) == 3 else module

    def _tensors(self, inputs: Parameters, labels: Integers) -> tuple[torch.Tensor, torch.Tensor]:
        shaped = torch.from_numpy(inputs.reshape(-1, *self.data.input_shape).copy()).to(self.device)
        if shaped.dim() == 4:
            shaped = shaped.contiguous(memory_format=torch.channels_last)
        return shaped, torch.from_numpy(labels.copy()).to(self.device)

    def _set(self, flat: torch.Tensor) -> None:
        with torch.no_grad():
            first = 0
            for weight in self.weights:
                weight.copy_(flat[first : first + weight.numel()].view_as(weight))
                first += weight.numel()

    @staticmethod
    def _flat(weights: list[torch.Tensor]) -> Parameters:
        flat: Parameters = torch.cat([weight.detach().reshape(-1) for weight in weights]).cpu().numpy()
        return flat


def _seed_of(rows: npt.NDArray[np.int64]) -> int:
    return zlib.crc32(np.ascontiguousarray(rows).tobytes())
