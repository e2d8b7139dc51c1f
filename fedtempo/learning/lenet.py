"""LeNet-5, fast: local SGD compiled as a whole, with convolutions made for few channels and max pooling.

Pooling lets one of four outputs of a convolution through, so only that one has a gradient: the backward pass visits
just these, a quarter of the products that a convolution on its own would need, and fewer where ReLU is off. Feature
maps are (row, column, channel), so that a window of the second convolution is five runs of 30 contiguous numbers.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtempo.checks import InputError, Integers, Vector
from fedtempo.data.federation import FederatedData
from fedtempo.learning.compiled import (
    StepRule,
    adder,
    careful_step,
    check_classes_of_numbers,
    compiled,
    run_kernel,
    sgd_step,
    slopes_of_cross_entropy,
)
from fedtempo.learning.installed import torch_networks
from fedtempo.learning.lenet_layers import Batch, Layers, Places
from fedtempo.learning.trainer import Buffers, Evaluation, LocalResult, LocalWork, Parameters

IMAGE_SHAPE = (1, 28, 28)
WIDTH = 36  # of a line of 28 pixels with its padding, and four more so that vectors of eight may start at any window
SAMPLES_AT_ONCE = 64  # of an evaluation

add_8, add_32 = adder(8), adder(32)


class LeNetTrainer:
    """LeNet-5 with ReLU and max pooling, in single precision; parameters in the order of ``models.LeNet5``."""

    def __init__(self, data: FederatedData) -> None:
        """Take the data."""
        check_classes_of_numbers("lenet5", data)
        if data.input_shape != IMAGE_SHAPE:
            raise InputError(
                name="the inputs of model lenet5", rule=f"have the shape {IMAGE_SHAPE}", got=f"{data.input_shape}"
            )
        self.data = data
        sizes = [(6, 25), (16, 150), (120, 400), (84, 120), (data.num_classes, 84)]
        self.fan_in = np.repeat([inputs for _, inputs in sizes], [(inputs + 1) * outputs for outputs, inputs in sizes])
        self.num_parameters = len(self.fan_in)

    def initial_model(self, rng: np.random.Generator) -> Parameters:
        """Return torch's default initialisation: uniform within 1/√(inputs of the layer)."""
        return (rng.uniform(-1, 1, self.num_parameters) / np.sqrt(self.fan_in)).astype(np.float32)

    def train(self, models: Parameters, work: LocalWork) -> LocalResult:
        """Run local SGD for each client of ``work``."""
        result = run_kernel(_train, self.data, _reordered(models, (6, 5, 5), (1, 2, 0)), work)
        return replace(result, update=_reordered(result.update, (5, 5, 6), (2, 0, 1)))

    def evaluate(self, model: Parameters) -> Evaluation:
        """Return the loss over all training data and the accuracy on the test data."""
        flat = _reordered(model[None], (6, 5, 5), (1, 2, 0))[0]
        loss, _ = _evaluate(flat, self.data.inputs, self.data.labels)
        _, right = _evaluate(flat, self.data.test_inputs, self.data.test_labels)
        return Evaluation(loss / len(self.data.labels), right / max(1, len(self.data.test_labels)))

    def client_losses(self, model: Parameters, clients: Integers) -> Vector:
        """Return F_i(w) for some clients."""
        flat = _reordered(model[None], (6, 5, 5), (1, 2, 0))[0]
        held = [self.data.client(client) for client in clients.tolist()]
        return np.array([_evaluate(flat, inputs, labels)[0] / len(labels) for inputs, labels in held])

    def module_with(self, model: Parameters, buffers: Buffers | None = None) -> Any:  # noqa: ANN401
        """Return the same model as a ``models.LeNet5`` of torch."""
        networks = torch_networks("to_module")
        return networks.with_parameters(networks.LeNet5(self.data.num_classes), model)


def _reordered(models: Parameters, shape: tuple[int, ...], axes: tuple[int, ...]) -> Parameters:
    """Return a copy with the axes of each window of the second convolution in another order."""
    models = models.copy()
    windows = models[:, 156:2556].reshape(-1, *shape)
    models[:, 156:2556] = windows.transpose(0, *(1 + axis for axis in axes)).reshape(len(models), -1)
    return models


@compiled
def _layers(flat: Parameters) -> Layers:
    classes = (len(flat) - 60856) // 85
    return Layers(
        flat[:150].reshape(6, 25), flat[150:156],
        flat[156:2556].reshape(16, 150), flat[2556:2572],
        flat[2572:50572].reshape(120, 400), flat[50572:50692],
        flat[50692:60772].reshape(84, 120), flat[60772:60856],
        flat[60856:-classes].reshape(classes, 84), flat[-classes:],
    )  # fmt: skip


