"""What it costs tempo to decide: against the computing of a simulated round, and against passes over the fleet.

    python benchmarks/overhead.py

One thread, softmax regression on Synthetic(1, 1). Means over steps, amortised: q is solved for once in a few of them.
Writes benchmarks/overhead.md.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedtempo.data.federation import FederatedData
from fedtempo.data.synthetic import synthetic_data
from fedtempo.engine.settings import StopSettings, TrainingSettings
from fedtempo.files import whole_file
from fedtempo.fleet import Fleet
from fedtempo.learning.softmax import SoftmaxTrainer
from fedtempo.policies.policy import PolicySetting, RoundContext, RoundPlan, RoundReport
from fedtempo.policies.registry import make
from fedtempo.policies.tempo.constants import MOST_STEPS_WITH_ONE_Q
from fedtempo.simulator.channel import StaticChannel
from fedtempo.simulator.problem import Problem
from fedtempo.simulator.simulation import RunSettings, make_simulation
from fedtempo.tables.table import Table

REPORT = Path(__file__).with_suffix(".md")
SMALL, LARGE = 1_000, 1_000_000
SAMPLES_OF_A_CLIENT, COHORT_SIZE, WARM_UP, STEPS = 200, 10, 60, 600


class Timed:
    """A policy, and the seconds that it has taken."""

    def __init__(self, policy: Any) -> None:
        """Start the count."""
        self.policy, self.seconds = policy, 0.0
        self.server_memory = getattr(policy, "server_memory", False)

    def plan(self, context: RoundContext) -> Any:
        """Let it plan."""
        began = time.perf_counter()
        plan = self.policy.plan(context)
        self.seconds += time.perf_counter() - began
        return plan

    def observe(self, report: RoundReport) -> None:
        """Let it learn."""
        began = time.perf_counter()
        self.policy.observe(report)
        self.seconds += time.perf_counter() - began


def fleet_of(data_share: np.ndarray) -> Fleet:
    """Return clients with exponential times."""
    tau, t = np.random.default_rng(0).exponential(size=(2, len(data_share)))
    return Fleet(data_share, 1.0, tau, t)


def in_a_run(data: FederatedData, policy: str, *, evaluate: bool) -> tuple[float, float]:
    """Return the seconds that a step of a simulated run takes, and those of the policy in it."""
    fleet = fleet_of(data.data_share)
    training = TrainingSettings(
        cohort_size=COHORT_SIZE, local_steps=50, step_size=0.002, schedule="constant", link="shared",
        duplicates="physical", evaluate_every=1 if evaluate else 10**6,
    )  # fmt: skip
    timed = Timed(make(policy, PolicySetting(fleet=fleet, cohort_size=COHORT_SIZE)))
    problem = Problem.of_fleet(data, SoftmaxTrainer(data), fleet, StaticChannel(fleet.compute_time, fleet.upload_time))
    settings = RunSettings(policy=timed, training=training, stop=StopSettings(max_rounds=10**6), seed=0)
    simulation = make_simulation(problem, settings)
    rounds, steps = simulation.rounds(), 60 if evaluate else STEPS
    for _ in range(WARM_UP):
        next(rounds)
    timed.seconds, began = 0.0, time.perf_counter()
    for _ in range(steps):
        next(rounds)
    return (time.perf_counter() - began) / steps, timed.seconds / steps


def passes(size: int) -> float:
    """Return the seconds of a step without any training, over those of one NumPy pass over the fleet."""
    fleet = fleet_of(np.random.default_rng(1).dirichlet(np.ones(size)))
    policy = make("tempo", PolicySetting(fleet=fleet, cohort_size=COHORT_SIZE))
    flying: list[int] = []
    spent, steps = 0.0, MOST_STEPS_WITH_ONE_Q  # so that one solution for q is among them
    for step in range(2 * steps):
        rng, available = np.random.default_rng(step), np.ones(size, dtype=bool)
        available[flying] = False
        context = RoundContext(
            round_index=step, time=0.0, step_size=0.1, local_steps=5, rng=rng, available=available,
            compute_time=fleet.compute_time, upload_time=fleet.upload_time,
        )  # fmt: skip
        began = time.perf_counter()
        plan = policy.plan(context)
        between = time.perf_counter()
        flying += plan.start.tolist()
        landed, flying = flying[: plan.wait_for], flying[plan.wait_for :]
        report = _report(np.array(landed), step)
        after = time.perf_counter()
        policy.observe(report)
        if step >= steps:
            spent += time.perf_counter() - after + between - began
    values, out = fleet.compute_time, np.empty(size)
    began = time.perf_counter()
    for _ in range(20):
        np.multiply(values, 1.5, out=out)
    return spent / steps / ((time.perf_counter() - began) / 20)


def _report(members: np.ndarray, step: int) -> RoundReport:
    ones = np.ones(len(members))
    return RoundReport(
        plan=RoundPlan(members=members, weights=ones), round_index=step, round_time=1.0, compute_time=ones,
        upload_time=ones, step_size=ones, local_steps=ones.astype(np.int64), largest_gradient_norm=ones,
        mean_gradient_norm=ones, update_norm=ones, mean_loss=ones, failed=np.zeros(len(members), dtype=bool),
        residual_norm=0.3 * ones, aggregate_norm=1.0, direction_norm=1.0, loss=None, accuracy=None,
    )  # fmt: skip


def main() -> None:
    """Measure, and write the report."""
    data = synthetic_data(
        alpha=1.0, beta=1.0, num_clients=SMALL, num_samples=SAMPLES_OF_A_CLIENT * SMALL, seed=0
    )  # fmt: skip
    rows = []
    with threadpool_limits(limits=1):
        in_a_run(data, "tempo", evaluate=False)  # compiles the kernels
        cohort, _ = in_a_run(data, "weighted", evaluate=False)
        for policy in ("weighted", "tempo"):
            step, own = in_a_run(data, policy, evaluate=False)
            whole, own_too = in_a_run(data, policy, evaluate=True)
            rows.append([
                policy, f"{1e3 * own:.2f}", f"{own_too / (whole - own_too):.1%}", f"{own / (step - own):.1%}",
                f"{own / cohort:.1%}",
            ])  # fmt: skip
        found = passes(LARGE)
    headings = [
        "policy", "deciding (ms a step)", "of a step with evaluation", "of a step without",
        f"of a round of weighted sampling, K = {COHORT_SIZE}, without",
    ]  # fmt: skip
    report = (
        f"# What deciding costs\n\nMade by `python benchmarks/overhead.py`. N = {SMALL:,}, E = 50, batches of 24; "
        f"tempo steps after one or two arrivals, weighted sampling after {COHORT_SIZE}.\n\n"
        f"{Table.from_rows(headings, rows)}\n\n"
        f"At N = {LARGE:,} a step of tempo takes the time of {found:.1f} NumPy passes over the fleet.\n"
    )
    print(report)
    with whole_file(REPORT) as stream:
        stream.write(report)


if __name__ == "__main__":
    main()
