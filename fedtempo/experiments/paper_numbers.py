"""What the paper reports, to stand beside what we find: figures copied from its Tables 2 and 3 and its Figure 6."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

CONFIGS = Path("configs")  # folder of setup1.toml to setup3.toml, as the repository has it
MODELS = {"softmax": "softmax regression", "lenet5": "LeNet-5"}

PILOT_POLICIES = ("uniform", "weighted")  # policies whose rounds to a few losses lead to β/α
BASELINES_OF_PAPER = (*PILOT_POLICIES, "statistical")  # of Table 3
SCHEME = "proposed"  # the paper's
SCHEME_WITHOUT_PILOTS = "proposed-oracle"  # the same, with what pilots estimate taken for granted
AFTER_PILOTS = ("statistical", SCHEME, SCHEME_WITHOUT_PILOTS)  # policies of a setup that need what the others found

Printed: TypeAlias = tuple[float, float] | None  # mean and deviation of seconds; None: not reached


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperSetup:
    """One of the three setups; its data and clients are those of its configuration."""

    name: str
    target_loss: float
    target_accuracy: float
    second_loss: float  # ours: a target that every policy reaches
    losses: tuple[float, ...]  # F_s of the pilots
    rounds_uniform: tuple[int, ...]  # to each of them
    rounds_weighted: tuple[int, ...]
    ratio: float  # printed as α/β
    seconds: dict[str, Printed]  # of the policies of Table 3, to the target loss


SETUPS = {
    "setup1": PaperSetup(
        name="Setup 1",
        target_loss=1.16, target_accuracy=0.70, second_loss=1.3,
        losses=(1.7, 1.6, 1.5, 1.4, 1.3),
        rounds_uniform=(39, 47, 58, 79, 132), rounds_weighted=(12, 19, 27, 36, 56), ratio=11.51,
        seconds={
            "uniform": (8487.4, 528.8), "weighted": (3477.4, 334.2),
            "statistical": (3958.3, 302.4), "proposed": (2428.7, 707.3),
        },
    ),
    "setup2": PaperSetup(
        name="Setup 2",
        target_loss=0.7, target_accuracy=0.78, second_loss=1.0,
        losses=(1.2, 1.15, 1.1, 1.05, 1.0),
        rounds_uniform=(71, 81, 95, 109, 133), rounds_weighted=(48, 57, 69, 84, 101), ratio=63.88,
        seconds={
            "uniform": (17514.3, 453.8), "weighted": (24207.9, 1884.9),
            "statistical": (25730.0, 2358.7), "proposed": (9767.8, 1454.3),
        },
    ),
    "setup3": PaperSetup(
        name="Setup 3",
        target_loss=0.1, target_accuracy=0.965, second_loss=0.5,
        losses=(0.3, 0.2875, 0.275, 0.2625, 0.25),
        rounds_uniform=(46, 48, 51, 55, 59), rounds_weighted=(27, 28, 30, 32, 34), ratio=4.92,
        seconds={
            "uniform": None, "weighted": (4548.6, 1530.2),
            "statistical": (3295.0, 878.3), "proposed": (2453.7, 1289.2),
        },
    ),
}  # fmt: skip

# Seconds of the proposed scheme in Setup 2 to the loss below, for each K.
IMPACT_OF_K = {1: 4778.1, 4: 617.1, 10: 1272.5, 16: 2021.6}
IMPACT_LOSS, IMPACT_ACCURACY = 1.2, 0.72
