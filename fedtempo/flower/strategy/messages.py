"""What the strategy and its clients send each other: the names of records, and how a client is to train."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, TypeAlias, cast

from fedtempo.theory.bits import BITS

ConfigValue: TypeAlias = (
    int | float | str | bytes | bool | list[int] | list[float] | list[str] | list[bytes] | list[bool]
)
MessageConfig: TypeAlias = Mapping[str, ConfigValue]  # the config of a message

ARRAYS, CONFIG = "arrays", "config"  # records of a message, named as Flower's own strategies name them
MEASUREMENTS = "fedtempo"  # record of a reply: what the client measured
DIRECTION = "fedtempo-direction"  # record of a message: the server's last direction, as parameters of the model
KEPT_MODEL = "fedtempo-kept"  # record of a client's state: the model of its last local steps, until it is fetched
# Metrics of a reply.
NUM_EXAMPLES, PARTITION = "num-examples", "partition-id"
COMPUTE_SECONDS, UPDATE_NORM = "compute-seconds", "update-norm"
LARGEST_GRADIENT_NORM, MEAN_GRADIENT_NORM = "largest-gradient-norm", "mean-gradient-norm"
NOISE_METRICS = tuple(f"noise-{bits}-bits" for bits in BITS)  # ω of the update, rounded to so many bits a number
FOLLOWED_DIRECTION = "followed-direction"  # the share of the server's direction in local steps
MEASURED_METRICS = (
    *(NUM_EXAMPLES, COMPUTE_SECONDS, LARGEST_GRADIENT_NORM, MEAN_GRADIENT_NORM, UPDATE_NORM),
    *(*NOISE_METRICS, FOLLOWED_DIRECTION),
)
# In the config of a message: what is asked beyond training.
ASK = "fedtempo-ask"
DESCRIBE, KEEP, FETCH = "describe", "keep", "fetch"
# And how to train.
ROUND, STEPS, STEP_SIZE, BANDWIDTH = "server-round", "local-steps", "lr", "bandwidth"
ROUND_INDEX, CLIENT = "round-index", "client"
UPLOAD_BITS, UPLOAD_KEY = "upload-bits", "upload-key"  # of a number in the update, and what rounding draws from
LOCAL_DIRECTION = "local-direction"  # the share of the server's direction in local steps
COHORT, COHORT_SIZE = "cohort", "cohort-size"  # a name that those who are asked at once share, and how many they are


@dataclass(frozen=True, kw_only=True, slots=True)
class Instructions:
    """How one client is to train, as it reads it from a message's config."""

    client: int
    server_round: int  # from 1 on, over all phases
    round_index: int  # r, since training (last) started from w₀
    local_steps: int
    step_size: float
    upload_bits: int | None = None  # of a number in the update, which the mod packs; None: the model travels as it is
    cohort: str | None = None  # the name of those who are asked at once
    cohort_size: int = 0

    @classmethod
    def read(cls, config: MessageConfig) -> Self:
        """Return what a config says."""
        return cls(
            client=_whole(config[CLIENT]),
            server_round=_whole(config[ROUND]),
            round_index=_whole(config[ROUND_INDEX]),
            local_steps=_whole(config[STEPS]),
            step_size=float(cast("float", config[STEP_SIZE])),
            upload_bits=_whole(config[UPLOAD_BITS]) if UPLOAD_BITS in config else None,
            cohort=str(config[COHORT]) if COHORT in config else None,
            cohort_size=_whole(config.get(COHORT_SIZE, 0)),
        )


def _whole(value: ConfigValue) -> int:
    return int(cast("int", value))
