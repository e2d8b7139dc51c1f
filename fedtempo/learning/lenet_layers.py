"""What the kernels of LeNet-5 work on: the layers of a model, and what they make of a batch."""

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fedtempo.learning.trainer import Parameters

# Where the window of each pooled output begins, or -1 where ReLU is off.
Places: TypeAlias = npt.NDArray[np.int32]


class Layers(NamedTuple):
    """Weights and biases of a model, or their gradients: views into one flat vector."""

    conv1: Parameters  # (6, 25)
    bias1: Parameters
    conv2: Parameters  # (16, 150)
    bias2: Parameters
    dense3: Parameters  # (120, 400)
    bias3: Parameters
    dense4: Parameters  # (84, 120)
    bias4: Parameters
    dense5: Parameters  # (classes, 84)
    bias5: Parameters


class Batch(NamedTuple):
    """What each layer makes of some samples, and where pooling took it from."""

    images: Parameters  # (sample, 32 × WIDTH)
    maps: Parameters  # (sample, 14 × 14 × 6), and two more for vectors that run over the end
    features: Parameters  # (sample, 16 × 5 × 5)
    hidden: Parameters  # (sample, 120)
    last: Parameters  # (sample, 84)
    logits: Parameters  # (class, sample)
    map_places: Places
    feature_places: Places
