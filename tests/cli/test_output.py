"""What the command line prints and writes: no file overwritten by mistake, and how far a grid is."""

import re
import signal
import time
from io import StringIO

import pytest
from rich.console import Console

import fedtempo.cli
from fedtempo.cli import studies
from fedtempo.experiments import display, grid, reproduce
from fedtempo.experiments.config import read_experiment
from fedtempo.experiments.grid import Job
from support.runs import SMALL, command


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL.replace("max_rounds = 6", "max_rounds = 6\ntarget_loss = 2.0"))
    return path


@pytest.mark.parametrize(
    ("option", "name", "rule"),
    [("--report", "README.md", ".html or .htm"), ("--json", "runs.html", ".json"), ("--json", "runs", ".json")],
)
def test_an_output_must_end_as_such_files_do(config, tmp_path, capsys, option, name, rule):
    (tmp_path / name).write_text("mine")
    arguments = ["--policies", "uniform", "-o", tmp_path / "runs-of-it", option, tmp_path / name]
    assert command("compare", config, *arguments) == 2
    assert capsys.readouterr().err == f"fedtempo: {option} must be a file that ends in {rule}, got {tmp_path / name}\n"
    assert (tmp_path / name).read_text() == "mine"
    assert not (tmp_path / "runs-of-it").exists(), "nothing was run"


def test_a_report_goes_to_an_html_file_alone(tmp_path, capsys):
    (tmp_path / "README.md").write_text("mine")
    assert command("report", tmp_path, "-o", tmp_path / "README.md") == 2
    assert "--output must be a file that ends in .html or .htm" in capsys.readouterr().err
    assert (tmp_path / "README.md").read_text() == "mine"
    assert command("report", tmp_path, "-o", tmp_path) == 2
    assert "must be a file, got a folder" in capsys.readouterr().err


def test_a_configuration_is_not_called_a_fleet(config, tmp_path, capsys):
    (tmp_path / "same.json").symlink_to(config)
    assert command("compare", config, "--policies", "uniform", "--json", tmp_path / "same.json") == 2
    assert "must not be the experiment's own file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "--policies", "uniform", "--time-limit", -1], "--time-limit must be positive"),
        (["compare", "--policies", "uniform", "--target-accuracy", 70], "--target-accuracy must lie between 0 and 1"),
        (["compare", "--policies", "uniform weighted"], "got 'uniform weighted'; write uniform,weighted"),
        (["run", "--policy", "uniform", "--max-rounds", 0], "--max-rounds must be a whole number of at least 1"),
        (["tune", "--policies", "uniform", "--step-sizes", 1, "--target-loss", 0], "--target-loss must be positive"),
    ],
)
def test_a_wrong_option_is_named(config, capsys, arguments, said):
    name, *options = arguments
    assert command(name, config, *options) == 2
    assert said in capsys.readouterr().err


def test_a_channel_of_traces_needs_traces(capsys):
    pytest.importorskip("matplotlib")
    assert command("leaderboard", "--channels", "traces") == 2
    assert (
        "--traces must be a folder with .up or .csv files for the channel traces, got none" in capsys.readouterr().err
    )


def test_help_and_error_say_what_can_be_reproduced(capsys):
    assert [*reproduce.PARTS, "all"] == list(studies.PARTS)
    assert command("reproduce", "--help") == 0
    told = capsys.readouterr().out
    assert command("reproduce", "setup9") == 2
    for text in (told, capsys.readouterr().err):
        assert all(part in text for part in studies.PARTS)


@pytest.mark.parametrize(("name", "said"), [("compare", "a TOML file"), ("report", "Folders of runs"), ("run", "TOML")])
def test_arguments_have_a_help(capsys, name, said):
    assert command(name, "--help") == 0
    assert said in capsys.readouterr().out


def test_what_stands_for_a_default_is_not_lost(capsys):
    assert command("tune", "--help") == 0
    told = capsys.readouterr().out
    assert "one that no comparison uses" in told
    assert "-1: one for each" in told