@compiled
def _batch(samples: int, classes: int) -> Batch:
    return Batch(
        np.zeros((samples, 32 * WIDTH), dtype=np.float32),
        np.zeros((samples, 1178), dtype=np.float32),
        np.empty((samples, 400), dtype=np.float32),
        np.empty((samples, 120), dtype=np.float32),
        np.empty((samples, 84), dtype=np.float32),
        np.empty((classes, samples), dtype=np.float32),
        np.empty((samples, 1176), dtype=np.int32),
        np.empty((samples, 400), dtype=np.int32),
    )


@compiled
def _forward(inputs: Parameters, rows: Integers, layers: Layers, batch: Batch) -> None:
    """Fill ``batch`` with what each layer makes of some samples."""
    windows = np.empty((100, 150), dtype=np.float32)
    for s in range(len(rows)):
        for y in range(28):
            for x in range(28):
                batch.images[s, (y + 2) * WIDTH + x + 2] = inputs[rows[s], 28 * y + x]
        _convolve_image(batch.images[s], layers.conv1, layers.bias1, batch.maps[s], batch.map_places[s])
        _convolve_maps(batch.maps[s], layers.conv2, layers.bias2, windows, batch.features[s], batch.feature_places[s])
    _dense(batch.features, layers.dense3, layers.bias3, batch.hidden)
    _rectify(batch.hidden)
    _dense(batch.hidden, layers.dense4, layers.bias4, batch.last)
    _rectify(batch.last)
    np.dot(layers.dense5, batch.last.T, batch.logits)
    for c in range(len(batch.logits)):
        batch.logits[c] += layers.bias5[c]


@compiled
def _convolve_image(
    image: Parameters, weights: Parameters, bias: Parameters, pooled: Parameters, places: Places
) -> None:
    """Convolve, pool and rectify, two lines at a time."""
    lines = np.empty((2, 32), dtype=np.float32)
    for c in range(6):
        for y in range(14):
            for line in range(2):
                start = (2 * y + line) * WIDTH
                for x in range(32):
                    total = bias[c]
                    for i in range(5):
                        for j in range(5):
                            total += weights[c, 5 * i + j] * image[start + i * WIDTH + x + j]
                    lines[line, x] = total
            for x in range(14):
                best, place = lines[0, 2 * x], 0
                if lines[0, 2 * x + 1] > best:
                    best, place = lines[0, 2 * x + 1], 1
                if lines[1, 2 * x] > best:
                    best, place = lines[1, 2 * x], WIDTH
                if lines[1, 2 * x + 1] > best:
                    best, place = lines[1, 2 * x + 1], WIDTH + 1
                output = (14 * y + x) * 6 + c
                pooled[output] = max(best, np.float32(0))
                places[output] = 2 * y * WIDTH + 2 * x + place if best > 0 else -1


@compiled
def _convolve_maps(
    maps: Parameters, weights: Parameters, bias: Parameters, windows: Parameters, pooled: Parameters, places: Places
) -> None:
    """Convolve as one product with all windows side by side, pool and rectify."""
    for y in range(10):
        for x in range(10):
            for i in range(5):
                start = ((y + i) * 14 + x) * 6
                for j in range(30):
                    windows[10 * y + x, 30 * i + j] = maps[start + j]
    outputs = np.dot(windows, weights.T)
    for y in range(5):
        for x in range(5):
            corner = 20 * y + 2 * x
            for c in range(16):
                best, place = outputs[corner, c], 0
                if outputs[corner + 1, c] > best:
                    best, place = outputs[corner + 1, c], 6
                if outputs[corner + 10, c] > best:
                    best, place = outputs[corner + 10, c], 84
                if outputs[corner + 11, c] > best:
                    best, place = outputs[corner + 11, c], 90
                best += bias[c]
                output = 25 * c + 5 * y + x
                pooled[output] = max(best, np.float32(0))
                places[output] = 168 * y + 12 * x + place if best > 0 else -1


@compiled
def _dense(inputs: Parameters, weights: Parameters, bias: Parameters, outputs: Parameters) -> None:
    np.dot(inputs, weights.T, outputs)
    for s in range(len(outputs)):
        for i in range(outputs.shape[1]):
            outputs[s, i] += bias[i]


@compiled
def _rectify(values: Parameters) -> None:
    for s in range(len(values)):
        for i in range(values.shape[1]):
            values[s, i] = max(values[s, i], np.float32(0))


@compiled
def _backward(layers: Layers, batch: Batch, gradient: Layers) -> None:
    """Turn the slopes that stand in place of the logits into the gradient."""
    last = _dense_backward(batch.logits.T, batch.last, layers.dense5, gradient.dense5, gradient.bias5)
    hidden = _dense_backward(last, batch.hidden, layers.dense4, gradient.dense4, gradient.bias4)
    features = _dense_backward(hidden, batch.features, layers.dense3, gradient.dense3, gradient.bias3)
    gradient.bias1[:] = 0
    gradient.bias2[:] = 0
    wide1 = np.zeros(6 * 5 * 8, dtype=np.float32)  # runs of 5 with room for 8
    wide2 = np.zeros(16 * 5 * 32, dtype=np.float32)  # runs of 30 with room for 32
    weights2 = np.zeros((80, 32), dtype=np.float32)
    weights2[:, :30] = layers.conv2.reshape(80, 30)
    maps = np.empty(batch.maps.shape[1], dtype=np.float32)
    for s in range(len(batch.images)):
        maps[:] = 0
        _maps_backward(
            features[s], batch.feature_places[s], batch.maps[s], weights2.reshape(-1), maps, wide2, gradient.bias2
        )
        _image_backward(maps, batch.map_places[s], batch.images[s], wide1, gradient.bias1)
    gradient.conv1.reshape(30, 5)[:] = wide1.reshape(30, 8)[:, :5]
    gradient.conv2.reshape(80, 30)[:] = wide2.reshape(80, 32)[:, :30]


