"""`fedtempo plan` as people call it: what it prints, what it writes, what it refuses."""

import csv
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from fedtempo import optimal_cohort, optimal_sampling, read_fleet, total_time_objective
from fedtempo.cli import main
from fedtempo.planning.plan import plan_fleet, time_against_cohort
from fedtempo.planning.settings import PlanSettings
from support.paths import ROOT

EXAMPLE = ROOT / "examples" / "fleet.csv"
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
        assert row["relative_total_time"] >= 1 - 1e-12
        assert row["lower_bound"] <= row["expected_round_time"] <= row["upper_bound"]
        assert row["predicted_hours"] is None
        times = row["expected_round_time"] / policies["optimal"]["expected_round_time"]
        assert row["relative_expected_time"] == pytest.approx(row["relative_rounds"] * times)


def test_the_sensitivity_is_what_another_ratio_would_cost(tmp_path):
    fleet = read_fleet(EXAMPLE, model_megabytes=5.0)
    plan = planned(tmp_path, "--cohort-size", 4, "--beta-over-alpha", 0.5)
    q = np.array(plan["per_client"]["sampling_prob"])
    assert [case["beta_over_alpha"] for case in plan["sensitivity"]] == [0.05, 5.0]
    for case in plan["sensitivity"]:
        true = {"cohort_size": 4, "beta_over_alpha": case["beta_over_alpha"]}
        best = optimal_sampling(fleet, **true)
        excess = total_time_objective(fleet, q, **true) / total_time_objective(fleet, best, **true) - 1
        assert case["excess_time"] == pytest.approx(excess)
        assert case["moved_draws"] == pytest.approx(np.maximum(q - best, 0).sum())
        assert case["best_cohort"] is None
    from_zero = planned(tmp_path, "--cohort-size", 4, "--beta-over-alpha", 0)["sensitivity"]
    unit = fleet.importance.sum() ** 2 / 4
    assert [case["beta_over_alpha"] for case in from_zero] == pytest.approx([0.1 * unit, unit])


def test_time_against_the_cohort_size_is_the_least_of_each():
    fleet = read_fleet(EXAMPLE, model_megabytes=5.0)
    plan = plan_fleet(fleet, PlanSettings(cohort_size=4, beta_over_alpha=0.1, draws=50))
    sizes, times, best = time_against_cohort(plan)
    assert best == optimal_cohort(fleet, 0.1).cohort_size == sizes[int(times.argmin())]

    def least(size):
        q = optimal_sampling(fleet, cohort_size=size, beta_over_alpha=0.1)
        return total_time_objective(fleet, q, cohort_size=size, beta_over_alpha=0.1)

    assert times[sizes.index(best)] == pytest.approx(least(best) / least(4))


def test_a_floor_is_named_and_costs_something(tmp_path):
    plan = planned(tmp_path, "--cohort-size", 4, "--beta-over-alpha", 0.5, "--floor", 0.9)
    assert plan["policies"][0]["policy"] == "with floor"
    assert plan["policies"][0]["relative_total_time"] > 1
    assert all(case["excess_time"] > 0 for case in plan["sensitivity"])


def test_the_link_equal_has_no_bounds(tmp_path, capsys):
    plan = planned(tmp_path, "--cohort-size", 4, "--beta-over-alpha", 0.5, "--link", "equal")
    assert plan["policies"][0]["upper_bound"] is None


def test_a_known_run_may_have_had_another_cohort_size(tmp_path):
    options = ["--cohort-size", 8, "--beta-over-alpha", 0.5, "--rounds-weighted", 200]
    same, other = (planned(tmp_path, *options, *more)["policies"] for more in ([], ["--weighted-cohort", 2]))
    assert other[2]["predicted_rounds"] < same[2]["predicted_rounds"] == pytest.approx(200)


