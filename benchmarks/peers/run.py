"""Run every peer in its own environment, one after another on one core, and collect their JSON lines.

    python3 benchmarks/peers/run.py -o peers.jsonl
    python3 benchmarks/peers/run.py --peers pfl fedjax --setups setup2 --rounds 50 --repeats 3

Environments are made under .venv-peers at the first run. Nothing but the standard library and pip is needed here.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parents[1] / ".venv-peers"
SCRIPTS = {
    "plain_torch": "plain_torch.py",
    "pfl": "pfl_bench.py",
    "fedjax": "fedjax_bench.py",
    "flower": "flower_bench.py",
}
SETUPS = ("setup1", "setup2", "setup3", "cifar10")
QUIET_AND_SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "FLWR_HOME": str(ENVIRONMENTS / "flower" / ".flwr"),
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def environment(peer: str) -> Path:
    """Return the Python of the peer's environment, which is made anew when its requirements have changed."""
    folder = ENVIRONMENTS / peer
    python, stamp = folder / "bin" / "python", folder / ".installed"
    requirements = HERE / f"requirements-{peer}.txt"
    if not stamp.exists() or stamp.read_text() != requirements.read_text():
        print(f"making {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
        subprocess.run([*pip, "install", "--quiet", "-r", requirements], check=True, stdout=sys.stderr)
        stamp.write_text(requirements.read_text())
    return python


def measure(peer: str, arguments: list[str]) -> dict[str, object] | None:
    """Run the peer's script once and return what it reports, or None if it failed."""
    print(peer, *arguments, file=sys.stderr)
    done = subprocess.run(
        [environment(peer), HERE / SCRIPTS[peer], *arguments],
        env={**os.environ, **QUIET_AND_SINGLE_THREADED},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        print(f"{peer} failed:\n{done.stderr[-4000:]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    """Measure what is asked for; 1 if any peer failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", choices=SCRIPTS, default=list(SCRIPTS))
    parser.add_argument("--setups", nargs="+", choices=SETUPS, default=SETUPS)
    parser.add_argument("--rounds", type=int, default=20, help="timed rounds of each run")
    parser.add_argument("--warmup", type=int, default=3, help="rounds before the clock starts")
    parser.add_argument("--evaluate-every", type=int, help="rounds; default: that of the setup")
    parser.add_argument("--repeats", type=int, default=1, help="times to go through all peers and setups")
    parser.add_argument("--cores", type=int, nargs="+", help="cores that a peer may use; default: the last one")
    parser.add_argument("-o", "--output", type=Path, help="file for the JSON lines, besides standard output")
    given = parser.parse_args()

    arguments = ["--rounds", str(given.rounds), "--warmup", str(given.warmup)]
    if given.evaluate_every:
        arguments += ["--evaluate-every", str(given.evaluate_every)]
    for peer in given.peers:
        environment(peer)
    os.sched_setaffinity(0, given.cores or {max(os.sched_getaffinity(0))})
    runs = [(setup, peer) for _ in range(given.repeats) for setup in given.setups for peer in given.peers]
    lines, failures = [], 0
    for setup, peer in runs:
        reported = measure(peer, ["--setup", setup, *arguments])
        failures += reported is None
        if reported is not None:
            lines.append(json.dumps(reported))
            print(lines[-1], flush=True)
            if given.output:
                given.output.write_text("\n".join(lines) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
