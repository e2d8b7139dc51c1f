"""Whether a change of the code changes any number: runs of an earlier commit and of this tree, record by record.

    python benchmarks/same_records.py COMMIT

runs the configurations of configs/ under each of their presets, and random small ones, with every policy, first by the
code of that commit and then by this one, and compares all their records. Pilots and runs are cut short: what counts is
that every line agrees in every number. Headers may differ in the format, the versions and the commit.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import numpy as np
import tomli_w

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = {"setup1": 8, "setup2": 20, "setup3": 3}  # and rounds of a run
PRESETS = ("paper", "authors-code", "best")
POLICIES = (
    "uniform", "weighted", "statistical", "full", "proposed", "proposed-oracle", "tempo", "oort", "power-of-choice",
    "fedcs", "tifl", "ocs", "clustered", "kvib", "fedbuff",
)  # fmt: skip
PILOT_ROUNDS = 4
ORIGIN = ("format", "versions", "commit")  # of a header: with what it was made
LATER_NAMES = {"told": "times_known"}  # of settings


def main() -> None:
    """Run both sides and compare them."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("commit", help="the code to compare with")
    arguments.add_argument("--random", type=int, default=30, help="how many random configurations")
    arguments.add_argument("--configs", default=",".join(CONFIGS), help="which of configs/, separated by commas")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        tasks = made_from_configs(folder, [name for name in given.configs.split(",") if name])
        tasks += made_at_random(folder, given.random)
        before = folder / "before"
        before.mkdir()
        archive = subprocess.run(["git", "-C", ROOT, "archive", given.commit], capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", before], input=archive, check=True)
        records = [run_all(tree, tasks, folder / f"runs{number}") for number, tree in enumerate((before, ROOT))]
        differing = [name for name in records[0] if not same(records[0][name], records[1].get(name))]
        for name in differing[:10]:
            print(f"{name}: {first_difference(records[0][name], records[1].get(name))}")
        lines = sum(len(one) for one in records[0].values())
        print(f"{len(records[0])} runs, {lines:,} lines, {len(differing)} runs differ")
    sys.exit(bool(differing))


def made_from_configs(folder: Path, names: list[str]) -> list[dict[str, object]]:
    """Return the runs of the configurations that the project ships, with short pilots."""
    tasks = []
    for name in names:
        table = tomllib.loads((ROOT / "configs" / f"{name}.toml").read_text(encoding="utf-8"))
        for policy in ("proposed", "statistical"):
            table["policy"][policy]["max_rounds"] = PILOT_ROUNDS
        path = folder / f"{name}.toml"
        path.write_text(tomli_w.dumps(table), encoding="utf-8")
        known = [preset for preset in PRESETS if preset == "paper" or preset in table.get("presets", {})]
        tasks += [
            {"config": str(path), "preset": preset, "policy": policy, "rounds": CONFIGS[name], "seed": 0}
            for preset in known
            for policy in POLICIES
        ]
    return tasks


def made_at_random(folder: Path, count: int) -> list[dict[str, object]]:
    """Return runs of small federations, each with a channel, settings and policies of its own."""
    tasks = []
    for number in range(count):
        rng = np.random.default_rng([20, number])
        path = folder / f"random{number}.toml"
        path.write_text(tomli_w.dumps(random_table(rng)), encoding="utf-8")
        for policy in rng.choice(POLICIES, 6, replace=False).tolist():
            task = {
                "config": str(path),
                "preset": "paper",
                "policy": policy,
                "rounds": 12,
                "seed": int(rng.integers(9)),
            }
            tasks.append(task)
    return tasks


def random_table(rng: np.random.Generator) -> dict[str, object]:
    """Return a random configuration."""
    clients = int(rng.integers(5, 25))
    pilots = {"losses": [2.2, 2.1], "max_rounds": PILOT_ROUNDS}
    channel = {
        "kind": str(rng.choice(["static", "fading"])),
        "told": bool(rng.integers(2)),
        "seed": int(rng.integers(5)),
    }
    if rng.random() < 0.4:
        channel |= {"present_share": float(rng.uniform(0.5, 0.9))}
    return {
        "name": "random",
        "data": {
            "kind": "synthetic", "clients": clients, "samples": 100 * clients, "seed": int(rng.integers(3)),
            "beta": float(rng.uniform(0, 2)),
        },
        "model": {"kind": "softmax"},
        "times": {
            "compute": {"kind": "exponential", "mean": float(rng.uniform(0.1, 3))},
            "upload": {"kind": "lognormal", "median": 1.0, "sigma": float(rng.uniform(0.1, 2))},
            **({"download": {"kind": "constant", "value": 0.2}} if rng.random() < 0.3 else {}),
        },
        "channel": channel,
        "training": {
            "cohort_size": int(rng.integers(1, 6)), "local_steps": int(rng.integers(1, 12)), "batch_size": 8,
            "step_size": float(10 ** rng.uniform(-3, -1)), "schedule": str(rng.choice(["inverse", "constant"])),
            "link": str(rng.choice(["paper", "equal", "shared"])),
            "duplicates": str(rng.choice(["paper", "physical"])),
            "server_momentum": float(rng.choice([0.0, 0.5, 0.9])), "server_memory": bool(rng.random() < 0.3),
            "weight_decay": float(rng.choice([0.0, 0.01])), "evaluate_every": int(rng.integers(1, 4)),
        },
        "stop": {"max_rounds": 12, **({"target_loss": 1.0} if rng.random() < 0.5 else {})},
        "policy": {"proposed": pilots, "statistical": pilots, "proposed-oracle": {"beta_over_alpha": 0.5}},
    }  # fmt: skip


def run_all(tree: Path, tasks: list[dict[str, object]], output: Path) -> dict[str, list[dict[str, object]]]:
    """Run tasks by the code of a tree, in a process of its own; return the records of each."""
    told = {"tasks": tasks, "output": str(output)}
    environment = os.environ | {"PYTHONPATH": str(tree)}
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'benchmarks')!r}); {RUN}"]
    subprocess.run(command, input=json.dumps(told), text=True, check=True, cwd=output.parent, env=environment)
    found = {}
    for path in sorted(output.rglob("records.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        found[str(path.parent.relative_to(output))] = [plain(line) for line in lines]
    return found


RUN = "from same_records import run_tasks; run_tasks()"


def run_tasks() -> None:
    """Run the tasks that the standard input names, by whatever fedtempo this process finds."""
    from fedtempo.cli import main as command

    told = json.loads(sys.stdin.read())
    for number, task in enumerate(told["tasks"]):
        name = f"{Path(task['config']).stem}-{task['preset']}-{task['policy']}-{number}"
        options = ["--policy", task["policy"], "--preset", task["preset"], "--seed", str(task["seed"])]
        options += ["--max-rounds", str(task["rounds"]), "-o", f"{told['output']}/{name}"]
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            sys.stdout, sys.stderr, shown = nowhere, nowhere, (sys.stdout, sys.stderr)
            try:
                command(["run", task["config"], *options])
            except SystemExit as end:
                code = end.code
            finally:
                sys.stdout, sys.stderr = shown
        if code not in (0, 1):  # 1: it diverged, which the records say
            print(f"{name} ended with code {code}", file=sys.stderr)


def finite(value: object) -> object:
    """Return a value with None for whatever is no finite number, as records have it since format 2."""
    if isinstance(value, list):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def plain(line: dict[str, object]) -> dict[str, object]:
    """Return a line without what it was made with; settings by their present names."""
    if "header" not in line:
        return {name: finite(value) for name, value in line.items()}
    header = {name: value for name, value in line["header"].items() if name not in ORIGIN}
    return {"header": renamed(header)}


def renamed(value: object) -> object:
    """Return settings by their present names."""
    if isinstance(value, dict):
        return {LATER_NAMES.get(name, name): renamed(one) for name, one in value.items()}
    return value


def same(one: object, other: object) -> bool:
    """Return whether two runs agree in everything; NaN equals NaN."""
    return json.dumps(one) == json.dumps(other)


def first_difference(one: list[dict[str, object]], other: list[dict[str, object]] | None) -> str:
    """Say where two runs differ first."""
    if other is None:
        return "missing"
    for number, (a, b) in enumerate(zip(one, other, strict=False)):
        if not same(a, b):
            names = [name for name in {**a, **b} if not same(a.get(name), b.get(name))]
            return f"line {number + 1}, {names[0]}: {str(a.get(names[0]))[:150]} | {str(b.get(names[0]))[:150]}"
    return f"{len(one)} and {len(other)} lines"


if __name__ == "__main__":
    main()
