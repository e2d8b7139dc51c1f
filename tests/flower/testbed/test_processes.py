import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

pytest.importorskip("flwr", reason="flwr is not installed; it comes with fedtempo[flower]")

from cryptography import x509

from fedtempo.checks import InputError
from fedtempo.flower.credentials import make_credentials, make_node_key
from fedtempo.flower.testbed.processes import RefusedError, SuperLink, SuperNode, free_port
from fedtempo.flower.testbed.watched import MARK, FlowerProcess, ProcessError, stop_all

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="watchers need pidfd_open, which Linux alone has")

# A parent whose child has a session of its own and ignores whatever can be ignored, as Flower's executors may.
FAMILY = """
import signal, subprocess, sys, time
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(99)"
subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
time.sleep({parent_lives})
"""


class Script(FlowerProcess):
    """A Python script in the place of a Flower process."""

    def __init__(self, folder: Path, script: str):
        super().__init__("script", folder, prefix=(), environment=None)
        self.script = script

    def _command(self) -> list[str]:
        return [sys.executable, "-c", self.script]


def marked(mark: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def wait_until_none(mark: str, timeout: float = 10) -> None:
    deadline = time.monotonic() + timeout
    while left := marked(mark):
        assert time.monotonic() < deadline, f"{left} are left behind"
        time.sleep(0.05)


def test_credentials_are_private_and_the_server_certificate_is_the_authoritys(tmp_path):
    made = make_credentials(tmp_path / "keys", 2, hosts=("127.0.0.1", "fl.example.org"), valid_days=2)

    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    files = list((tmp_path / "keys").iterdir())
    assert len(files) == 3 + 2 * 2  # the authority's own key is not among them
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    authority = x509.load_pem_x509_certificate(made.ca_certificate.read_bytes())
    server = x509.load_pem_x509_certificate(made.server_certificate.read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["127.0.0.1", "fl.example.org"]
    assert abs(server.not_valid_after_utc - datetime.now(UTC) - timedelta(days=2)) < timedelta(minutes=1)
    assert made.node_keys[0].public.read_bytes() != made.node_keys[1].public.read_bytes()


@pytest.mark.parametrize("hosts", [(), ("",), ("127.0.0.1:8000",), ("https://fl.example.org",)])
def test_hosts_that_no_certificate_can_name_are_refused(tmp_path, hosts):
    with pytest.raises(InputError, match="hosts must"):
        make_credentials(tmp_path, 1, hosts=hosts)


def test_credentials_are_never_overwritten(tmp_path):
    make_credentials(tmp_path, 1)
    with pytest.raises(InputError, match="must be empty"):
        make_credentials(tmp_path, 1)


def test_stop_ends_the_whole_family(tmp_path):
    process = Script(tmp_path, FAMILY.format(parent_lives=99))
    with process:
        process._wait_for_line("ready", 20)
        mark = process._mark
        assert len(marked(mark)) >= 2
    assert marked(mark) == []
    assert not process.running


def test_an_interrupt_ends_the_whole_family(tmp_path):
    process = Script(tmp_path, FAMILY.format(parent_lives=99))

    def interrupted() -> None:
        with process:
            process._wait_for_line("ready", 20)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert marked(process._mark) == []


@ON_LINUX
def test_orphans_end_with_the_process_that_left_them(tmp_path):
    process = Script(tmp_path, FAMILY.format(parent_lives=0))
    process.start()
    mark = process._mark
    try:
        wait_until_none(mark)
    finally:
        process.stop()


def test_who_starts_a_process_again_waits_for_the_one_who_kills_it(tmp_path):
    script = "import time; print('ready', flush=True); time.sleep(99)"
    with Script(tmp_path, script) as process:
        for _ in range(5):
            process._wait_for_line("ready", 30)
            killing = threading.Thread(target=process.kill)
            killing.start()
            while process.running:
                time.sleep(0.001)
            process.start()
            killing.join()
            time.sleep(0.1)
            assert process.running


@ON_LINUX
def test_the_whole_family_ends_when_its_caller_is_killed(tmp_path):
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER, str(tmp_path), FAMILY.format(parent_lives=99)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )
    with caller:
        mark = caller.stdout.readline().decode().strip()
        assert len(marked(mark)) >= 2
        caller.send_signal(signal.SIGKILL)
    wait_until_none(mark)


CALLER = """
import sys, time
from pathlib import Path
from test_flower_processes import Script
process = Script(Path(sys.argv[1]), sys.argv[2])
process.start()
process._wait_for_line("ready", 30)
print(process._mark, flush=True)
time.sleep(99)
"""


def test_errors_quote_the_end_of_the_log(tmp_path):
    with Script(tmp_path, "print('first'); print('the reason'); raise SystemExit(3)") as process:
        with pytest.raises(ProcessError, match=r"ended with code 3 before it was ready(.|\n)*\| the reason"):
            process._wait_for_line("ready", 20)
        process.script = "import time; print('slow', flush=True); time.sleep(99)"
        process.start()
        process._wait_for_line("slow", 20)
        with pytest.raises(ProcessError, match=r"not ready after 0.2 s(.|\n)*\| slow") as raised:
            process._wait_for_line("ready", 0.2)
        assert "the reason" not in str(raised.value)  # that was before the last start


def test_a_missing_program_is_named(tmp_path):
    process = Script(tmp_path, "")
    process._prefix = ("no-such-program",)
    with process, pytest.raises(ProcessError, match="no-such-program cannot be started: No such file"):
        process._wait_for_line("ready", 20)


def test_a_port_that_is_taken_meanwhile_is_replaced(tmp_path):
    class Server(Script):
        port = 0

        def _command(self) -> list[str]:
            self.script = f"print('address already in use' if {self.port} == 0 else 'listening')"
            return super()._command()

        def _take_other_port(self) -> bool:
            self.port = free_port("127.0.0.1")
            return True

    with Server(tmp_path, "") as server:
        server._start_until_ready("listening", 20)
        assert server.port > 0


@pytest.mark.parametrize("address", ["", ":8000", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:70000", "0.0.0.0:8000"])
def test_addresses_that_no_node_can_reach_are_refused(tmp_path, address):
    with pytest.raises(InputError, match="address must"):
        SuperLink(tmp_path / "run", address, make_credentials(tmp_path / "keys", 1))


SERVER_APP = """
import time
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()

@app.main()
def main(grid, context):
    for number in range(1, context.run_config["rounds"] + 1):
        content = RecordDict({"task": ConfigRecord({"number": number})})
        asked = [Message(content, node, "train", group_id=str(number)) for node in grid.get_node_ids()]
        waiting = set(grid.push_messages(asked))
        while waiting:
            time.sleep(1)
            for reply in grid.pull_messages(waiting):
                waiting.discard(reply.metadata.reply_to_message_id)
                print("reply", number, reply.metadata.src_node_id, dict(reply.content["answer"]), flush=True)
"""

CLIENT_APP = """
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

@app.train()
def train(message, context):
    answer = {"part": context.node_config["partition-id"], "twice": 2 * message.content["task"]["number"]}
    return Message(RecordDict({"answer": ConfigRecord(answer)}), reply_to=message)
"""

PROJECT = """
[project]
name = "tiny"
version = "1.0.0"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "fedtempo"

[tool.flwr.app.components]
serverapp = "tiny.server_app:app"
clientapp = "tiny.client_app:app"

[tool.flwr.app.config]
rounds = 1
"""


def write_app(folder: Path) -> Path:
    (folder / "tiny").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(textwrap.dedent(PROJECT))
    (folder / "tiny" / "__init__.py").write_text("")
    (folder / "tiny" / "server_app.py").write_text(SERVER_APP)
    (folder / "tiny" / "client_app.py").write_text(CLIENT_APP)
    return folder


def test_a_federation_of_three_lets_in_no_stranger_runs_an_app_and_leaves_nothing_behind(tmp_path):
    keys = make_credentials(tmp_path / "keys", 3)
    stranger = make_node_key(tmp_path / "keys" / "stranger")
    quick = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
    with ExitStack() as stack:
        link = stack.enter_context(SuperLink(tmp_path / "run", "127.0.0.1", keys, environment=quick))
        link.wait_until_ready()
        ids = [link.register(key.public) for key in keys.node_keys]
        assert len(set(ids)) == 3
        assert link.register(keys.node_keys[1].public) == ids[1]
        nodes = [
            SuperNode(
                number,
                key.private,
                link.address,
                {"partition-id": number},
                folder=tmp_path / "run",
                ca_certificate=keys.ca_certificate,
                environment=quick,
            )
            for number, key in enumerate([*keys.node_keys, stranger])
        ]
        stack.callback(stop_all, nodes)
        for node in nodes:
            node.start()
        assert [node.wait_until_ready() for node in nodes[:3]] == ids
        with pytest.raises(RefusedError, match="Failed to activate SuperNode"):
            nodes[3].wait_until_ready()
        assert link.nodes() == dict.fromkeys(ids, "online")

        app = write_app(tmp_path / "app")
        with pytest.raises(ProcessError, match="Key 'no-such-key' is not present"):
            link.run_app(app, {"no-such-key": 1}, timeout=60)
        run = link.run_app(app, {"rounds": 1}, timeout=60)
        assert run.completed, run.log
        replies = {line for line in run.log.splitlines() if line.startswith("reply")}
        assert replies == {f"reply 1 {node_id} {{'part': {part}, 'twice': 2}}" for part, node_id in enumerate(ids)}
        marks = [process._mark for process in (link, *nodes)]
        assert all(marked(mark) for mark in marks[:4])

    assert [marked(mark) for mark in marks] == [[]] * 5
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((link.host, link.port))  # fails where something still listens
