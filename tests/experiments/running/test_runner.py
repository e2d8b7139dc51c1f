"""Runs and their records: equal bytes for equal runs, also after a kill, and what the header tells."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.engine.divergence import DivergedError
from fedtempo.engine.records import RECORDS, read_header, read_records
from fedtempo.engine.run_folder import CHECKPOINT, LOCK
from fedtempo.experiments.running import provenance
from fedtempo.experiments.running.problem import problem_of
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.policies.builtin import BUILT_IN
from support.marks import slow_after
from support.runs import SMALL, UPLOAD, command, run_file


@pytest.mark.parametrize("policy", slow_after(1, ["uniform", "proposed"]))
def test_a_run_killed_at_random_ends_with_the_same_bytes(config, tmp_path, policy):
    config.write_text(config.read_text().replace("max_rounds = 6", "max_rounds = 400"))
    shown = [sys.executable, "-c", KILLABLE, config, policy]
    subprocess.run([*shown, tmp_path / "whole"], check=True)
    whole = (tmp_path / "whole" / RECORDS).read_bytes()
    rng, kills = np.random.default_rng(0), 0
    for _ in range(40):
        process = subprocess.Popen([*shown, tmp_path / "killed"])
        deadline, size = time.monotonic() + 60, -1
        grow = int(rng.integers(1, 60_000))
        begun = (tmp_path / "killed" / RECORDS).stat().st_size if (tmp_path / "killed" / RECORDS).exists() else 0
        while process.poll() is None and time.monotonic() < deadline:
            size = (tmp_path / "killed" / RECORDS).stat().st_size if (tmp_path / "killed" / RECORDS).exists() else 0
            if size > begun + grow:
                break
            time.sleep(0.005)
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        if kills == 4:
            subprocess.run([*shown, tmp_path / "killed"], check=True)
            break
    assert kills >= 2
    assert (tmp_path / "killed" / RECORDS).read_bytes() == whole
    assert set(os.listdir(tmp_path / "killed")) <= {RECORDS, CHECKPOINT, LOCK}


KILLABLE = """
import sys
from dataclasses import replace
from pathlib import Path
from fedtempo.engine import run
from fedtempo.experiments.running import runner
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.experiments.running.planned import plan_run
run.CHECKPOINT_SECONDS = 0.02
runner.run(plan_run(load_experiment(sys.argv[1]), sys.argv[2], 0, Path(sys.argv[3])))
"""


@pytest.mark.parametrize("where", ["train", "evaluate", "plan", "observe"])
def test_ctrl_c_keeps_a_checkpoint_and_the_run_goes_on(config, tmp_path, monkeypatch, where):
    from fedtempo.learning.softmax import SoftmaxTrainer
    from fedtempo.policies.proposed import PilotedSampling

    run_file(config, tmp_path / "whole", "proposed")
    owner = SoftmaxTrainer if where in ("train", "evaluate") else PilotedSampling
    plain, calls = getattr(owner, where), []

    def interrupted(*arguments):
        calls.append(where)
        if len(calls) in stops:
            signal.raise_signal(signal.SIGINT)
        return plain(*arguments)

    monkeypatch.setattr(owner, where, interrupted)
    for first in (2, 4, 6, 7, 9):
        stops = {len(calls) + first}
        folder = tmp_path / f"stopped{first}"
        with pytest.raises(KeyboardInterrupt):
            run_file(config, folder, "proposed")
        assert (folder / CHECKPOINT).exists()
        begun = len(read_records(folder / RECORDS).rounds)
        seen, stops = [], set()
        run_file(config, folder, "proposed", progress=lambda loop, record, seen=seen: seen.append(record))
        assert (folder / RECORDS).read_bytes() == (tmp_path / "whole" / RECORDS).read_bytes()
        assert begun + len(seen) == len(read_records(folder / RECORDS).rounds), "no round is run twice"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_stops_at_once_and_the_run_goes_on_from_the_last_checkpoint(config, tmp_path, monkeypatch):
    from fedtempo.learning.softmax import SoftmaxTrainer

    run_file(config, tmp_path / "whole", "proposed")
    plain, calls = SoftmaxTrainer.train, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 5:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return plain(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(SoftmaxTrainer, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_file(config, tmp_path / "stopped", "proposed")
    run_file(config, tmp_path / "stopped", "proposed")
    assert (tmp_path / "stopped" / RECORDS).read_bytes() == (tmp_path / "whole" / RECORDS).read_bytes()


@pytest.mark.parametrize(("training", "end"), [({}, "max_rounds"), ({"step_size": 1e6}, "diverged")])
def test_ctrl_c_in_the_last_round_lets_the_run_end(config, tmp_path, monkeypatch, training, end):
    from fedtempo.learning.softmax import SoftmaxTrainer

    over = {"training": training}
    plain, calls, stops = SoftmaxTrainer.train, [], set()

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) in stops:
            signal.raise_signal(signal.SIGINT)
        return plain(*arguments)

    monkeypatch.setattr(SoftmaxTrainer, "train", interrupted)
    with suppress(DivergedError):
        run_file(config, tmp_path / "whole", over=over)
    stops.add(2 * len(calls))
    with pytest.raises(KeyboardInterrupt):
        run_file(config, tmp_path / "out", over=over)
    assert (tmp_path / "out" / RECORDS).read_bytes() == (tmp_path / "whole" / RECORDS).read_bytes()
    assert read_records(tmp_path / "out" / RECORDS).summary.end == end


def test_a_policy_without_state_starts_again(config, tmp_path, monkeypatch):
    from fedtempo.policies.entry import Entry
    from fedtempo.policies.foreign import adopt
    from fedtempo.policies.policy import RoundPlan

    class Counting:
        def __init__(self, setting):
            self.rounds = 0

        def plan(self, context):
            self.rounds += 1
            return RoundPlan(members=[self.rounds % 3], weights=[1.0])

        def observe(self, report):
            pass

    counting = Entry(description="counts", make=lambda setting: adopt(Counting(setting)))
    monkeypatch.setitem(BUILT_IN, "counting", counting)
    monkeypatch.setattr("fedtempo.engine.run.CHECKPOINT_SECONDS", 0.0)
    run_file(config, tmp_path / "whole", "counting")

    def stop(loop, record):
        if loop.state.rounds_done == 3:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        run_file(config, tmp_path / "stopped", "counting", progress=stop)
    run_file(config, tmp_path / "stopped", "counting")
    assert (tmp_path / "stopped" / RECORDS).read_bytes() == (tmp_path / "whole" / RECORDS).read_bytes()


def test_a_half_written_line_is_passed_over(config, tmp_path):
    run_file(config, tmp_path / "a")
    whole = (tmp_path / "a" / RECORDS).read_bytes()
    for length in (10, len(whole) // 2, len(whole) - 3):
        folder = tmp_path / f"cut{length}"
        folder.mkdir()
        (folder / RECORDS).write_bytes(whole[:length])
        run_file(config, folder)
        assert (folder / RECORDS).read_bytes() == whole


def test_the_number_of_threads_does_not_change_a_byte(config, tmp_path):
    for threads in ("1", "2"):
        environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
        shown = [sys.executable, "-m", "fedtempo", "run", config, "--policy", "weighted", "-o", tmp_path / threads]
        subprocess.run(shown, check=True, env=environment, capture_output=True)
    assert (tmp_path / "1" / RECORDS).read_bytes() == (tmp_path / "2" / RECORDS).read_bytes()


def test_changing_channels_run(config, tmp_path):
    (tmp_path / "rate.csv").write_text("time,mbps\n0,1\n5,10\n9,0.5\n")
    for channel in (
        '[channel]\nkind = "fading"\npresent_share = 0.7',
        '[channel]\nkind = "traces"\ntraces = ["rate.csv"]',
    ):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        text = SMALL.replace(UPLOAD, "") if "traces" in channel else SMALL
        config.write_text(text.replace("[stop]", f"{channel}\n[stop]"))
        assert command("run", config, "--policy", "weighted", "-o", tmp_path / "out") == 0
        rounds = read_records(tmp_path / "out" / RECORDS).rounds
        times = [dict(zip(r.members, r.upload_time, strict=True)) for r in rounds]
        seen = [t for values in times for i, t in values.items() if i == rounds[0].members[0] and t is not None]
        assert len(rounds) == 6
        assert len(set(seen)) > 1


def test_model_bits_turn_into_upload_seconds(config):
    text = SMALL.replace(
        'upload = { kind = "uniform", low = 0.2, high = 2.0 }', 'uplink_mbps = { kind = "constant", value = 2.0 }'
    )
    config.write_text(text)
    experiment = load_experiment(config)
    np.testing.assert_allclose(problem_of(experiment).fleet.upload_time, 610 * 32 / 2e6)
    np.testing.assert_allclose(problem_of(experiment, model_bits=4e6).fleet.upload_time, 2.0)
    assert problem_of(load_experiment(config)) is problem_of(experiment), "runs in one process share it"


@pytest.mark.parametrize("device", ["cuda:99", "gpu", "xla"])
def test_a_device_that_torch_does_not_have_is_refused(config, device):
    pytest.importorskip("torch")
    config.write_text(SMALL.replace('kind = "softmax"', f'kind = "lenet5"\ndevice = "{device}"'))
    with pytest.raises(InputError, match=f"model.device must be one that torch has .* got '{device}'") as caught:
        problem_of(load_experiment(config))
    assert "\n" not in str(caught.value)


def test_over_traces_the_nominal_upload_takes_the_mean_rate_of_the_clients_own(config, tmp_path):
    rates = {"slow.csv": 0.5, "fast.csv": 8.0}
    for name, rate in rates.items():
        (tmp_path / name).write_text(f"time,mbps\n0,{rate}\n5,{rate}\n")
    config.write_text(SMALL.replace(UPLOAD, f'[channel]\nkind = "traces"\ntraces = {json.dumps(list(rates))}'))
    problem = problem_of(load_experiment(config))
    nominal = problem.fleet.upload_time
    assert set(nominal) == {610 * 32 / (1e6 * rate) for rate in rates.values()}
    np.testing.assert_allclose(problem.channel.at(0, 1.0).upload_time, nominal)
    (tmp_path / "slow.csv").write_text("time,mbps\n0,0.25\n50,0.25\n")
    changed = problem_of(load_experiment(config)).fleet.upload_time
    assert changed.max() == 2 * nominal.max(), "a file that changes is read again"


def test_the_header_names_the_preset(config, tmp_path):
    for preset in ("paper", "best"):
        assert command("run", config, "--policy", "uniform", "--preset", preset, "-o", tmp_path / preset) == 0
        header = read_header(tmp_path / preset / RECORDS)
        assert header.preset == preset
        assert "preset" not in header.config


def test_records_of_before_are_gone_on_with_under_other_names_of_settings(config, tmp_path):
    """They named no format, and settings by the names that these had then."""
    config.write_text(SMALL + '[channel]\nkind = "fading"\ntold = false\n')
    run_file(config, tmp_path / "out")
    lines = (tmp_path / "out" / RECORDS).read_bytes().splitlines(keepends=True)
    first = json.loads(lines[0])
    assert first["header"]["config"]["channel"] == {"kind": "fading", "times_known": False}
    del first["header"]["format"]
    first["header"]["config"]["channel"] = {"kind": "fading", "told": False}
    (tmp_path / "out" / RECORDS).write_bytes(json.dumps(first).encode() + b"\n" + b"".join(lines[1:]))
    assert run_file(config, tmp_path / "out").end == "max_rounds"
    (tmp_path / "out" / RECORDS).write_bytes(json.dumps(first).encode() + b"\n" + b"".join(lines[1:4]))
    assert run_file(config, tmp_path / "out").rounds == 6
    assert (tmp_path / "out" / RECORDS).read_bytes().splitlines(keepends=True)[1:] == lines[1:]
    config.write_text(SMALL + '[channel]\nkind = "fading"\n')
    with pytest.raises(InputError, match=r"config.channel.times_known: False there, True here"):
        run_file(config, tmp_path / "out")


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not on the PATH")
def test_the_commit_is_that_of_the_package_alone(tmp_path, monkeypatch):
    def commit_of(root):
        code = root / "fedtempo" / "experiments" / "running" / "provenance.py"
        code.parent.mkdir(parents=True, exist_ok=True)
        code.touch()
        monkeypatch.setattr(provenance, "__file__", str(code))
        return provenance._commit()

    assert commit_of(tmp_path / "nowhere") is None
    git(tmp_path, "init")
    commit_of(tmp_path)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    assert len(commit_of(tmp_path)) == 40
    (tmp_path / "notes.txt").write_text("not code")
    assert len(commit_of(tmp_path)) == 40
    (tmp_path / "fedtempo" / "more.py").write_text("changed = True")
    assert commit_of(tmp_path)[40:] == "+"
    assert commit_of(tmp_path / ".venv" / "lib" / "site-packages") is None, "this is the HEAD of whoever installed it"
