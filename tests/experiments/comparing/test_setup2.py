"""Setup 2 of the paper, for real: rounds near the paper's, and the paper's order of policies."""

import pytest

from fedtempo.engine.records import RECORDS
from fedtempo.experiments.running.results import read_run
from support.marks import slow_after
from support.paths import ROOT
from support.runs import run_file

CONFIG = ROOT / "configs" / "setup2.toml"


def time_to(folder, policy, seed, target=1.0):
    stop = {"target_loss": target, "max_rounds": 1000}
    summary = run_file(CONFIG, folder / policy / str(seed), policy, seed, over={"stop": stop})
    assert summary.end == "target"
    return summary.time_to_loss


def test_weighted_sampling_needs_about_as_many_rounds_as_in_the_paper(tmp_path):
    time_to(tmp_path, "weighted", 0)
    losses = read_run(tmp_path / "weighted" / "0" / RECORDS).loss
    for target, papers in ((1.2, 48), (1.0, 101)):
        rounds = next(r for r, loss in enumerate(losses, start=1) if loss <= target)
        assert papers / 4 <= rounds <= 4 * papers


@pytest.mark.parametrize("seed", slow_after(1, range(5)))
def test_the_optimum_takes_less_time_than_every_baseline(tmp_path, seed):
    best = time_to(tmp_path, "proposed-oracle", seed)
    for policy in ("uniform", "weighted", "statistical"):
        assert best < time_to(tmp_path, policy, seed)
