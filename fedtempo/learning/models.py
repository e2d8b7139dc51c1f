"""Neural networks that the setups train."""

import numpy as np
import numpy.typing as npt
import torch
from torch import nn


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


def with_parameters(module: nn.Module, model: npt.NDArray[np.float32]) -> nn.Module:
    """Return a module whose parameters are those of a flat vector, ready to be evaluated."""
    nn.utils.vector_to_parameters(torch.from_numpy(model.copy()), module.parameters())
    return module.eval()


def linear(rows: npt.NDArray[np.float32]) -> nn.Module:
    """Return softmax regression as a layer: its rows are the weights of a class and then its bias."""
    classes, width = rows.shape
    return with_parameters(nn.Linear(width - 1, classes), np.concatenate([rows[:, :-1].ravel(), rows[:, -1]]))
