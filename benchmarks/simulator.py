"""Measure the simulator against its peers and against the machine, as ratios within one run (make bench).

    python benchmarks/simulator.py            ours, and the peers in environments of their own (made at the first run)
    python benchmarks/simulator.py --no-peers ours alone

All do the same work (benchmarks/peers/work.py): the same data shape, K, E, batch and evaluation, one thread. Prints a
table, and writes it with versions to benchmarks/simulator.md.
"""

import argparse
import json
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))

from work import WORKS, make_data  # noqa: E402

from fedtempo import Fleet  # noqa: E402
from fedtempo.data.federation import FederatedData  # noqa: E402
from fedtempo.engine.records import encode  # noqa: E402
from fedtempo.engine.settings import StopSettings, TrainingSettings  # noqa: E402
from fedtempo.files import whole_file  # noqa: E402
from fedtempo.simulator.channel import StaticChannel  # noqa: E402
from fedtempo.simulator.problem import Problem, make_trainer  # noqa: E402
from fedtempo.simulator.simulation import RunSettings, make_simulation  # noqa: E402

REPORT = HERE / "simulator.md"
ROUNDS = {"setup1": 120, "setup2": 600, "setup3": 30, "cifar10": 30}
GOALS = {
    ("plain_torch", "setup2"): 25, ("pfl", "setup2"): 25, ("fedjax", "setup2"): 10, ("flower", "setup2"): 40,
    ("pfl", "setup1"): 4, ("pfl", "setup3"): 1.6, ("pfl", "cifar10"): 1, ("flower", "cifar10"): 1,
}  # fmt: skip


def federation(setup: str) -> FederatedData:
    """Return the peers' data; a tenth of the samples stands in for test data, of which the peers have none."""
    inputs, labels, offsets = make_data(setup)
    shape = WORKS[setup].input_shape
    flat = inputs.reshape(len(inputs), -1)
    return FederatedData(flat, labels, offsets, flat[:10], labels[:10], 10, shape, f"noise of {setup}")


def simulation(data: FederatedData, setup: str, rounds: int, seed: int = 0):
    """Return our run of the peers' work: K distinct clients in each round, as they have."""
    work, rng = WORKS[setup], np.random.default_rng(0)
    fleet = Fleet(data.data_share, 1.0, *rng.exponential(size=(2, data.num_clients)))
    trainer = make_trainer(work.network, data)
    settings = RunSettings(
        policy="uniform", options={"replacement": False}, seed=seed, stop=StopSettings(max_rounds=rounds),
        training=TrainingSettings(
            cohort_size=work.cohort_size, local_steps=work.local_steps, step_size=work.learning_rate,
            schedule="constant", evaluate_every=work.evaluate_every, duplicates="physical",
        ),
    )  # fmt: skip
    return make_simulation(_static(data, trainer, fleet), settings)


def _static(data: FederatedData, trainer, fleet: Fleet) -> Problem:
    return Problem.of_fleet(data, trainer, fleet, StaticChannel(fleet.compute_time, fleet.upload_time))


def rounds_per_second(setup: str, rounds: int, seed: int = 0) -> float:
    """Time one run on one thread, after a few rounds that warm up."""
    warmup = 5
    running = simulation(federation(setup), setup, rounds + warmup, seed).rounds()
    with threadpool_limits(limits=1):
        for _ in range(warmup):
            next(running)
        start = time.perf_counter()
        for _ in running:
            pass
    return rounds / (time.perf_counter() - start)


def several(setup: str, seeds: int, processes: int, rounds: int) -> float:
    """Time runs of several seeds on several processes; return rounds per second of all together."""
    with Parallel(n_jobs=processes) as pool:
        pool(delayed(rounds_per_second)(setup, 2, seed) for seed in range(processes))  # starts and warms the processes
        start = time.perf_counter()
        pool(delayed(rounds_per_second)(setup, rounds, seed) for seed in range(seeds))
    return seeds * (rounds + 5) / (time.perf_counter() - start)


def side_by_side(setup: str, processes: int, rounds: int) -> float:
    """Return the summed rounds per second of runs that share the machine from start to end."""
    with Parallel(n_jobs=processes) as pool:
        return sum(pool(delayed(rounds_per_second)(setup, rounds, seed) for seed in range(processes)))


def gemm_limit(setup: str) -> float:
    """Return the rounds per second of a machine that did nothing but the products, at the speed of a large sgemm."""
    work, size = WORKS[setup], 1500
    a = np.ones((size, size), dtype=np.float32)
    with threadpool_limits(limits=1):
        a @ a
        start = time.perf_counter()
        for _ in range(5):
            a @ a
        speed = 5 * 2 * size**3 / (time.perf_counter() - start)
    # Products of one sample, forward: all of them, and those of the first layer, whose inputs need no gradient.
    products, first = {
        "setup1": (7_840, 7_840), "setup2": (600, 600), "setup3": (416_520, 117_600), "cifar10": (2_934_016, 442_368)
    }[setup]  # fmt: skip
    trained = work.cohort_size * work.local_steps * work.batch_size
    forward = 2 * products
    backward = 2 * forward - 2 * first
    return speed / (trained * (forward + backward) + work.num_samples * forward / work.evaluate_every)