def test_what_should_make_a_planner_think_is_said(tmp_path, capsys):
    planned(tmp_path, "--cohort-size", 5, "--beta-over-alpha", 100)
    said = capsys.readouterr().err
    assert "% of the draws: β/α = 100 is large" in said
    planned(tmp_path, "--cohort-size", 50, "--beta-over-alpha", 0)
    assert "of 50 draws only" in capsys.readouterr().err


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_narrow_terminal_loses_columns_but_no_digits(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(*BASIC, "--cohort-size", 4, "--beta-over-alpha", 0.5, "--rounds-weighted", 200) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    assert "…" not in out


def test_names_are_shown_as_they_are(tmp_path, capsys):
    path = tmp_path / "fleet.csv"
    path.write_text("name,samples,compute_time,upload_time\na[/b]c,1,1,1\n[red]x[/red],1,1,2\n:smile:\x1b[2J,1,1,2\n")
    assert run(path, "--cohort-size", 2) == 0
    out = capsys.readouterr().out
    for name in ("a[/b]c", "[red]x[/red]", ":smile:?[2J"):
        assert name in out


def test_output_that_cannot_show_greek_still_comes(tmp_path):
    command = [sys.executable, "-m", "fedtempo", "plan", *BASIC, "--cohort-size", "2"]
    for encoding in ("ascii", "cp1252"):
        environment = os.environ | {"PYTHONIOENCODING": encoding}
        ended = subprocess.run(command, capture_output=True, check=False, env=environment)
        assert ended.returncode == 0, ended.stderr
        assert b"optimal" in ended.stdout


def test_a_reader_that_leaves_hears_nothing():
    command = f"{sys.executable} -m fedtempo plan {' '.join(BASIC)} --cohort-size 2 --beta-over-alpha 1 | true"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert ended.stderr == b""


def test_ctrl_c_says_so_and_writes_nothing(tmp_path):
    path = tmp_path / "fleet.csv"
    path.write_text("samples,compute_time,upload_time\n" + "1,1,1\n" * 50)
    options = ["--cohort-size", "3000", "--draws", "1000000", "-o", tmp_path / "out.csv"]
    command = [sys.executable, "-m", "fedtempo", "plan", path, *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert "gradient_bound" in process.stderr.readline()  # the fleet has been read, the long work begins
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.splitlines()[-1].startswith("fedtempo: interrupted")
    assert os.listdir(tmp_path) == ["fleet.csv"]


def test_without_a_command_the_help_is_shown(capsys):
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0
    assert "plan" in capsys.readouterr().out


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
    "options", [["--link", "shared"], ["--link", "equal"], ["--duplicates", "physical"], ["--floor", 0.3]]
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
        (["--cohort-size", 2, "--max-cohort", 3], "--max-cohort must go with"),
        (["--cohort-size", 0], "--cohort-size must be a whole number of at least 1, got 0"),
        (["--cohort-size", 10**11], "--cohort-size must be at most 1,000,000"),
        (["--cohort-size", 2, "--draws", 1], "--draws must lie between 2"),
        (["--cohort-size", 2, "-o", "same", "--json", "same"], "must differ"),
        (["--cohort-size", 2, "--model-size", 0], "--model-size must be positive"),
        (["--cohort-size", -3], "got -3"),
        (["--cohort-size", "four"], "'four' is not a valid"),
        (["--cohort-size", 2, "--beta-over-alpha", -1], "--beta-over-alpha must be zero or positive"),
        (["--cohort-size", 2, "--beta-over-alpha", "nan"], "--beta-over-alpha"),
        (["--cohort-size", 2, "--beta-over-alpha", "inf"], "--beta-over-alpha"),
        (["--optimise-cohort", "--beta-over-alpha", 0], "--max-cohort must be given for --beta-over-alpha 0"),
        (["--optimise-cohort", "--beta-over-alpha", 1, "--max-cohort", 0], "--max-cohort"),
        (["--cohort-size", 2, "--floor", 2], "--floor must lie between 0 and 1"),
        (["--cohort-size", 2, "--rounds-weighted", 0], "--rounds-weighted must be positive"),
        (["--cohort-size", 2, "--draws", 0], "--draws must be"),
        (["--cohort-size", 2, "--seed", -1], "--seed must be"),
        (["--cohort-size", 2, "--link", "wired"], "wired"),
        (["--cohort-size", 2, "--total-bandwidth", 0], "--total-bandwidth must be positive"),
        (["--cohort-size", 2, "--plot", "plan.doc"], "--plot must end in .png, .pdf or .svg"),
        (["--cohort-size", 2, "-o", "no/such/folder.csv"], "no such directory"),
        (["--cohort-size", 2, "--json", "/"], "/"),
        (["--cohort-size", 2, "--colour", "red"], "--colour"),
    ],
)
def test_bad_options_get_one_sentence_and_code_2(tmp_path, monkeypatch, capsys, options, said):
    monkeypatch.chdir(tmp_path)
    assert run(*BASIC, *options) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("fedtempo: ")
    assert said in error
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_not_there_is_said_first(tmp_path, capsys):
    for options in ([], ["--cohort-size", 0], ["--cohort-size", 2]):
        assert run(tmp_path / "none.csv", *options) == 2
        assert capsys.readouterr().err == f"fedtempo: {tmp_path / 'none.csv'}: No such file or directory\n"


def test_the_fleet_is_not_overwritten(tmp_path, capsys):
    path = tmp_path / "fleet.csv"
    path.write_bytes(EXAMPLE.read_bytes())
    assert run(path, "--model-size", 5, "--cohort-size", 2, "-o", path) == 2
    assert "must not be the fleet's own file" in capsys.readouterr().err
    assert path.read_bytes() == EXAMPLE.read_bytes()


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
    said = "fedtempo: /dev/full: No space left on device; once there is room, the same command goes on\n"
    assert capsys.readouterr().err.endswith(said)


def test_without_matplotlib_plot_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(*BASIC, "--cohort-size", 2, "--plot", tmp_path / "plan.png") == 2
    assert "pip install 'fedtempo[report]'" in capsys.readouterr().err
