"""How a run trains and when it ends, and what its policy is made from."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Literal, get_args

from fedtempo.checks import (
    InputError,
    Vector,
    check_choice,
    check_count,
    check_finite,
    check_fraction,
    check_nonnegative,
    check_positive,
    near_miss,
)
from fedtempo.fleet import Fleet
from fedtempo.learning.averaging import Past, check_past
from fedtempo.learning.server_optimisers import SERVER_OPTIMISERS, ServerOptimiser
from fedtempo.learning.trainer import LOCAL_SCHEDULES, LocalSchedule
from fedtempo.policies.policy import PolicySetting, UploadBits, check_upload_bits
from fedtempo.theory.bandwidth import LINK_MODES, LinkMode
from fedtempo.theory.bits import WHOLE
from fedtempo.theory.round_time import DUPLICATES, Duplicates

Schedule = Literal["constant", "inverse"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSettings:
    """Federated training, shared by every policy under comparison."""

    cohort_size: int  # K
    local_steps: int = 50  # E
    batch_size: int = 24
    step_size: float | Literal["auto"] = 0.1  # η₀; auto: found at the start of the run (engine/step_size.py)
    schedule: Schedule | None = None  # η₀/(1+r), or constant; None: inverse, as in the paper, constant where η₀ is auto
    weight_decay: float = 0.0  # λ: training minimises F + λ/2 ‖w‖²; losses are those of F alone
    server_momentum: float = 0.0
    server_memory: bool = False  # control variates: the last update of each client
    link: LinkMode = "paper"
    duplicates: Duplicates = "paper"
    evaluate_every: int = 1  # rounds
    evaluate_growth: float = 0.0  # instead, if positive: whenever the time has grown by this share
    slow_share: float = 0.0  # of the clients: the summary has the loss of those that upload slowest; 0: it has none
    clip_norm: float = 0.0  # longest gradient that a local step follows; 0: any
    local_schedule: LocalSchedule = "constant"  # of the step size over the local steps of a round, from 1 towards 0
    proximal: float = 0.0  # μ of FedProx: local training adds μ/2 ‖w - w₀‖² about the model of the round
    upload_bits: UploadBits = 32  # of a number in an update that is sent; auto: as many as take the least time
    server_average: Past = 0.0  # share of the past in the mean of models that is evaluated, or auto; 0: the last is
    server_optimiser: ServerOptimiser = "sgd"  # what the server makes of the mean update of a step
    server_step_size: float = 0.0  # factor of the server's step; 0: the usual, which is 1, for adam and yogi 0.01
    upload_top: float = 0.0  # share of the numbers in an update, the largest, that are sent alone; 0: all are
    error_feedback: bool = False  # clients add what they did not send to their next update, and round to the nearest
    local_direction: float = 0.0  # share of the server's last direction in local steps, as FedCM's 1 - α
    local_correction: bool = False  # SCAFFOLD's, from the memory: local steps follow g - c_i + c

    def __post_init__(self) -> None:
        """Check each setting."""
        for name in ("cohort_size", "local_steps", "batch_size", "evaluate_every"):
            check_count(name, getattr(self, name))
        if self.step_size != "auto":
            check_positive("step_size", self.step_size)
        if self.schedule is None:
            object.__setattr__(self, "schedule", "constant" if self.step_size == "auto" else "inverse")
        for name in ("weight_decay", "evaluate_growth", "clip_norm", "proximal", "server_step_size"):
            check_nonnegative(name, getattr(self, name))
        if check_fraction("server_momentum", self.server_momentum) == 1:
            raise InputError(name="server_momentum", rule="be below 1", got="1", remedy="old steps would never fade")
        check_past("server_average", self.server_average)
        check_fraction("slow_share", self.slow_share)
        if check_fraction("local_direction", self.local_direction) == 1:
            raise InputError("local_direction", "be below 1", "1", "clients would learn nothing from their data")
        if self.local_correction and self.local_direction:
            raise InputError(
                "local_correction", "go without local_direction", f"{self.local_direction:g}", "choose one"
            )
        check_upload_bits("upload_bits", self.upload_bits)
        self._check_feedback()
        check_choice("server_optimiser", self.server_optimiser, SERVER_OPTIMISERS)
        check_choice("schedule", str(self.schedule), SCHEDULES)
        check_choice("local_schedule", self.local_schedule, LOCAL_SCHEDULES)
        check_choice("link", self.link, LINK_MODES)
        check_choice("duplicates", self.duplicates, DUPLICATES)

    def _check_feedback(self) -> None:
        """Refuse ways to send less that do not go together."""
        if check_fraction("upload_top", self.upload_top) and self.upload_bits != WHOLE:
            raise InputError("upload_top", "go with upload_bits 32", f"{self.upload_bits}", "choose one of them")
        if not self.error_feedback:
            return
        if self.upload_bits == "auto":
            remedy = "auto weighs a noise without bias: name a size, such as 4"
            raise InputError("error_feedback", "go with upload_bits that are fixed", "auto", remedy)
        if not self.upload_top and self.upload_bits == WHOLE:
            remedy = "set upload_top, or upload_bits below 32"
            raise InputError("error_feedback", "have an error to feed back", "uploads that are whole", remedy)

    def step_size_of(self, round_index: int, found: float | None = None) -> float:
        """Return η of a round; ``found``: η₀ where the settings leave it to the run."""
        first = found if self.step_size == "auto" else self.step_size
        if first is None:
            raise ValueError("a step size of auto is found before the first round")
        return first / (1 + round_index) if self.schedule == "inverse" else first

    def looks_after(self, rounds: int, start: float, end: float) -> bool:
        """Return whether the loss is evaluated after so many rounds, of which the last went from start to end."""
        if not self.evaluate_growth:
            return rounds % self.evaluate_every == 0
        # Moments (1 + growth)^n: a round that ends after one that it began before.
        return start <= 0 or math.floor(self._moment(end)) > math.floor(self._moment(start))

    def _moment(self, time: float) -> float:
        return math.log(time) / math.log1p(self.evaluate_growth)


def check_training_names(where: str, given: Iterable[str], *, with_cohort: bool = False) -> None:
    """Refuse names that are no settings of training, in words that help more than Python's own.

    ``with_cohort``: whether the cohort size must be among them.
    """
    names, known = list(given), [field.name for field in fields(TrainingSettings)]
    for name in names:
        if name not in known:
            remedy = near_miss(name, known, otherwise="of training there are {}")
            raise InputError(name=f"settings of {where}", rule="be known", got=repr(name), remedy=remedy)
    if with_cohort and "cohort_size" not in names:
        raise InputError(
            name="cohort_size", rule="be given", got="nothing", remedy="it is the number of clients drawn in each round"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class StopSettings:
    """A run ends when it reaches the target it was given, or at a limit. Pilots do not count towards the limits."""

    target_loss: float | None = None
    target_accuracy: float | None = None  # or of another metric; if both are given, both must be reached
    max_rounds: int | None = None
    max_time: float | None = None  # simulated seconds

    def __post_init__(self) -> None:
        """Check that the run ends."""
        if self.max_rounds is None and self.max_time is None:
            raise InputError(name="a run", rule="have a limit", got="neither max_rounds nor max_time")
        if self.max_rounds is not None:
            check_count("max_rounds", self.max_rounds)
        if self.max_time is not None:
            check_positive("max_time", self.max_time)
        if self.target_loss is not None:
            check_finite("target_loss", self.target_loss)
        if self.target_accuracy is not None:
            check_finite("target_accuracy", self.target_accuracy)

    def limit_reached(self, rounds: int, time: float) -> Literal["max_rounds", "max_time"] | None:
        """Return which limit a run is at after so many rounds and seconds, if any."""
        if self.max_rounds is not None and rounds >= self.max_rounds:
            return "max_rounds"
        return "max_time" if self.max_time is not None and time >= self.max_time else None


def policy_setting(
    fleet: Fleet,
    training: TrainingSettings,
    options: Mapping[str, object],
    known_gradient_bound: Callable[[], Vector] | None = None,
    *,
    plain_paths: bool = False,
    **uploads: tuple[float, ...],
) -> PolicySetting:
    """Return what a policy is made from; ``known_gradient_bound``: what oracles know, where somebody does.

    ``plain_paths``: clients run the local steps that plans ask for, by plain SGD, unless the settings say otherwise.
    ``uploads``: ``upload_shares`` and ``upload_noise`` of a PolicySetting, where the size of the model is known.
    """
    return PolicySetting(
        fleet=fleet,
        cohort_size=training.cohort_size,
        link=training.link,
        duplicates=training.duplicates,
        server_momentum=training.server_momentum,
        upload_bits=training.upload_bits,
        plain_paths=plain_paths
        and not (training.clip_norm or training.proximal or training.local_schedule != "constant"),
        options=options,
        known_gradient_bound=known_gradient_bound,
        **uploads,
    )