def time_outside_training(clients: int, rounds: int = 2000) -> float:
    """Return seconds a round of draws, weights, shares and records with K = 10, for a model that learns nothing."""
    rng = np.random.default_rng(0)
    inputs, labels = np.zeros((clients, 1), dtype=np.float32), np.arange(clients) % 2
    data = FederatedData(inputs, labels, np.arange(clients + 1), inputs[:2], labels[:2], 2, (1,), "nothing")
    fleet = Fleet(data.data_share, 1.0, *rng.exponential(size=(2, clients)))
    training = TrainingSettings(cohort_size=10, local_steps=1, batch_size=1)
    stop = StopSettings(max_rounds=rounds + 50)
    settings = RunSettings(policy="weighted", seed=0, stop=stop, training=training)
    running = make_simulation(_static(data, Idle(), fleet), settings).rounds()
    for _ in range(50):
        next(running)
    start = time.perf_counter()
    for record in running:
        encode(record)
    return (time.perf_counter() - start) / rounds


class Idle:
    """A trainer without work: what remains is the loop's own time."""

    num_parameters = 1

    def initial_model(self, rng):
        """Return one number."""
        return np.zeros(1, dtype=np.float32)

    def train(self, models, work):
        """Return zeros."""
        from fedtempo.learning.trainer import LocalResult

        zeros = np.zeros(len(work.start))
        return LocalResult(
            update=zeros[:, None].astype(np.float32),
            largest_gradient_norm=zeros,
            mean_gradient_norm=zeros,
            mean_loss=zeros,
        )

    def evaluate(self, model):
        """Return a constant."""
        from fedtempo.learning.trainer import Evaluation

        return Evaluation(1.0, 0.0)


def peers(rounds: int, *choice: str) -> list[dict]:
    """Run the peers, each in its own environment; all of them, or those that ``choice`` names."""
    # The project's environment has no pip; the Python that it was made from has.
    command = [Path(sys.base_prefix) / "bin" / "python3", HERE / "peers" / "run.py", "--rounds", str(rounds), *choice]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return [json.loads(line) for line in done.stdout.splitlines()]


def median_row(what: str, ratios: list[float], goal: str) -> tuple[str, str, str]:
    """Return a line of the table for ratios of measurements that were made one right after the other."""
    shown = ", ".join(f"{ratio:.3g}" for ratio in sorted(ratios))
    return f"{what}: median of {shown}", f"{np.median(ratios):.3g} ×", goal


def main() -> None:
    """Run every benchmark, print and record the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-peers", action="store_true", help="measure ours alone")
    parser.add_argument("--peer-rounds", type=int, default=10)
    given = parser.parse_args()
    ours = {setup: rounds_per_second(setup, rounds) for setup, rounds in ROUNDS.items()}
    rows = [
        (
            f"{setup}, one thread: rounds a second, and share of the products' limit",
            f"{speed:.3g}, {speed / gemm_limit(setup):.0%}",
            "-",
        )
        for setup, speed in ours.items()
    ]
    # One after the other, three times: what else the machine does changes from minute to minute.
    ratios = [side_by_side("setup3", 2, 15) / rounds_per_second("setup3", 15) for _ in range(3)]
    rows.append(median_row("setup3, two processes over one", ratios, "≥ 1.8 ×"))
    if not given.no_peers:
        ratios = []
        for _ in range(3):
            (fedjax,) = peers(10 * given.peer_rounds, "--peers", "fedjax", "--setups", "setup2")
            ratios.append(several("setup2", 20, 2, 600) / fedjax["rounds_per_second"])
        rows.append(median_row("setup2, 20 seeds on two processes, over fedjax", ratios, "≥ 30 ×"))
    small, large = time_outside_training(1_000), time_outside_training(1_000_000)
    rows.append(("a round outside training, N = 1,000,000 over N = 1,000", f"{large / small:.2f} ×", "≤ 2 ×"))
    if not given.no_peers:
        for line in peers(given.peer_rounds):
            peer, setup, speed = line["peer"], line["setup"], line["rounds_per_second"]
            goal = GOALS.get((peer, setup))
            what = f"{setup} over {peer} {line['version']} ({speed:.3g} rounds a second)"
            rows.append((what, f"{ours[setup] / speed:.2f} ×", f"≥ {goal} ×" if goal else "-"))
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    lines = ["# Benchmarks of the simulator", "", f"Made by `make bench` with {versions}; ratios in one run.", ""]
    lines += ["| what | measured | goal |", "|---|---:|---:|", *(f"| {' | '.join(row)} |" for row in rows)]
    print("\n".join(lines))
    with whole_file(REPORT) as stream:
        stream.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
