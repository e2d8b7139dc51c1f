"""The models of the three setups in PyTorch, as plain_torch.py, pfl_bench.py and flower_bench.py share them."""

import torch
from torch import nn
from torch.nn import functional
from work import Work


def make_model(work: Work) -> nn.Module:
    """Return softmax regression from zero on flat inputs, LeNet-5 on images."""
    if len(work.input_shape) == 1:
        model = nn.Linear(work.input_shape[0], work.num_classes)
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
        return model
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, work.num_classes)),
    )


@torch.inference_mode()
def mean_loss(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, batch: int) -> float:
    """Return the mean cross-entropy over all samples."""
    total = sum(
        functional.cross_entropy(model(x), y, reduction="sum")
        for x, y in zip(inputs.split(batch), labels.split(batch), strict=True)
    )
    return float(total) / len(labels)
