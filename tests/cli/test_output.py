"""What the command line prints and writes: no file overwritten by mistake, options named, Ctrl-C in one sentence."""

import os
import signal

import pytest

import fedtempo.cli
from fedtempo.experiments.paper.reproduce import PARTS_OF_PAPER
from fedtempo.experiments.running.processes import compute
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


@pytest.mark.parametrize("option", ["--report", "--json"])
@pytest.mark.parametrize("there", [False, True])
def test_an_output_into_a_folder_that_is_not_to_be_written_is_refused_first(
    config, tmp_path, monkeypatch, capsys, option, there
):
    folder = tmp_path / "closed"
    folder.mkdir()
    path = folder / ("page.html" if option == "--report" else "runs.json")
    if there:
        path.touch()
    allowed = os.access  # who runs the tests may be one that nothing is closed to
    monkeypatch.setattr("os.access", lambda place, mode: place != folder and allowed(place, mode))
    assert command("compare", config, "--policies", "uniform", "-o", tmp_path / "runs-of-it", option, path) == 2
    said = f"{path} must lie in a folder that can be written to, got {folder}; choose another folder"
    assert capsys.readouterr().err == f"fedtempo: {said}\n"
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
        (
            ["tune", "--policies", "uniform", "--step-sizes", 1, "--target-loss", "nan"],
            "--target-loss must be",
        ),
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
    assert command("reproduce", "--help") == 0
    shown = capsys.readouterr().out
    assert command("reproduce", "setup9") == 2
    error = capsys.readouterr().err
    assert error.startswith("fedtempo: WHAT must be one of ")
    for text in (shown, error):
        assert all(part in text for part in PARTS_OF_PAPER)


@pytest.mark.parametrize(("name", "said"), [("compare", "a TOML file"), ("report", "Folders of runs"), ("run", "TOML")])
def test_arguments_have_a_help(capsys, name, said):
    assert command(name, "--help") == 0
    assert said in capsys.readouterr().out


def test_what_stands_for_a_default_is_not_lost(capsys):
    assert command("tune", "--help") == 0
    told = capsys.readouterr().out
    assert "one that no comparison uses" in told
    assert "-1: one for each" in told


def test_ctrl_c_in_a_grid_says_how_far_it_is_and_where(config, tmp_path, monkeypatch, capsys):
    def interrupted(runs, jobs, show_end):
        compute(runs[0], os.getpid())
        raise KeyboardInterrupt

    monkeypatch.setattr("fedtempo.experiments.running.grid.run_here", interrupted)
    assert command("compare", config, "--policies", "uniform,weighted", "--seeds", 2, "-o", tmp_path / "runs") == 130
    where = tmp_path / "runs" / "small"
    assert capsys.readouterr().err == (
        f"fedtempo: interrupted; 1 of 4 runs have ended, in {where}; the same command goes on with the others\n"
    )


def test_ctrl_c_before_any_run_names_no_folder(config, tmp_path, monkeypatch, capsys):
    def interrupted(runs, jobs, show_end):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedtempo.experiments.running.grid.run_here", interrupted)
    assert command("compare", config, "--policies", "uniform", "-o", tmp_path / "runs") == 130
    assert capsys.readouterr().err == "fedtempo: interrupted; no run had begun; the same command starts them\n"
    assert not (tmp_path / "runs").exists()


def test_a_misspelt_command_is_asked_about_once(capsys):
    assert command("plam") == 2
    assert capsys.readouterr().err == "fedtempo: No such command 'plam'. Did you mean 'plan'?\n"


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
