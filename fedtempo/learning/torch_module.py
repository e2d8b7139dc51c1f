"""Any ``torch.nn.Module`` as a trainer, on any torch device."""

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedtempo.checks import InputError, Integers, Vector
from fedtempo.data.federation import FederatedData
from fedtempo.learning.flat_module import FlatModule
from fedtempo.learning.module_errors import (
    check_evaluation,
    check_gradients,
    check_module,
    checked_device,
    one_sentence,
)
from fedtempo.learning.objective import Loss, Metric, Objective, precise
from fedtempo.learning.optimisers import MakeOptimiser, Stepper, optimiser_of
from fedtempo.learning.trainer import NO_BUFFERS, Buffers, Evaluation, LocalResult, LocalWork, Parameters

SAMPLES_AT_ONCE = 512  # of an evaluation: the fastest of 32 to 1024 for LeNet-5


class TorchTrainer:
    """Train ``module()`` on the cross-entropy of its outputs by plain SGD, or as functions of one's own say.

    - ``loss(outputs, labels)``: a scalar tensor, the mean over the batch. ``metric(outputs, labels)``: a number
      for all test samples at once, which stands as accuracy in records.
    - ``optimiser``: a name in ``torch.optim`` or a function from parameters to an optimiser. Each client and round has
      a new one, whose learning rate is the step size of the plan. Groups of parameters keep the ratios of theirs.

    One module serves all clients, one after another: its parameters are set from the flat vector, its batches are taken
    by index from data that stay on the device. That was the fastest of the ways tried for small networks
    (docs/decisions).
    """

    def __init__(
        self,
        data: FederatedData,
        module: Callable[[], nn.Module],
        *,
        device: str = "cpu",
        loss: Loss | None = None,
        metric: Metric | None = None,
        optimiser: str | MakeOptimiser | None = None,
    ) -> None:
        """Put data and module onto the device, and try them on two samples."""
        if isinstance(module, nn.Module) or not callable(module):
            got = f"a {type(module).__name__} itself"
            raise InputError(name="the model", rule="be a function that makes a module", got=got)
        self.data, self.make_module, self.device = data, module, checked_device(device)
        self.objective, self.optimiser = Objective(data, loss, metric), optimiser_of(optimiser)
        self.channels_last = len(data.input_shape) == 3
        try:
            self._begin()
        except InputError:
            if not self.channels_last:
                raise
            self.channels_last = False  # a module that views its maps as they lie in memory
            self._begin()

    def _begin(self) -> None:
        self.flat = FlatModule(self._new_module(0))
        self.module, self.trained = self.flat.module, self.flat.trained
        self.num_parameters, self.num_buffers = self.flat.num_parameters, self.flat.num_buffers
        self.inputs, self.labels = self._tensors(self.data.inputs, self.data.labels)
        self.test_inputs, self.test_labels = self._tensors(self.data.test_inputs, self.data.test_labels)
        self._try()

    def initial_model(self, rng: np.random.Generator) -> Parameters:
        """Return the module's own initialisation, seeded from ``rng`` and not from torch's global state."""
        return FlatModule(self._new_module(_seed_from(rng))).parameters().astype(np.float32, copy=False)

    def initial_buffers(self, rng: np.random.Generator) -> Buffers:
        """Return the buffers of the same module."""
        return FlatModule(self._new_module(_seed_from(rng))).buffers()

    def module_with(self, model: Parameters, buffers: Buffers | None = None) -> nn.Module:
        """Return a new module on the device that has these parameters and buffers, ready to be evaluated."""
        flat = FlatModule(self._new_module(0))
        flat.set(torch.from_numpy(model).to(self.device), buffers if flat.averaged else None)
        module: nn.Module = flat.module.to(memory_format=torch.contiguous_format)
        return module.eval()

    def train(self, models: Parameters, work: LocalWork) -> LocalResult:
        """Run the local steps of each client of ``work``, one after another."""
        starts = torch.from_numpy(np.ascontiguousarray(models)).to(self.device)
        rows = torch.from_numpy(work.rows).to(self.device)
        self.module.train()
        with torch.random.fork_rng(devices=self._generators()), one_sentence("the module", "train on its batches"):
            return self._train(models, starts, rows, work)

    def _train(self, models: Parameters, starts: torch.Tensor, rows: torch.Tensor, work: LocalWork) -> LocalResult:
        updates, paths, buffers, sizes = [], [], [], work.step_sizes.tolist()
        for k, start in enumerate(work.start.tolist()):
            self.flat.set(starts[start], None if work.buffers is None else work.buffers[start])
            begun = models[start] if self.flat.exact else self.flat.parameters()
            # Dropout and the like draw from torch's own stream: here it is one of this client and these batches.
            steps = int(work.local_steps[k])
            torch.manual_seed(_seed_of(work.rows[k, :steps]))
            paths.append(self._run(rows[k, :steps], sizes[k], work, self._shift(work, k)))
            updates.append((self.flat.parameters() - begun).astype(np.float32, copy=False))
            buffers.append(self.flat.buffers())
        largest, mean, mean_loss = np.array(paths).T
        return LocalResult(
            update=np.array(updates),
            largest_gradient_norm=largest,
            mean_gradient_norm=mean,
            mean_loss=mean_loss,
            buffers=np.array(buffers) if self.num_buffers else None,
        )

    def _shift(self, work: LocalWork, client: int) -> list[torch.Tensor]:
        """Return what is added to one client's gradients; nothing mostly."""
        if work.shifts is None:
            return []
        row = 0 if work.shift_of is None else int(work.shift_of[client])
        return self.flat.split(torch.from_numpy(np.ascontiguousarray(work.shifts[row])).to(self.device))

    def _run(
        self, batches: torch.Tensor, sizes: list[float], work: LocalWork, shift: list[torch.Tensor]
    ) -> tuple[float, float, float]:
        """Run one client's steps; return the largest and the mean gradient norm, and the mean loss."""
        stepper = None if self.optimiser is None else Stepper(self.optimiser, self.trained)
        begun = [weight.detach().clone() for weight in self.trained] if work.proximal else []
        norms, losses = [], []
        for batch, size in zip(batches, sizes, strict=False):
            loss = self.objective.loss(precise(self.module(self.inputs[batch])), self.labels[batch])
            gradients = self._gradients(loss)
            with torch.no_grad():
                if work.weight_decay:
                    torch._foreach_add_(gradients, self.trained, alpha=work.weight_decay)
                norm = torch.stack(torch._foreach_norm(gradients, 2, self.flat.precise)).norm()
                norms.append(norm)
                if work.clip_norm:
                    torch._foreach_mul_(gradients, torch.clamp(work.clip_norm / norm, max=1.0))
                if shift:
                    torch._foreach_mul_(gradients, work.gradient_share)
                    torch._foreach_add_(gradients, shift)
                if stepper is None:
                    torch._foreach_add_(self.trained, gradients, alpha=-size)
                else:
                    stepper.step(gradients, size)
                if work.proximal:
                    kept = 1.0 / (1.0 + size * work.proximal)
                    torch._foreach_lerp_(self.trained, begun, 1.0 - kept)
            losses.append(loss.detach())
        if stepper is not None:
            stepper.close()
        path = torch.stack(norms)
        return float(path.max()), float(path.mean()), float(torch.stack(losses).mean())

    def _gradients(self, loss: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.autograd.grad(loss, self.trained, materialize_grads=True))

    def evaluate(self, model: Parameters, buffers: Buffers = NO_BUFFERS) -> Evaluation:
        """Return the loss over all training data and the accuracy, or the metric, on the test data."""
        with self._evaluating(model, buffers):
            loss = self._total(self.objective.total_loss, self.inputs, self.labels)
            return Evaluation(loss / len(self.labels), self._metric(self.test_inputs, self.test_labels))

    def client_losses(self, model: Parameters, clients: Integers, buffers: Buffers = NO_BUFFERS) -> Vector:
        """Return F_i(w) for some clients."""
        ends = [(int(self.data.offsets[i]), int(self.data.offsets[i + 1])) for i in clients]
        with self._evaluating(model, buffers):
            return np.array([
                self._total(self.objective.total_loss, self.inputs[first:end], self.labels[first:end]) / (end - first)
                for first, end in ends
            ])  # fmt: skip

    @contextmanager
    def _evaluating(self, model: Parameters, buffers: Buffers) -> Iterator[None]:
        self.flat.set(torch.from_numpy(model).to(self.device), buffers if buffers.size else None)
        self.module.eval()
        # No inference mode: what a module keeps from it, a mask for instance, could not be trained with.
        with torch.no_grad(), one_sentence("the module", "be evaluated on the data"):
            yield

    def _total(
        self, of_batch: Callable[[Any, torch.Tensor], float], inputs: torch.Tensor, labels: torch.Tensor
    ) -> float:
        parts = zip(*(part.split(SAMPLES_AT_ONCE) for part in (inputs, labels)), strict=True)
        return sum(of_batch(precise(self.module(x)), y) for x, y in parts)

    def _metric(self, inputs: torch.Tensor, labels: torch.Tensor) -> float:
        if self.objective.own_metric is None:
            return self._total(self.objective.total_right, inputs, labels) / len(labels)
        return self.objective.metric([precise(self.module(x)) for x in inputs.split(SAMPLES_AT_ONCE)], labels)

    def _try(self) -> None:
        """Take a step on two samples, which finds most of what does not fit; the state is set before any other use."""
        rows = torch.tensor([0, self._telling_row()], device=self.device)
        inputs, labels = self.inputs[rows], self.labels[rows]
        takes = f"take inputs of shape {self.data.input_shape}"
        with torch.random.fork_rng(devices=self._generators()), one_sentence("the module", takes):
            torch.manual_seed(0)
            self.module.eval()
            with torch.no_grad():
                self.module(inputs)
            if not torch.equal(inputs, self.inputs[rows]):
                remedy = "leave out inplace=True in its first layer"
                raise InputError("the module", "leave its inputs as they are", "other ones after it", remedy)
            check_evaluation(self.module, inputs)
            check_gradients(self._gradients(self.objective.check(precise(self.module.train()(inputs)), labels)))
            if self.objective.own_metric is not None:  # on the first batch of evaluations, before a run begins
                self.module.eval()
                with torch.no_grad():
                    self._metric(self.test_inputs[:SAMPLES_AT_ONCE], self.test_labels[:SAMPLES_AT_ONCE])
            self.train(self.flat.parameters().astype(np.float32)[None], _one_step(rows.tolist()))

    def _telling_row(self) -> int:
        """Return a sample of the last class, for which a module may have no output; without classes the last one."""
        labels = self.data.labels
        return int(labels.argmax()) if labels.ndim == 1 and labels.dtype.kind in "iu" else len(labels) - 1

    def _generators(self) -> list[torch.device]:
        return [] if self.device.type == "cpu" else [self.device]

    def _new_module(self, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=self._generators()):
            torch.manual_seed(seed)
            with one_sentence("the model", "be a function that makes a module"):
                module = self.make_module()
        check_module(module)
        if module is getattr(self, "module", None):
            raise InputError(name="the model", rule="make a new module in each call", got="the same again")
        module = module.to(self.device)
        return module.to(memory_format=torch.channels_last) if self.channels_last else module

    def _tensors(self, inputs: npt.NDArray[Any], labels: npt.NDArray[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        shaped, wanted = (
            torch.from_numpy(array.copy()).to(self.device)
            for array in (inputs.reshape(-1, *self.data.input_shape), labels)
        )
        shaped, wanted = (
            part.to(dtype) if part.is_floating_point() else part
            for part, dtype in ((shaped, self.flat.dtype), (wanted, self.flat.precise))
        )
        return shaped.contiguous(memory_format=torch.channels_last) if self.channels_last else shaped, wanted


def _one_step(rows: list[int]) -> LocalWork:
    """Return a small step on two samples, with all rules on."""
    return LocalWork(
        start=np.array([0]), rows=np.array([[rows]]), local_steps=np.array([1]),
        step_size=np.array([1e-6]), weight_decay=0.1, clip_norm=1.0, proximal=0.1,
    )  # fmt: skip


def _seed_from(rng: np.random.Generator) -> int:
    return int(rng.integers(2**63))


def _seed_of(rows: npt.NDArray[np.int64]) -> int:
    return zlib.crc32(np.ascontiguousarray(rows).tobytes())
