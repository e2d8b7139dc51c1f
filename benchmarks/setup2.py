"""Setup 2 with preset `paper` over several draws of the data: what each policy takes to loss 1.0, pilots apart.

    python benchmarks/setup2.py --draws 10 --seeds 5

Prints two tables and writes them to benchmarks/setup2.md. Runs go into runs/setup2-draws and are not run again.
"""

import argparse
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

from fedtempo.engine.records import Summary
from fedtempo.experiments.running import runner
from fedtempo.experiments.running.planned import plan_run
from fedtempo.experiments.running.results import read_run
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.files import whole_file

ROOT = Path(__file__).resolve().parents[1]
REPORT = Path(__file__).with_suffix(".md")
TARGET, MOST_ROUNDS = 1.0, 2000
POLICIES = ("uniform", "weighted", "statistical", "proposed-oracle", "proposed")


def run(draw: int, seed: int, policy: str) -> tuple[Summary, dict]:
    """Run one policy on one draw of the data; return the summary, and what its pilots found."""
    over = {"data": {"seed": draw}, "times": {"seed": draw}, "stop": {"target_loss": TARGET, "max_rounds": MOST_ROUNDS}}
    experiment = load_experiment(ROOT / "configs" / "setup2.toml", over=over)
    planned = plan_run(experiment, policy, seed, ROOT / "runs" / "setup2-draws" / str(draw) / policy / str(seed))
    summary = runner.run(planned)
    return summary, read_run(planned.records).note


def seconds(summary: Summary) -> str:
    """Return the time to the target, or that it was not reached."""
    return f"{summary.time_to_loss:,.0f}" if summary.end == "target" else f"> {summary.time:,.0f}"


def main() -> None:
    """Run the grid, print and record the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10, help="draws of data and times")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of cohorts and batches, on draw 0")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    grid = [(0, seed, policy) for seed in range(given.seeds) for policy in POLICIES]
    grid += [(draw, 0, policy) for draw in range(1, given.draws) for policy in POLICIES]
    found = dict(zip(grid, Parallel(n_jobs=given.jobs)(delayed(run)(*case) for case in grid), strict=True))

    lines = ["# Setup 2, preset `paper`, to loss 1.0", ""]
    lines += [f"Made by `python benchmarks/setup2.py --draws {given.draws} --seeds {given.seeds}`.", ""]
    lines += [f"Draw 0 of data and times, {given.seeds} seeds: simulated seconds to loss {TARGET}, without pilots.", ""]
    lines += ["| policy | mean | lowest | highest | rounds | not reached | pilots (s) |", "|---" + "|---:" * 6 + "|"]
    for policy in POLICIES:
        runs = [found[0, seed, policy][0] for seed in range(given.seeds)]
        times, rounds = [run.time for run in runs], np.mean([run.rounds for run in runs])
        missed = sum(run.end != "target" for run in runs)
        pilots = np.mean([run.pilot_time for run in runs])
        cells = [f"{number:,.0f}" for number in (np.mean(times), min(times), max(times), rounds, missed, pilots)]
        lines.append(f"| {policy} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Each draw, seed 0: seconds to loss {TARGET}, and what `proposed` found in its pilots.",
        "",
    ]
    lines += [f"| draw | {' | '.join(POLICIES)} | pilots (s) | β/α | usable losses |", "|---" + "|---:" * 8 + "|"]
    fallbacks = 0
    for draw in range(given.draws):
        summary, note = found[draw, 0, "proposed"]
        fallbacks += note["fallback"]
        ratio = "none: closed form" if note["fallback"] else f"{note['beta_over_alpha']:,.1f}"
        usable = note["estimate"].split("mean of ")[1].split(" losses")[0] if not note["fallback"] else "0 of 5"
        cells = [seconds(found[draw, 0, policy][0]) for policy in POLICIES]
        lines.append(f"| {draw} | {' | '.join(cells)} | {summary.pilot_time:,.0f} | {ratio} | {usable} |")
    lines += ["", f"`proposed` fell back to the closed form in {fallbacks} of {given.draws} draws."]
    print("\n".join(lines))
    with whole_file(REPORT) as stream:
        stream.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
