"""What compiled trainers share: how they are compiled, and the cross-entropy with its slopes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba.core import event, types
from numba.extending import intrinsic

from fedtempo.checks import InputError, Integers, Vector
from fedtempo.data.federation import FederatedData
from fedtempo.learning.trainer import LocalResult, LocalWork, Parameters

# Sums of floats are reordered, but always in the same way, so equal input gives equal bytes.
compiled = numba.njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})


@contextmanager
def on_compile(call: Callable[[], None]) -> Iterator[None]:
    """Call a function before the first kernel is compiled; never, where all are found in numba's cache."""
    with event.install_listener("numba:compile", _First(call)):
        yield


class _First(event.Listener):
    def __init__(self, call: Callable[[], None]) -> None:
        self.calls = [call]

    def on_start(self, event: event.Event) -> None:
        while self.calls:
            self.calls.pop()()

    def on_end(self, event: event.Event) -> None:
        pass


@numba.njit(inline="always")
def exp(x: np.float32) -> np.float32:
    """Return e^x for x ≤ 0 in single precision, to 1e-7: without a call, so that loops over it become vector code.

    x = n ln 2 + r; e^r is the minimax polynomial of the Cephes library, and n goes into the bits of the exponent.
    """
    x = max(x, np.float32(-87))
    n = np.rint(x * np.float32(1.44269504))
    r = x - n * np.float32(0.693359375) - n * np.float32(-2.12194440e-4)
    p = np.float32(1.9875691500e-4) * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    bits = (np.int32(n) + np.int32(127)) << np.int32(23)
    return (p * r * r + r + np.float32(1)) * np.int32(bits).view(np.float32)


@compiled
def slopes_of_cross_entropy(logits: Parameters, labels: Integers, room: Parameters) -> float:
    """Put the slopes of the mean cross-entropy in the place of the logits, (class, sample); return its sum.

    Samples lie side by side, so that every loop runs over them in vectors. ``room`` holds two numbers for each.
    """
    classes, samples = logits.shape
    highest, total = room[0], room[1]
    highest[:] = logits[0]
    for c in range(1, classes):
        for s in range(samples):
            highest[s] = max(highest[s], logits[c, s])
    loss = 0.0
    for s in range(samples):
        loss += highest[s] - logits[labels[s], s]
    total[:] = 0
    for c in range(classes):
        for s in range(samples):
            logits[c, s] = exp(logits[c, s] - highest[s])
            total[s] += logits[c, s]
    product = 1.0
    for s in range(samples):
        product *= float(total[s])  # at most the number of classes: one logarithm serves several samples
        if product > 1e200:
            loss += np.log(product)
            product = 1.0
        total[s] = np.float32(1) / (total[s] * samples)
    for c in range(classes):
        for s in range(samples):
            logits[c, s] *= total[s]
    for s in range(samples):
        logits[labels[s], s] -= np.float32(1) / samples
    return loss + np.log(product)


@compiled
def sgd_step(weights: Parameters, gradient: Parameters, step_size: np.float32, weight_decay: np.float32) -> float:
    """Take w ← w - η (g + λ w); return the norm of g + λ w."""
    square = np.float32(0)
    for i in range(len(weights)):
        slope = gradient[i] + weight_decay * weights[i]
        square += slope * slope
        weights[i] -= step_size * slope
    return np.sqrt(square)


def check_classes_of_numbers(model: str, data: FederatedData) -> None:
    """Refuse data that the compiled models cannot take: tokens, and labels that are no classes."""
    if data.tokens:
        remedy = "make them float32, or give a torch module that takes whole numbers"
        raise InputError(f"the inputs of model {model}", "be real numbers", "whole numbers", remedy)
    if not data.num_classes:
        got = f"{data.labels.dtype} of shape {data.labels.shape}"
        remedy = "give a torch module and a loss of your own"
        raise InputError(f"the labels of model {model}", "be one class for each sample", got, remedy)


