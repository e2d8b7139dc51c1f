"""Networks for photographs and for text, small enough for a CPU, and the networks that configurations name."""

from collections.abc import Callable

import torch
from torch import nn

from fedtempo.checks import InputError
from fedtempo.data.federation import FederatedData
from fedtempo.learning.models import LeNet5

CHANNELS_IN_A_GROUP = 8


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
    """An embedding of characters, an LSTM over them, and one layer from its last state to the next character."""

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
