"""Networks of torch, small enough for a CPU: those that configurations name, and trained ones from a flat vector."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedtempo.checks import InputError
from fedtempo.data.federation import FederatedData

CHANNELS_IN_A_GROUP = 8


class LeNet5(nn.Module):
    """LeNet-5 for 28 × 28 images with ReLU and max pooling, pooled first: ReLU then has a quarter of the work."""

    def __init__(self, num_classes: int = 10) -> None:
        """Build the layers with torch's default initialisation: from zeros a network cannot learn."""
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 6, kernel_size=5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(inplace=True),
            nn.Conv2d(6, 16, kernel_size=5),
            nn.MaxPool2d(2),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Linear(400, 120),
            nn.ReLU(inplace=True),
            nn.Linear(120, 84),
            nn.ReLU(inplace=True),
            nn.Linear(84, num_classes),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.layers(images)
        return logits


class GroupNormCNN(nn.Module):
    """Three convolutions of 3 × 3, pooled, with GroupNorm and ReLU, and two dense layers: 156,186 parameters."""

    def __init__(self, image: tuple[int, ...] = (3, 32, 32), num_classes: int = 10, width: int = 16) -> None:
        """Build the layers; ``width``: channels of the first convolution, doubled by each of the others."""
        super().__init__()
        if len(image) != 3 or min(image[1:]) < 8:
            raise InputError(
                name="the inputs of model cnn", rule="be images of at least 8 × 8 pixels", got=f"shape {image}"
            )
        self.layers = nn.Sequential(
            *_convolution(image[0], width),
            *_convolution(width, 2 * width),
            *_convolution(2 * width, 4 * width),
            nn.Flatten(),
            nn.Linear(4 * width * (image[1] // 8) * (image[2] // 8), 128),
            nn.ReLU(inplace=True),
            nn.Linear(128, num_classes),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.layers(images)
        return logits


class CharacterLSTM(nn.Module):
    """An embedding of characters, an LSTM over them, and one layer from its last state to the next character.

    22,959 parameters for the 55 tokens of Shakespeare.
    """

    def __init__(self, num_tokens: int, embedding: int = 8, hidden: int = 64, layers: int = 1) -> None:
        """Build the layers with torch's default initialisation."""
        super().__init__()
        self.embedding = nn.Embedding(num_tokens, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.output = nn.Linear(hidden, num_tokens)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the character after each line of tokens."""
        states, _ = self.lstm(self.embedding(tokens))
        logits: torch.Tensor = self.output(states[:, -1])
        return logits


def network_of(name: str, data: FederatedData) -> Callable[[], nn.Module]:
    """Return what makes the network that a configuration names, for the shape and the classes of some data."""
    return lambda: MAKERS[name](data)


def with_parameters(module: nn.Module, model: npt.NDArray[np.float32]) -> nn.Module:
    """Return a module whose parameters are those of a flat vector, ready to be evaluated."""
    nn.utils.vector_to_parameters(torch.from_numpy(model.copy()), module.parameters())
    return module.eval()


def linear(rows: npt.NDArray[np.float32]) -> nn.Module:
    """Return softmax regression as a layer: its rows are the weights of a class and then its bias."""
    classes, width = rows.shape
    return with_parameters(nn.Linear(width - 1, classes), np.concatenate([rows[:, :-1].ravel(), rows[:, -1]]))


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False),  # GroupNorm has one
        nn.MaxPool2d(2),  # first: a step takes 9 ms instead of 13
        nn.GroupNorm(max(1, outputs // CHANNELS_IN_A_GROUP), outputs),
        nn.ReLU(inplace=True),
    ]


def _lstm(data: FederatedData) -> nn.Module:
    if not data.tokens or len(data.input_shape) != 1:
        raise InputError(
            name="the inputs of model lstm",
            rule="be lines of tokens",
            got=f"{data.inputs.dtype} of shape {data.input_shape}",
        )
    return CharacterLSTM(data.num_classes)


MAKERS: dict[str, Callable[[FederatedData], nn.Module]] = {
    "lenet5": lambda data: LeNet5(data.num_classes),
    "cnn": lambda data: GroupNormCNN(data.input_shape, data.num_classes),
    "lstm": _lstm,
}
