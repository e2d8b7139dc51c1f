"""Whether a change of the code makes runs slower: an earlier commit and this tree by turns, as ratios.

    python benchmarks/same_speed.py COMMIT

Each side runs the same rounds in processes of its own, one after another and by turns; the least seconds of computing
of each count, since whatever else a machine does only adds to them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TURNS, REPEATS = 5, 3
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
found = {}
for name, (federation, model, policy, size, rounds) in CASES.items():
    rng = np.random.default_rng(1)
    times = {kind: rng.exponential(size=federation.num_clients) for kind in ("compute_time", "upload_time")}
    least = float("inf")
    for _ in range(int(sys.argv[1])):
        begun = time.process_time()
        simulate(
            federation, **times, model=model, policy=policy, cohort_size=size, max_rounds=rounds, step_size=0.001,
            schedule="constant",
        )
        least = min(least, time.process_time() - begun)
    found[name] = least / rounds
print(json.dumps(found))
"""


def main() -> None:
    """Measure both sides, and print what a round takes here over what it took there."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("commit", help="the code to compare with")
    commit = arguments.parse_args().commit
    with tempfile.TemporaryDirectory() as place:
        archive = subprocess.run(["git", "-C", ROOT, "archive", commit], capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", place], input=archive, check=True)
        least: list[dict[str, float]] = [{}, {}]
        for _ in range(TURNS):
            for side, tree in zip(least, (Path(place), ROOT), strict=True):
                for name, seconds in measured(tree).items():
                    side[name] = min(side.get(name, seconds), seconds)
    for name, before in least[0].items():
        after = least[1][name]
        print(f"{name}: {1e3 * before:.3f} ms a round before, {1e3 * after:.3f} ms now, ratio {after / before:.3f}")


def measured(tree: Path) -> dict[str, float]:
    """Return the seconds of computing that a round takes by the code of a tree."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    command = [sys.executable, "-c", RUN, str(REPEATS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tree, env=environment)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