class StepRule(NamedTuple):
    """How a step follows from a gradient; compiled code takes it as it is."""

    weight_decay: np.float32
    clip_norm: np.float32
    proximal: np.float32
    gradient_share: np.float32
    shifted: bool  # whether something is added to the gradient
    plain: bool  # none of the last four


@compiled
def careful_step(
    weights: Parameters,
    gradient: Parameters,
    start: Parameters,
    shift: Parameters,
    step_size: np.float32,
    rule: StepRule,
) -> float:
    """Take a step along g + λ w, clipped and shifted, then move towards the start; return the norm of g + λ w.

    The gradient is overwritten.
    """
    square = np.float32(0)
    for i in range(len(weights)):
        gradient[i] += rule.weight_decay * weights[i]
        square += gradient[i] * gradient[i]
    norm = np.sqrt(square)
    length = step_size
    if rule.clip_norm > 0 and norm > rule.clip_norm:
        length *= rule.clip_norm / norm
    if rule.shifted:
        for i in range(len(weights)):
            weights[i] -= length * rule.gradient_share * gradient[i] + step_size * shift[i]
    else:
        for i in range(len(weights)):
            weights[i] -= length * gradient[i]
    if rule.proximal > 0:
        kept = np.float32(1) / (np.float32(1) + step_size * rule.proximal)
        for i in range(len(weights)):
            weights[i] = start[i] + kept * (weights[i] - start[i])
    return norm


def run_kernel(
    kernel: Callable[..., tuple[Parameters, Vector]], data: FederatedData, models: Parameters, work: LocalWork
) -> LocalResult:
    """Return what a compiled kernel makes of some clients' work; models and updates have the shape that it works on.

    It returns updates and, for each client, the largest and the mean gradient norm and the mean loss.
    """
    sizes = work.step_sizes.astype(np.float32)
    rule = StepRule(
        weight_decay=np.float32(work.weight_decay),
        clip_norm=np.float32(work.clip_norm),
        proximal=np.float32(work.proximal),
        gradient_share=np.float32(work.gradient_share),
        shifted=work.shifts is not None,
        plain=work.plain,
    )
    shifts = np.zeros((1, 0), dtype=np.float32) if work.shifts is None else np.ascontiguousarray(work.shifts)
    shift_of = np.zeros_like(work.start) if work.shift_of is None else work.shift_of
    shared = data.inputs, data.labels, models, work.start, work.rows, work.local_steps, sizes
    update, path = kernel(*shared, shifts, shift_of, rule)
    largest, mean, loss = path.T
    return LocalResult(
        update=update.reshape(len(update), -1),
        largest_gradient_norm=largest,
        mean_gradient_norm=mean,
        mean_loss=loss,
    )


def adder(width: int) -> Callable[..., None]:
    """Return add(target, i, source, j, factor) for target[i : i + width] += factor × source[j : j + width].

    It is vector code: the two must not overlap, which a compiler cannot know, so it would take one number at a time.
    """

    @intrinsic
    def add(context: Any, target: Any, i: Any, source: Any, j: Any, factor: Any) -> Any:  # noqa: ANN401
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
            target, i, source, j, factor = arguments
            vector = ir.VectorType(ir.FloatType(), width)

            def pointer(kind: Any, array: Any, index: Any) -> Any:  # noqa: ANN401
                data = context.make_array(kind)(context, builder, array).data
                return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())

            place = pointer(signature.args[0], target, i)
            there = builder.load(place, align=4)
            terms = builder.load(pointer(signature.args[2], source, j), align=4)
            first = builder.insert_element(ir.Constant(vector, ir.Undefined), factor, ir.Constant(ir.IntType(32), 0))
            lanes = ir.Constant(ir.VectorType(ir.IntType(32), width), None)
            factors = builder.shuffle_vector(first, first, lanes)
            products = builder.fmul(factors, terms, flags=["contract"])
            builder.store(builder.fadd(there, products, flags=["contract"]), place, align=4)
            return context.get_dummy_value()

        return types.void(target, i, source, j, factor), generate

    return add