@compiled
def _dense_backward(
    slopes: Parameters, inputs: Parameters, weights: Parameters, gradient: Parameters, bias_gradient: Parameters
) -> Parameters:
    """Fill in the gradient of a layer; return the slopes of its inputs, nil where ReLU is off."""
    np.dot(slopes.T, inputs, gradient)
    bias_gradient[:] = 0
    below = np.dot(slopes, weights)
    for s in range(len(slopes)):
        for i in range(slopes.shape[1]):
            bias_gradient[i] += slopes[s, i]
        for i in range(below.shape[1]):
            below[s, i] = below[s, i] if inputs[s, i] > 0 else np.float32(0)
    return below


@compiled
def _maps_backward(
    slopes: Parameters,
    places: Places,
    maps: Parameters,
    weights: Parameters,
    below: Parameters,
    gradient: Parameters,
    bias_gradient: Parameters,
) -> None:
    """Add one sample's part in the gradient, and to ``below`` the slopes of its maps."""
    for output in range(400):
        if places[output] >= 0:
            channel, slope = output // 25, slopes[output]
            bias_gradient[channel] += slope
            for i in range(5):
                start, run = places[output] + 84 * i, 32 * (5 * channel + i)
                add_32(gradient, run, maps, start, slope)
                add_32(below, start, weights, run, slope)


@compiled
def _image_backward(
    slopes: Parameters, places: Places, image: Parameters, gradient: Parameters, bias_gradient: Parameters
) -> None:
    """Add one sample's part in the gradient."""
    for output in range(1176):
        if places[output] >= 0:
            channel, slope = output % 6, slopes[output]
            bias_gradient[channel] += slope
            for i in range(5):
                add_8(gradient, 8 * (5 * channel + i), image, places[output] + WIDTH * i, slope)


@compiled
def _train(
    inputs: Parameters,
    labels: Integers,
    models: Parameters,
    start: Integers,
    rows: npt.NDArray[np.int64],
    local_steps: Integers,
    step_size: Parameters,
    shifts: Parameters,
    shift_of: Integers,
    rule: StepRule,
) -> tuple[Parameters, Vector]:
    """Run local SGD for each client, one after another."""
    update, path = np.empty((len(start), *models.shape[1:]), dtype=np.float32), np.empty((len(start), 3))
    size, batch_size = models.shape[1], rows.shape[2]
    weights, gradient = np.empty(size, dtype=np.float32), np.empty(size, dtype=np.float32)
    layers = _layers(weights)
    batch, room = _batch(batch_size, len(layers.bias5)), np.empty((2, batch_size), dtype=np.float32)
    for k in range(len(start)):
        weights[:] = models[start[k]]
        largest, total_norm, total_loss = 0.0, 0.0, 0.0
        for step in range(local_steps[k]):
            _forward(inputs, rows[k, step], layers, batch)
            total_loss += slopes_of_cross_entropy(batch.logits, labels[rows[k, step]], room)
            _backward(layers, batch, _layers(gradient))
            if rule.plain:
                norm = sgd_step(weights, gradient, step_size[k, step], rule.weight_decay)
            else:
                norm = careful_step(weights, gradient, models[start[k]], shifts[shift_of[k]], step_size[k, step], rule)
            largest = max(largest, norm)
            total_norm += norm
        update[k] = weights - models[start[k]]
        path[k, 0] = largest
        path[k, 1] = total_norm / local_steps[k]
        path[k, 2] = total_loss / (local_steps[k] * batch_size)
    return update, path


@compiled
def _evaluate(flat: Parameters, inputs: Parameters, labels: Integers) -> tuple[float, int]:
    """Return the summed loss of all samples, and how many are put into the right class."""
    layers = _layers(flat)
    loss, right = 0.0, 0
    for first in range(0, len(labels), SAMPLES_AT_ONCE):
        rows = np.arange(first, min(len(labels), first + SAMPLES_AT_ONCE))
        batch = _batch(len(rows), len(layers.bias5))
        _forward(inputs, rows, layers, batch)
        for s in range(len(rows)):
            right += np.argmax(batch.logits[:, s]) == labels[rows[s]]
        loss += slopes_of_cross_entropy(batch.logits, labels[rows], np.empty((2, len(rows)), dtype=np.float32))
    return loss, right
