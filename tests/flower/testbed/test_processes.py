"""SuperLink and SuperNodes: ports, addresses, and a federation of three."""

import socket
import textwrap
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="flwr is not installed; it comes with fedtempo[flower]")


from fedtempo.flower.testbed.processes import RefusedError, SuperLink, SuperNode, free_port

from fedtempo.checks import InputError
from fedtempo.flower.credentials import make_credentials, make_node_key
from fedtempo.flower.testbed.watched import ProcessError, stop_all
from support.processes import Script, marked


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


@pytest.mark.slow
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
