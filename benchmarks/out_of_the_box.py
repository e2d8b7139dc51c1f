"""Tempo with nothing set by anybody, against others at settings that were tuned for them: seconds to the target.

    python benchmarks/out_of_the_box.py --setups setup1,setup2,setup3,fashion,cifar10,shakespeare

Tempo has the settings of a call that names none (problem_experiment.py): a step size that the run finds, bits by the
optimum, and the mean of models that grows with the run. All have what configs/ found best for them, too, plain and with
levers, ``upload_bits`` and ``server_average`` auto. A floor is tempo's option of this name: the share of the draws that
goes by data share, which slow clients gain from. All policies have the same draws of data, times and training, which no
setting was chosen on. All time counts. Writes benchmarks/out_of_the_box.md: geometric means, in which runs that missed
the target enter at the limit, the ratio to weighted sampling at its tuned settings with a 95 % interval over draws,
every draw, and the loss at the end of the tenth of the clients that upload slowest, over that of weighted sampling.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
from constants import outcome
from joblib import Parallel, delayed
from scipy.stats import t as student

from fedtempo.checks import Vector
from fedtempo.experiments.settings.problem_experiment import OUT_OF_THE_BOX
from fedtempo.files import whole_file

REPORT = Path(__file__).with_suffix(".md")
FIRST_DRAW = 3000
NOTHING_SET = ";".join(f"{name}={value}" for name, value in OUT_OF_THE_BOX.items() if name != "evaluate_growth")
BASELINE = "weighted, tuned"
LEVERS = "upload_bits=auto;server_average=auto"
FORMS = {
    "tempo, nothing set": ("tempo", NOTHING_SET),
    "tempo, nothing set, 32 bits": ("tempo", f"{NOTHING_SET};upload_bits=32"),
    "tempo, nothing set, floor 0.5": ("tempo", f"{NOTHING_SET};FLOOR=0.5"),
    "tempo, nothing set, floor 1": ("tempo", f"{NOTHING_SET};FLOOR=1.0"),
    "tempo, tuned": ("tempo", ""),
    "tempo, tuned, levers": ("tempo", LEVERS),
    BASELINE: ("weighted", ""),
    "weighted, tuned, levers": ("weighted", LEVERS),
    "weighted, step size auto": ("weighted", "step_size=auto;schedule=constant"),
    "fedbuff, tuned": ("fedbuff", ""),
    "fedbuff, tuned, levers": ("fedbuff", LEVERS),
}


class Setup(NamedTuple):
    """How a setup is measured."""

    draws: int
    limit: float  # simulated seconds
    growth: float  # of the time between two looks at the loss


SETUPS = {
    "setup1": Setup(20, 3000.0, 0.01),
    "setup2": Setup(10, 6000.0, 0.01),
    "setup3": Setup(10, 600.0, 0.1),
    "fashion": Setup(5, 1200.0, 0.1),
    "cifar10": Setup(3, 1200.0, 0.1),
    "shakespeare": Setup(3, 1600.0, 0.1),
}


def ratio_in_words(times: Vector, others: Vector) -> str:
    """Return the geometric mean of ratios over draws, with its interval where there are three draws."""
    logs = np.log(times / others)
    logs = logs[np.isfinite(logs)]  # of the losses of runs that diverged, nothing is known
    if not logs.size:
        return "-"
    mean = f"{np.exp(logs.mean()):.2f}"
    if len(logs) < 3 or not logs.std():
        return mean
    half = student.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    return f"{mean} ({np.exp(logs.mean() - half):.2f}–{np.exp(logs.mean() + half):.2f})"


def section(name: str, forms: list[str], jobs: int) -> str:
    """Run all forms in one setup and return their table."""
    setup = SETUPS[name]
    draws = range(FIRST_DRAW, FIRST_DRAW + setup.draws)
    lines = [
        f"## {name}\n",
        "| form | seconds | of weighted, tuned | missed | updates | slow clients' loss | each draw |",
    ]
    lines.append("|---|---:|---:|---:|---:|---:|---|")
    found = {}
    for form in forms:
        policy, variant = FORMS[form]
        ends = Parallel(n_jobs=jobs)(
            delayed(outcome)(name, policy, variant, draw, draw, {}, setup.limit, setup.growth) for draw in draws
        )
        found[form] = np.array(ends).T
        print(name, form, found[form][0], flush=True)
    others, _, _, other_slow = found[BASELINE]
    for form, (times, updates, _, slow) in found.items():
        bounded = np.minimum(times, setup.limit)
        each = " ".join(f"{time:.0f}" if np.isfinite(time) else "-" for time in times)
        ratio, slow_ratio = ratio_in_words(bounded, np.minimum(others, setup.limit)), ratio_in_words(slow, other_slow)
        lines.append(
            f"| {form} | {np.exp(np.log(bounded).mean()):.4g} | {ratio} | {np.isinf(times).sum()} of {len(times)} "
            f"| {updates.mean():.0f} | {slow_ratio} | {each} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure the setups that are asked for, and keep the sections of the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setups", default=",".join(SETUPS), help="separated by commas")
    parser.add_argument("--forms", help=f"beside the baseline, separated by semicolons; all: {'; '.join(FORMS)}")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    forms = list(FORMS) if given.forms is None else [BASELINE, *given.forms.split(";")]
    before = REPORT.read_text(encoding="utf-8").split("\n## ")[1:] if REPORT.exists() else []
    sections = {text.partition("\n")[0]: f"## {text}".rstrip() + "\n" for text in before}
    for name in given.setups.split(","):
        sections[name] = section(name, forms, given.jobs)
        head = "# Out of the box\n\nMade by `python benchmarks/out_of_the_box.py`, which says what the forms are.\n"
        with whole_file(REPORT) as stream:
            stream.write("\n".join([head, *(sections[one] for one in SETUPS if one in sections)]))


if __name__ == "__main__":
    main()
