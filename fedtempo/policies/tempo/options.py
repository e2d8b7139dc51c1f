"""What a user may set of tempo, and the form that it takes in a run."""

import math
from dataclasses import dataclass
from typing import get_args

from fedtempo.checks import InputError, check_fraction, check_positive
from fedtempo.policies.options import check_switch
from fedtempo.policies.policy import MemoryBits, PolicySetting
from fedtempo.policies.tempo import constants


@dataclass(frozen=True, kw_only=True, slots=True)
class TempoOptions:
    """Of ``tempo``."""

    memory: bool = True  # whether the server remembers each client's last direction
    memory_bits: MemoryBits = 32  # of each number in it
    overlap: bool | None = None  # asynchronous steps, not rounds; None: unless the link has caps
    choose_local_steps: bool = False  # E by the coherence of local paths
    largest_factor: float | None = None  # bound of a weight in units of p_i, or inf; None: 4/(1 - m)
    floor: float | None = None  # share of the draws that goes by data share; None: 0.1 + 0.5 m
    signal_factor: float | None = None  # of ‖d‖² in C of P3; None: 0.1, in rounds 16

    def __post_init__(self) -> None:
        """Check the options."""
        for name in ("memory", "choose_local_steps"):
            check_switch(name, getattr(self, name))
        if self.overlap is not None:
            check_switch("overlap", self.overlap)
        if type(self.memory_bits) is not int or self.memory_bits not in get_args(MemoryBits):
            raise InputError(name="memory_bits", rule="be the number 8 or 32", got=repr(self.memory_bits))
        if self.largest_factor not in (None, math.inf):
            check_positive("largest_factor, unless the number inf,", self.largest_factor)
            if not self.memory:
                raise InputError(
                    name="largest_factor",
                    rule="be left out without a server memory, which alone makes up for what is cut off",
                    got=repr(self.largest_factor),
                )
        if self.floor is not None:
            check_fraction("floor", self.floor)
        if self.signal_factor is not None:
            check_positive("signal_factor", self.signal_factor)


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """Tempo in one run: its options, with what follows from the fleet and the server's momentum for those left out."""

    memory: bool
    overlap: bool
    choose_local_steps: bool
    largest_factor: float  # bound of a weight in units of p_i; inf: each step is unbiased
    floor: float  # share of the draws that goes by data share
    signal_factor: float  # of ‖d‖² in C of P3
    cohort_size: int  # K of the engine's settings
    momentum: float  # m of the server
    plain_paths: bool  # whether fewer local steps can be asked for where they pay

    @classmethod
    def chosen(cls, options: TempoOptions, setting: PolicySetting) -> "Form":
        """Return the form for a fleet and a server."""
        m = setting.server_momentum
        # A capped link has no asynchronous mode.
        overlap = setting.fleet.bandwidth_cap is None if options.overlap is None else options.overlap
        largest = constants.LARGEST_FACTOR / (1 - m) if options.largest_factor is None else options.largest_factor
        floor = constants.FLOOR + constants.FLOOR_WITH_MOMENTUM * m if options.floor is None else options.floor
        signal = constants.SIGNAL_FACTOR_OF_STEPS if overlap else constants.SIGNAL_FACTOR_OF_ROUNDS
        return cls(
            memory=options.memory,
            overlap=overlap,
            choose_local_steps=options.choose_local_steps,
            largest_factor=float(largest) if options.memory else math.inf,
            floor=check_fraction("floor", floor),
            signal_factor=float(signal if options.signal_factor is None else options.signal_factor),
            cohort_size=setting.cohort_size,
            momentum=m,
            plain_paths=setting.plain_paths,
        )

    @property
    def forgetting(self) -> float:
        """1 - m: what the server's momentum forgets in a step."""
        return 1 - self.momentum

    @property
    def unbiased(self) -> bool:
        """Whether each step is unbiased by itself: such steps need no trust in the memory, and draw by chance.

        Others draw in turn, so that what is remembered of a client is less stale.
        """
        return self.largest_factor == math.inf

    @property
    def usual_arrivals(self) -> int:
        """How many updates a step takes where the memory holds and all data were reported."""
        return math.ceil(constants.ARRIVALS / self.forgetting - constants.ROUNDING)

    @property
    def most_caution(self) -> float:
        """How many times the usual arrivals a step takes at most.

        That many make a mean, too. With momentum it takes as many more as for the usual step.
        """
        return max(1.0, constants.SMALL_COHORT / self.forgetting / self.usual_arrivals)
