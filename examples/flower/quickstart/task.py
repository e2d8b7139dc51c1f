"""The model and the data: points in the plane, of which each node sees other classes than the next."""

import torch
from torch import nn

CLASSES = 4


def make_model() -> nn.Module:
    """Return a small network; every process makes the same one."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, CLASSES))


def load_data(partition: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the points and classes of one node: two of the four classes, and more points the higher its number."""
    random = torch.Generator().manual_seed(partition)
    size = 40 * (1 + partition % 5)
    classes = (partition + torch.randint(0, 2, (size,), generator=random)) % CLASSES
    angle = classes * (2 * torch.pi / CLASSES)
    centres = 2 * torch.stack([torch.cos(angle), torch.sin(angle)], dim=1)
    return centres + 0.7 * torch.randn(size, 2, generator=random), classes


def train(model: nn.Module, data: tuple[torch.Tensor, torch.Tensor], *, steps: int, lr: float) -> float:
    """Run local steps on random batches; return the mean loss."""
    points, classes = data
    optimiser, total = torch.optim.SGD(model.parameters(), lr=lr), 0.0
    for _ in range(steps):
        batch = torch.randint(0, len(points), (16,))
        loss = nn.functional.cross_entropy(model(points[batch]), classes[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total += loss.item()
    return total / steps


def test(model: nn.Module, data: tuple[torch.Tensor, torch.Tensor]) -> tuple[float, float]:
    """Return loss and accuracy."""
    points, classes = data
    with torch.no_grad():
        scores = model(points)
    loss = nn.functional.cross_entropy(scores, classes).item()
    return loss, (scores.argmax(dim=1) == classes).float().mean().item()
