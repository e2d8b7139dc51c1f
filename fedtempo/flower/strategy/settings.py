"""What a strategy was given, checked; and what it may not lack when it starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from logging import INFO, WARNING
from typing import Literal, cast, get_args

from fedtempo.checks import InputError, check_choice, check_count, check_positive, check_seed
from fedtempo.engine.settings import StopSettings, TrainingSettings
from fedtempo.fleet import Fleet
from fedtempo.flower.link.allotment import Link
from fedtempo.flower.log import log
from fedtempo.flower.strategy.messages import STEP_SIZE, STEPS, MessageConfig
from fedtempo.policies.registry import PolicyLike, check_name, traits

Clock = Literal["wall", "simulated"]
Evaluator = Literal["server", "clients"]
IN_THE_SIMULATOR = ("upload_top", "error_feedback", "local_correction")  # settings of training that no node follows
EVALUATE = 'give start evaluate_fn, or the strategy evaluate="clients"'


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class StrategySettings:
    """How a strategy runs; ``TempoStrategy`` says what each setting means."""

    policy: PolicyLike
    options: Mapping[str, object]
    training: TrainingSettings
    named: frozenset[str]  # of the settings of training, those that the user gave
    fleet: Fleet | None = None
    nodes: Mapping[int, int] | None = None
    min_available_nodes: int = 2
    clock: Clock = "wall"
    uplink: Link | None = None
    evaluated_by: Evaluator = "server"
    deadline: float
    seed: int = 0
    ends: Mapping[str, float] = field(default_factory=dict)  # target_loss, target_accuracy, max_time: those given

    def __post_init__(self) -> None:
        """Check each setting."""
        if isinstance(self.policy, str):
            check_name(self.policy)
        if self.fleet is not None and not isinstance(self.fleet, Fleet):
            remedy = "read_fleet reads one from a file"
            raise InputError(name="fleet", rule="be a Fleet", got=type(self.fleet).__name__, remedy=remedy)
        for name in IN_THE_SIMULATOR:
            if value := getattr(self.training, name):
                raise InputError(name, "be left out on Flower", repr(value), "only simulated clients know it")
        if self.training.step_size == "auto":
            remedy = "name one, such as the step_size in the first record of a simulated run with auto"
            raise InputError("step_size", "be a number on Flower", "auto", remedy)
        check_count("min_available_nodes", self.min_available_nodes)
        check_choice("clock", self.clock, get_args(Clock))
        check_choice("evaluate", self.evaluated_by, get_args(Evaluator))
        check_positive("deadline", self.deadline)
        check_seed("seed", self.seed)

    @property
    def policy_name(self) -> str:
        """What records call the policy: the same in every process."""
        return policy_name(self.policy)

    def stop(self, num_rounds: int) -> StopSettings:
        """Return when a run ends."""
        return StopSettings(max_rounds=num_rounds, **self.ends)

    def with_config(self, config: MessageConfig) -> "StrategySettings":
        """Take the step size and steps that an app sends its clients, where the strategy was given none."""
        training = self.training
        if self._counts(config, STEP_SIZE, "step_size"):
            training = replace(training, step_size=cast("float", config[STEP_SIZE]))
        if self._counts(config, STEPS, "local_steps"):
            training = replace(training, local_steps=cast("int", config[STEPS]))
        return replace(self, training=training)

    def _counts(self, config: MessageConfig, key: str, name: str) -> bool:
        """Return whether an app's config sets what the strategy was not given; say so where the strategy's counts."""
        own = getattr(self.training, name)
        if key in config and name in self.named and config[key] != own:
            log(WARNING, f"train_config has {key} {config[key]!r}, but {name} {own!r} counts")
        return key in config and name not in self.named

    def check_evaluated(self, on_the_server: bool) -> None:
        """Refuse what would wait for a loss that nobody evaluates."""
        if self.evaluated_by == "clients" or on_the_server:
            return
        for name in ("target_loss", "target_accuracy"):
            if name in self.ends:
                raise InputError(name=name, rule=f"be evaluated: {EVALUATE}")
        if isinstance(self.policy, str) and traits(self.policy).needs_pilots:
            name = f"policy {self.policy}"
            raise InputError(name=name, rule="have losses, at which its pilots end", got="none", remedy=EVALUATE)
        log(INFO, f"no loss is evaluated: {EVALUATE}")

    def check_fleet(self, fleet: Fleet, connected: int) -> None:
        """Refuse what no real link does, and a simulated clock without a node for each client."""
        if self.clock == "wall" and self.training.link == "shared" and fleet.bandwidth_cap is not None:
            raise InputError(name="a fleet with bandwidth_cap", rule="have the link paper or equal", got="shared")
        if self.clock == "simulated" and connected < len(fleet):
            rule = f"have a node for each of {len(fleet)} clients"
            raise InputError(name='clock="simulated"', rule=rule, got=connected)


def policy_name(policy: object) -> str:
    """Return what records call a policy: its own name, or that of its class or function and their module."""
    if isinstance(policy, str):
        return policy
    named = policy if hasattr(policy, "__qualname__") else type(policy)
    return f"{named.__module__}.{named.__qualname__}"
