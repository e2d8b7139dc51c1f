"""Whether a change of the code makes runs slower: an earlier commit and this tree by turns, as ratios.

    python benchmarks/same_speed.py COMMIT

Each side has a process of its own, and they run a case by turns, about half a second each. A noisy machine changes its
pace over seconds, so both runs of a pair meet the same pace: the median of the pairs' ratios counts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
PAIRS = 40
RUN = """
import json, sys, time
import numpy as np
from fedtempo import FederatedData, simulate

def data(clients, samples, shape, seed=0):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(samples + 500, int(np.prod(shape)))).astype(np.float32)
    labels = np.arange(samples + 500) % 10
    offsets = np.linspace(0, samples, clients + 1).astype(np.int64)
    train, test = (inputs[:samples], labels[:samples]), (inputs[samples:], labels[samples:])
    return FederatedData(*train, offsets, *test, 10, shape, "noise")

CASES = {
    "Setup 1, weighted": (data(40, 8000, (784,)), "softmax", "weighted", 4, 40),
    "Setup 2, weighted": (data(100, 20509, (60,)), "softmax", "weighted", 10, 150),
    "Setup 2, tempo": (data(100, 20509, (60,)), "softmax", "tempo", 10, 400),
    "Setup 3, weighted": (data(100, 3000, (1, 28, 28)), "lenet5", "weighted", 10, 2),
}
def once(name):
    federation, model, policy, size, rounds = CASES[name]
    rng = np.random.default_rng(1)
    times = {kind: rng.exponential(size=federation.num_clients) for kind in ("compute_time", "upload_time")}
    begun = time.process_time()
    simulate(
        federation, **times, model=model, policy=policy, cohort_size=size, max_rounds=rounds, step_size=0.001,
        schedule="constant",
    )
    return (time.process_time() - begun) / rounds

print(json.dumps(list(CASES)), flush=True)
for line in sys.stdin:
    print(once(line.strip()), flush=True)
"""


def main() -> None:
    """Measure both sides, and print what a round takes here over what it took there."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("commit", help="the code to compare with")
    commit = arguments.parse_args().commit
    with tempfile.TemporaryDirectory() as place:
        archive = subprocess.run(["git", "-C", ROOT, "archive", commit], capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", place], input=archive, check=True)
        sides = [started(Path(place)), started(ROOT)]
        try:
            names, _ = (json.loads(answer(side)) for side in sides)
            for name in names:
                pairs = np.array([[seconds(side, name) for side in sides] for _ in range(1 + PAIRS)][1:])
                print(sentence(name, *pairs.T))
        finally:
            for side in sides:
                side.communicate()


def started(tree: Path) -> subprocess.Popen[str]:
    """Return a process that runs the cases it is asked for, by the code of a tree."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    command = [sys.executable, "-c", RUN]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tree, env=environment
    )


def seconds(side: subprocess.Popen[str], name: str) -> float:
    """Return the seconds of computing that a round of a case takes on one side."""
    assert side.stdin is not None
    side.stdin.write(name + "\n")
    side.stdin.flush()
    return float(answer(side))


def answer(side: subprocess.Popen[str]) -> str:
    """Return the next line that a side prints."""
    assert side.stdout is not None
    return side.stdout.readline()


def sentence(name: str, before: NDArray[np.float64], after: NDArray[np.float64]) -> str:
    """Return what a case took: medians, and the median of the pairs' ratios with its standard error."""
    ratios = after / before
    spread = 1.25 * 1.48 * np.median(np.abs(ratios - np.median(ratios))) / np.sqrt(len(ratios))
    return (
        f"{name}: {1e3 * np.median(before):.3f} ms a round before, {1e3 * np.median(after):.3f} ms now, "
        f"ratio {np.median(ratios):.3f} ± {spread:.3f}"
    )


if __name__ == "__main__":
    main()
