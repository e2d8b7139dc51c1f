"""ClientApps as forks of one process."""

import json
import subprocess
import sys

TASK = {"address": "127.0.0.1:9", "root_certificates": None, "insecure": True, "parent": None}


def test_each_line_is_a_fork_that_exits_by_itself(tmp_path):
    """With a standard input of its own and, for what apps start in turn, the usual ways to wait for children."""
    program = f"""
import subprocess, sys
from fedtempo.flower.testbed import forks
def run(task):
    started = [sys.executable, "-c", "import sys; raise SystemExit(7 + len(sys.stdin.read()))"]
    assert subprocess.run(started).returncode == 7
    with open({str(tmp_path / "tokens")!r}, "a") as tokens:
        tokens.write(task.token + sys.stdin.read() + "\\n")
    sys.exit(0)
forks.run_client_program, forks.load_kernels = run, lambda: None
forks.serve()
"""
    tasks = [TASK | {"token": token} for token in ("one", "two", "three")]
    lines = "".join(json.dumps(task) + "\n" for task in tasks)
    done = subprocess.run([sys.executable, "-c", program], input=lines, text=True, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    # `run` returns when all who hold its pipes have ended, the forks among them
    assert sorted((tmp_path / "tokens").read_text().split()) == ["one", "three", "two"]
