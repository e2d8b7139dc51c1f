"""The models of the setups in PyTorch, as plain_torch.py, pfl_bench.py and flower_bench.py share them."""

import torch
from torch import nn
from torch.nn import functional
from work import Work


def make_model(work: Work) -> nn.Module:
    """Return softmax regression from zero, LeNet-5, or the network of configs/cifar10.toml."""
    if work.network == "softmax":
        model = nn.Linear(work.input_shape[0], work.num_classes)
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
        return model
    torch.manual_seed(0)
    if work.network == "cnn":
        return nn.Sequential(
            *_convolution(work.input_shape[0], 16),
            *_convolution(16, 32),
            *_convolution(32, 64),
            *(nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(inplace=True), nn.Linear(128, work.num_classes)),
        )
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, work.num_classes)),
    )


def _convolution(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return convolution, nn.MaxPool2d(2), nn.GroupNorm(outputs // 8, outputs), nn.ReLU(inplace=True)


@torch.inference_mode()
def mean_loss(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, batch: int) -> float:
    """Return the mean cross-entropy over all samples."""
    total = sum(
        functional.cross_entropy(model(x), y, reduction="sum")
        for x, y in zip(inputs.split(batch), labels.split(batch), strict=True)
    )
    return float(total) / len(labels)
