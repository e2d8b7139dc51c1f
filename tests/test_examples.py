"""The scripts that users start from: they run, they are short, and a killed comparison goes on to the byte."""

import os
import signal
import subprocess
import sys
import time

import nbformat
import pytest
from nbclient import NotebookClient

from support.paths import ROOT

SCRIPTS = {"digits": 25, "own_sampler": 40, "own_data": 40, "own_model": 40, "own_loss": 40}  # and lines at most

pytest.importorskip("sklearn")
pytest.importorskip("torch")


def start(name, folder):
    folder.mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    script = ROOT / "examples" / f"{name}.py"
    return subprocess.Popen(
        [sys.executable, script], cwd=folder, env=environment, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process):
    shown, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return shown


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in SCRIPTS if name != "digits"])
def test_examples_run(name, tmp_path):
    shown = finish(start(name, tmp_path))
    assert not any(word in shown for word in ("FAILS", "diverged", "not reached"))
    assert "|---" in shown


@pytest.mark.parametrize("name", SCRIPTS)
def test_examples_are_short(name):
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) <= SCRIPTS[name]


def test_a_comparison_that_is_killed_half_way_ends_with_the_same_bytes(tmp_path):
    shown = finish(start("digits", tmp_path / "whole"))
    killed = start("digits", tmp_path / "killed")
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "killed").rglob("records.jsonl"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert not (tmp_path / "killed" / "digits.html").exists(), "it was killed too late"
    assert finish(start("digits", tmp_path / "killed")) == shown
    assert "| mine |" in shown
    whole, gone_on = (
        {
            path.relative_to(root): path.read_bytes()
            for name in ("records.jsonl", "digits.html", "digits.png")
            for path in root.rglob(name)
        }
        for root in (tmp_path / "whole", tmp_path / "killed")
    )
    assert len(whole) == 11
    assert whole == gone_on


class Listening(NotebookClient):
    """A notebook that keeps every message of its kernel."""

    def __init__(self, *given, **settings):
        super().__init__(*given, **settings)
        self.messages = []

    def process_message(self, message, cell, cell_index):
        self.messages.append(message)
        return super().process_message(message, cell, cell_index)


def run_notebook(notebook, folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    listening = Listening(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    listening.execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return outputs, [message["content"] for message in listening.messages if "display" in message["msg_type"]]


@pytest.mark.slow
def test_a_notebook_shows_the_comparison_and_how_it_gets_on(tmp_path, monkeypatch):
    notebook = nbformat.read(ROOT / "examples" / "compare.ipynb", as_version=4)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert sum(len(source.splitlines()) for source in code) <= 40
    assert not any(cell.outputs for cell in notebook.cells if cell.cell_type == "code"), "it is kept without results"
    outputs, displays = run_notebook(notebook, tmp_path, monkeypatch)
    assert [output for output in outputs if output.output_type == "stream"] == [], "nothing but results is left"
    shown = [output.data for output in outputs]
    assert any("<table" in data.get("text/html", "") and "mine" in data["text/html"] for data in shown)
    assert any("image/png" in data for data in shown), "the figure is a picture"
    bars = [content["data"]["text/html"] for content in displays if "text/html" in content["data"]]
    assert any("<progress" in bar and "of 9 runs ended" in bar for bar in bars)
    assert bars[-1] == "", "the bar is gone at the end"
    assert len(list((tmp_path / "runs" / "notebook").rglob("records.jsonl"))) == 9
