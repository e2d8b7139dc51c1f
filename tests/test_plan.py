"""`fedtempo plan` as people call it: what it prints, what it writes, what it refuses."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedtempo import optimal_cohort, optimal_sampling, read_fleet, total_time_objective
from fedtempo.cli import main

EXAMPLE = Path(__file__).parent.parent / "examples" / "fleet.csv"
BASIC = [str(EXAMPLE), "--model-size", "5"]


def run(*arguments):
    """Run `fedtempo plan` in this process; return the exit code."""
    with pytest.raises(SystemExit) as ended:
        main(["plan", *map(str, arguments)])
    return ended.value.code


def planned(tmp_path, *arguments):
    path = tmp_path / "plan.json"
    assert run(*BASIC, "--json", path, *arguments) == 0
    return json.loads(path.read_text())


def test_the_table_names_each_policy_and_its_cost(capsys):
    assert run(*BASIC, "--cohort-size", 4, "--beta-over-alpha", 0.5) == 0
    out = capsys.readouterr().out
    for word in (
        "optimal",
        "uniform",
        "weighted",
        "statistical",
        "lower",
        "upper",
        "time ×",
        "weight",
        "true β/α",
        "0.05",
    ):
        assert word in out
    assert "phone-new-03" in out


def test_the_numbers_are_those_of_the_library(tmp_path):
    plan = planned(tmp_path, "--cohort-size", 4, "--beta-over-alpha", 0.5)
    fleet = read_fleet(EXAMPLE, model_megabytes=5.0)
    q = optimal_sampling(fleet, cohort_size=4, beta_over_alpha=0.5)
    np.testing.assert_allclose(plan["per_client"]["sampling_prob"], q, rtol=1e-12)
    policies = {row["policy"]: row for row in plan["policies"]}
    assert list(policies) == ["optimal", "uniform", "weighted", "statistical"]
    least = total_time_objective(fleet, q, cohort_size=4, beta_over_alpha=0.5)
    weighted = total_time_objective(fleet, fleet.data_share, cohort_size=4, beta_over_alpha=0.5)
    assert policies["weighted"]["relative_total_time"] == pytest.approx(weighted / least)
    assert policies["weighted"]["largest_weight"] == pytest.approx(1 / 4)
    for row in plan["policies"]:
        assert row["relative_total_time"] >= 1
        assert row["lower_bound"] <= row["expected_round_time"] <= row["upper_bound"]
        assert row["predicted_hours"] is None
    assert [case["beta_over_alpha"] for case in plan["sensitivity"]] == [0.05, 5.0]
    assert all(case["excess_time"] > 0 and 0 < case["moved_draws"] < 1 for case in plan["sensitivity"])


def test_one_known_run_calibrates_rounds_and_hours(tmp_path, capsys):
    plan = planned(tmp_path, "--cohort-size", 4, "--beta-over-alpha", 0.5, "--rounds-weighted", 200)
    rows = {row["policy"]: row for row in plan["policies"]}
    assert rows["weighted"]["predicted_rounds"] == pytest.approx(200)
    for row in rows.values():
        assert row["predicted_hours"] == pytest.approx(row["predicted_rounds"] * row["expected_round_time"] / 3600)
        assert row["predicted_rounds"] / rows["optimal"]["predicted_rounds"] == pytest.approx(row["relative_rounds"])
    assert "hours" in capsys.readouterr().out


def test_the_cohort_size_is_chosen_too(tmp_path):
    plan = planned(tmp_path, "--optimise-cohort", "--beta-over-alpha", 0.1)
    best = optimal_cohort(read_fleet(EXAMPLE, model_megabytes=5.0), 0.1)
    assert plan["cohort_size"] == best.cohort_size > 1
    assert {case["best_cohort"] for case in plan["sensitivity"]} != {None}
    assert planned(tmp_path, "--optimise-cohort", "--beta-over-alpha", 0.1, "--max-cohort", 2)["cohort_size"] == 2
    assert planned(tmp_path, "--optimise-cohort", "--beta-over-alpha", 0, "--max-cohort", 9)["cohort_size"] == 9


@pytest.mark.parametrize(
    "options", [["--link", "shared"], ["--link", "equal"], ["--duplicates", "paper"], ["--floor", 0.3]]
)
def test_options_change_the_plan(tmp_path, options):
    basic, other = (planned(tmp_path, "--cohort-size", 8, "--beta-over-alpha", 1, *more) for more in ([], options))
    assert basic["policies"][0] != other["policies"][0]
    assert planned(tmp_path, "--cohort-size", 8, "--beta-over-alpha", 1) == basic, "the same input gives the same plan"


def test_the_written_plan_can_be_planned_again(tmp_path, capsys):
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    options = ["--cohort-size", 4, "--beta-over-alpha", 0.5]
    assert run(*BASIC, *options, "-o", first) == 0
    capsys.readouterr()
    assert run(first, *options, "-o", second) == 0
    assert first.read_text() == second.read_text()
    assert capsys.readouterr().err == ""
    with open(first, encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert sum(float(row["sampling_prob"]) for row in rows) == pytest.approx(1)
    assert sum(float(row["draws_per_round"]) for row in rows) == pytest.approx(4)


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_the_picture_is_drawn(tmp_path, ending, start):
    path = tmp_path / f"plan.{ending}"
    assert run(*BASIC, "--cohort-size", 4, "--beta-over-alpha", 0.5, "--plot", path) == 0
    assert path.read_bytes().startswith(start)


def test_degenerate_fleets_are_planned_and_drawn(tmp_path):
    for name, lines in {"one": ["1,0,1"], "equal": ["1,1,1"] * 3}.items():
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join(["samples,compute_time,upload_time", *lines, ""]))
        assert run(path, "--cohort-size", 7, "--plot", tmp_path / f"{name}.png", "--json", tmp_path / "plan.json") == 0
        assert json.loads((tmp_path / "plan.json").read_text())["policies"][1]["relative_total_time"] == pytest.approx(
            1
        )


def test_what_is_assumed_is_said(tmp_path, capsys):
    path = tmp_path / "fleet.csv"
    path.write_text("samples,compute_time,upload_time\n1,1,1\n2,0,3\n")
    assert run(path, "--cohort-size", 2) == 0
    said = capsys.readouterr().err
    assert "note: no column gradient_bound: 1 assumed" in said
    assert "note: no --beta-over-alpha: 0 assumed" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--beta-over-alpha", 1], "either --cohort-size K or --optimise-cohort"),
        (["--cohort-size", 2, "--optimise-cohort"], "either --cohort-size K or --optimise-cohort"),
        (["--cohort-size", 2, "--max-cohort", 3], "max_cohort"),
        (["--cohort-size", 0], "cohort_size must be a whole number of at least 1, got 0"),
        (["--cohort-size", -3], "got -3"),
        (["--cohort-size", "four"], "'four' is not a valid"),
        (["--cohort-size", 2, "--beta-over-alpha", -1], "beta_over_alpha must be zero or positive"),
        (["--cohort-size", 2, "--beta-over-alpha", "nan"], "beta_over_alpha"),
        (["--cohort-size", 2, "--beta-over-alpha", "inf"], "beta_over_alpha"),
        (["--optimise-cohort", "--beta-over-alpha", 0], "max_cohort must be given"),
        (["--optimise-cohort", "--beta-over-alpha", 1, "--max-cohort", 0], "max_cohort"),
        (["--cohort-size", 2, "--floor", 2], "floor must lie between 0 and 1"),
        (["--cohort-size", 2, "--rounds-weighted", 0], "rounds_weighted must be positive"),
        (["--cohort-size", 2, "--draws", 0], "draws must be"),
        (["--cohort-size", 2, "--seed", -1], "seed must be"),
        (["--cohort-size", 2, "--link", "wired"], "wired"),
        (["--cohort-size", 2, "--total-bandwidth", 0], "total_bandwidth must be positive"),
        (["--cohort-size", 2, "--plot", "plan.doc"], "must be one of png, pdf, svg"),
        (["--cohort-size", 2, "-o", "no/such/folder.csv"], "no such directory"),
        (["--cohort-size", 2, "--json", "/"], "/"),
        (["--cohort-size", 2, "--colour", "red"], "--colour"),
    ],
)
def test_bad_options_get_one_sentence_and_code_2(tmp_path, monkeypatch, capsys, options, said):
    monkeypatch.chdir(tmp_path)
    assert run(*BASIC, *options) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("fedtempo: ")
    assert said in error
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"name\n", b"\xff\xfe\x00", b"samples,compute_time,upload_time\n1,1,x\n"])
def test_a_bad_file_ends_a_real_process_with_code_2_and_no_traceback(tmp_path, content):
    path = tmp_path / "fleet.csv"
    path.write_bytes(content)
    command = [sys.executable, "-m", "fedtempo", "plan", path, "--cohort-size", "2", "-o", tmp_path / "out.csv"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    assert str(path) in ended.stderr
    assert os.listdir(tmp_path) == ["fleet.csv"]


def test_if_one_output_fails_none_is_written(tmp_path):
    options = ["--cohort-size", 2, "-o", tmp_path / "plan.csv", "--json", tmp_path / "no" / "plan.json"]
    assert run(*BASIC, *options) == 2
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no full device to try")
def test_a_full_disk_is_a_failed_run(capsys):
    assert run(*BASIC, "--cohort-size", 2, "-o", "/dev/full") == 1
    assert "No space left" in capsys.readouterr().err


def test_without_matplotlib_plot_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(*BASIC, "--cohort-size", 2, "--plot", tmp_path / "plan.png") == 2
    assert "pip install 'fedtempo[report]'" in capsys.readouterr().err