def test_the_rest_takes_as_long_as_those_that_have_ended():
    assert display.times_said(12, 60, 0, 240.0) == "4 min; about 16 min to go"
    assert display.times_said(31, 60, 30, 90.0) == "90 s; about 44 min to go", "what had ended before took no time"
    assert display.times_said(30, 60, 30, 90.0) == "90 s"
    assert display.times_said(60, 60, 30, 20000.0) == "5 h 33 min"


def jobs_of(config, root, **over):
    experiment, table = read_experiment(config, over=over)
    return [Job(experiment, table, "uniform", seed, root) for seed in (0, 1)]


def test_without_a_terminal_a_line_is_printed_now_and_then(config, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(display, "POLL_SECONDS", 0.01)
    jobs = jobs_of(config, tmp_path / "runs")
    with display.grid_progress("small", jobs):
        time.sleep(0.1)
    assert capsys.readouterr().err == "", "not before the first minute is over"
    monkeypatch.setattr(display, "LINE_SECONDS", 0.05)
    with display.grid_progress("small", jobs):
        jobs[0].run()
        time.sleep(0.3)
    captured = capsys.readouterr()
    assert re.fullmatch(r"small: 1 of 2 runs have ended, \d+ s; about \d+ s to go", captured.err.splitlines()[-1])
    assert captured.out == ""


def test_runs_of_one_policy_and_seed_are_told_apart(config, tmp_path):
    one, other = jobs_of(config, tmp_path)[0], jobs_of(config, tmp_path, training={"cohort_size": 4})[0]
    names = display._Names([one, other, *jobs_of(config, tmp_path)[1:]])
    assert (names.of(one), names.of(other)) == ("uniform 0, cohort_size 3", "uniform 0, cohort_size 4")
    assert names.of(jobs_of(config, tmp_path)[1]) == "uniform 1"


def test_the_bar_and_the_times_fit_eighty_columns():
    terminal = Console(width=80, file=StringIO())
    bar = display._Progress(terminal, display.TextColumn("{task.fields[said]}"))
    said = "120 of 600 runs, 9 h 05 min; about 9 h 05 min to go"
    bar.add_task("A name as long as a name can be", total=9, said=said)
    bar.below = "uniform 0: round 9 loss 1.234; " * 9
    terminal.print(bar.get_renderable())
    lines = terminal.file.getvalue().splitlines()
    assert lines[0].rstrip().endswith(said)
    assert [len(line) <= 80 for line in lines] == [True, True]
    assert lines[1].endswith("…")


def test_ctrl_c_in_a_grid_says_how_far_it_is_and_where(config, tmp_path, monkeypatch, capsys):
    def interrupted(jobs, **how):
        jobs[0].run()
        raise KeyboardInterrupt

    monkeypatch.setattr(grid, "run_grid", interrupted)
    assert command("compare", config, "--policies", "uniform,weighted", "--seeds", 2, "-o", tmp_path / "runs") == 130
    where = tmp_path / "runs" / "small" / "paper"
    assert capsys.readouterr().err == (
        f"fedtempo: interrupted; 1 of 4 runs have ended, in {where}; the same command goes on with the others\n"
    )


def test_ctrl_c_at_the_very_end_is_one_sentence_too(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(fedtempo.cli, "_end_workers", interrupted)
    assert command("policies") == 130
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert capsys.readouterr().err.startswith("fedtempo: interrupted")


def test_no_worker_is_left_when_a_command_ends(config, tmp_path):
    psutil = pytest.importorskip("psutil")
    arguments = ["--policies", "uniform", "--seeds", 2, "--jobs", 2, "-o", tmp_path / "runs"]
    assert command("compare", config, *arguments) == 0
    workers = [one for one in psutil.Process().children(recursive=True) if "popen_loky" in " ".join(one.cmdline())]
    assert workers == []
