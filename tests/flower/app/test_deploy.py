"""The deployment guide: its commands, in its order, on a server and two devices with networks and files of their own.

Each machine is a network namespace (the server: this one) and a mount namespace with a `/srv/federation` of its own, so
that paths stand as in the guide. Replaced are the server's address, the port of the link's control and the number of
rounds; `scp` by a copy of the same files; installing by this environment and this tree; systemd by a loop around what
its unit starts.
"""

import configparser
import json
import os
import re
import shlex
import shutil
import sys
import time
import zipfile
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest

from fedtempo import read_fleet
from fedtempo.engine.records import RECORDS, read_records
from fedtempo.engine.run_folder import CHECKPOINT
from fedtempo.flower.strategy.notes import uploads_in
from fedtempo.flower.testbed.namespaces import Namespaces
from fedtempo.flower.testbed.ports import free_port
from fedtempo.flower.testbed.watched import FlowerProcess, Launch, ProcessError, _marked, stop_all
from support.paths import ROOT

GUIDE = (ROOT / "docs/deploy.md").read_text()
BLOCKS = re.findall(r"^~~~(sh server|sh device|ini device)\n(.*?)^~~~$", GUIDE, re.DOTALL | re.MULTILINE)
SECONDS = 120.0  # for any one step, on a busy machine
PLACE, SERVER, PORT, CONTROL = "/srv/federation", "10.0.0.1", "9092", "9093"  # in the guide
# A /srv of the machine's own, with its folder in the guide's place; `unshare` keeps this from everybody else.
MACHINE = f'mount -t tmpfs none /srv; mkdir {PLACE}; mount --bind "$1" {PLACE}; cd {PLACE}; exec bash -ec "$2"'
LET_IN = r"SuperNode ID: (\d+)"


class Shell(FlowerProcess):
    """Commands on one machine, with all that they start."""

    def __init__(self, name, machine, text, prefix=()):
        home = machine / "home"
        environment = {"HOME": str(home), "FLWR_HOME": str(home / ".flwr"), "COLUMNS": "200"}
        super().__init__(name, machine.parent / "logs", Launch(prefix=prefix, environment=environment))
        self._machine, self._text = machine, text

    def _command(self):
        return ["unshare", "--mount", "bash", "-ec", MACHINE, "bash", str(self._machine), self._text]

    def wait_for(self, pattern):
        """Wait for a line."""
        return self._wait_for_line(pattern, SECONDS)

    def wait(self):
        """Wait for the end; return the exit code."""
        until(lambda: not self.running, lambda: self._say(f"has not ended after {SECONDS:g} s"))
        return self._process.returncode


class Deployment:
    """The machines of the guide, and what runs on them."""

    def __init__(self, folder, network):
        self.network, self.started, self.tried = network, [], []
        self.server = folder / "server"
        self.devices = [folder / f"device-{number}" for number in range(len(network.names))]
        self.control_port = str(free_port("127.0.0.1"))
        for machine in (self.server, *self.devices):
            (machine / "home").mkdir(parents=True)
            (machine / "venv").symlink_to(sys.prefix)  # in place of pip install
        (self.server / "fedtempo").symlink_to(ROOT)  # in place of git clone

    def block(self, start):
        """Return the block of the guide that starts so."""
        (found,) = [(kind, text) for kind, text in BLOCKS if text.startswith(start)]
        self.tried.append(found)
        return found[1]

    def start(self, name, machine, text, prefix=()):
        """Start commands, with the addresses that are used here."""
        text = text.replace(SERVER, self.network.server)
        text = re.sub(rf"\b{CONTROL}\b", self.control_port, text)  # as a word: a run's id may hold these digits
        shell = Shell(name, machine, text, prefix)
        self.started.append(shell)
        shell.start()
        return shell

    def on_server(self, text):
        """Run commands on the server to their end; return what they printed."""
        shell = self.start("command", self.server, text)
        assert shell.wait() == 0, f"{text}\n{shell.log}"
        return shell.log

    def on_device(self, number, text, port=PORT):
        """Start commands on a device, whose number is 0 in the guide, and which may have a port of its own."""
        text = text.replace(f"{SERVER}:{PORT}", f"{SERVER}:{port}")
        text = text.replace("partition-id=0", f"partition-id={number}")
        return self.start(f"device-{number}", self.devices[number], text, self.network.prefix(number))

    def superlink(self):
        """Start the SuperLink."""
        shell = self.start("superlink", self.server, self.block("flower-superlink"))
        shell.wait_for("Uvicorn running on")
        return shell

    def prepare(self):
        """Do steps 2 and 3 of the guide; return the SuperLink."""
        self.on_server(self.block("fedtempo credentials"))
        self.on_server(self.block("cat > experiment.toml"))
        for line in self.block("scp").splitlines():
            words = shlex.split(line)
            if words[0] == "scp":
                self._copy(*words[1:])
            else:
                self.on_server(line)
        return self.superlink()

    def service(self):
        """Return what systemd would do with the unit of the guide."""
        unit = configparser.ConfigParser(interpolation=None)
        unit.read_string(self.block("[Unit]").replace("\\\n", " "))
        service = unit["Service"]
        assert (service["WorkingDirectory"], service["Restart"]) == (PLACE, "always")
        command = f"env {service['Environment']} {service['ExecStart']}"
        return f"while true; do {command} || true; sleep {service['RestartSec']}; done"

    def _copy(self, *sources_and_target):
        *sources, target = sources_and_target
        address, _, path = target.partition(":")
        device = self.devices[int(address.rpartition(".")[2]) - 2]
        for source in sources:
            shutil.copy(self.server / source, device / Path(path).relative_to(PLACE))


def until(done, say):
    deadline = time.monotonic() + SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise ProcessError(say())
        time.sleep(0.2)


def round_lines(records):
    """Return the lines of the rounds that have been written."""
    lines = (records / RECORDS).read_text().splitlines() if (records / RECORDS).exists() else []
    return [line for line in lines if line.startswith('{"round"')]


def rounds_in_checkpoint(records):
    """Return after how many rounds a run would go on."""
    with suppress(OSError, zipfile.BadZipFile), np.load(records / CHECKPOINT) as saved:
        return json.loads(saved["loop.values"].tobytes())["rounds_done"]
    return 0


@pytest.fixture
def deployment(tmp_path):
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare", "mount", "bash"))):
        pytest.skip("the deployment guide is tried in namespaces, which need root, ip, unshare, mount and bash")
    with ExitStack() as stack:
        deployment = Deployment(tmp_path, stack.enter_context(Namespaces(2)))
        stack.callback(lambda: stop_all(deployment.started, grace=2.0))
        yield deployment
    assert not _marked({shell._mark for shell in deployment.started}), "processes are left behind"


@pytest.mark.slow
def test_the_commands_of_the_guide(deployment):
    """A run is cut off after a round or two by the end of the SuperLink, and the same command goes on with it."""
    on_server, block = deployment.on_server, deployment.block
    superlink = deployment.prepare()
    kept_secret = [*(deployment.server / "keys").iterdir(), *(device / "node.key" for device in deployment.devices)]
    assert {path.stat().st_mode & 0o777 for path in kept_secret} == {0o600}
    assert not list((deployment.server / "keys").glob("node-?"))

    link = deployment.start("link", deployment.server, block("fedtempo link"))
    link.wait_for('run config: link="127.0.0.1:.*"\n')
    ports = re.findall(r"--superlink \S+:(\d+)", link.log)
    assert (deployment.server / "link-token").stat().st_mode & 0o777 == 0o600

    register, by_hand = block("mkdir -p ~/.flwr"), block("flower-supernode")
    stranger = deployment.on_device(0, by_hand, ports[0])
    assert stranger.wait() != 0
    assert "Failed to activate SuperNode" in stranger.log
    assert on_server(register).count("registered successfully") == 2
    devices = [
        deployment.on_device(0, by_hand, ports[0]),
        deployment.on_device(1, deployment.service(), ports[1]),
    ]
    for device in devices:
        device.wait_for(LET_IN)

    records, run = deployment.server / "records", block("flwr run")
    cut_off = deployment.start("run", deployment.server, run)
    until(lambda: rounds_in_checkpoint(records) or not cut_off.running, lambda: cut_off.log)
    superlink.kill()
    kept = rounds_in_checkpoint(records)
    assert kept, cut_off.log
    before = round_lines(records)[:kept]

    deployment.superlink()
    on_server(block("flwr stop").replace("RUN_ID", re.search(r"started run (\d+)", cut_off.log)[1]))
    said = on_server(run.replace("rounds=20", f"rounds={kept + 2}"))
    found = read_records(records / RECORDS)
    rounds, summary = found.rounds, found.summary
    assert (summary.end, summary.rounds, len(rounds)) == ("max_rounds", kept + 2, kept + 2), said
    assert round_lines(records)[:kept] == before
    assert f"round {kept} of" not in said
    # In between, what the devices had uploaded for the run that was cut off may be there already.
    for record in (*rounds[:kept], rounds[-1]):
        uploads = uploads_in(record)
        assert set(uploads) == set(record.members)
        assert all(upload.size > 200_000 and upload.seconds > 0 for upload in uploads.values())
    assert {client for record in rounds for client in record.members} == {0, 1}

    run_id = re.search(r"started run (\d+)", said)[1]
    listed = on_server(block("flwr list").replace("RUN_ID", run_id))
    assert re.search(rf"{run_id}.*finished:completed", listed)
    assert f"round {kept + 2} of {kept + 2}" in listed
    on_server(block("fedtempo report"))
    assert (deployment.server / "report.html").exists()
    assert len(read_fleet(deployment.server / "fleet.csv")) == 2
    assert all(device.running for device in devices)
    on_server(block("flwr supernode unregister").replace("NODE_ID", devices[1].wait_for(LET_IN)[1]))
    assert sorted(set(map(BLOCKS.index, deployment.tried))) == list(range(len(BLOCKS))), "a block has not been tried"


@pytest.mark.slow
def test_whoever_reaches_the_port_has_control(deployment):
    """The guide warns of it; should Flower close it one day, the guide may say so."""
    deployment.prepare()
    register = deployment.block("mkdir -p ~/.flwr").replace("/keys/ca.crt", "/ca.crt")
    shutil.copytree(deployment.server / "keys", deployment.devices[1] / "keys")
    stranger = deployment.on_device(1, register)
    assert stranger.wait() == 0, stranger.log
    assert stranger.log.count("registered successfully") == 2


@pytest.mark.slow
def test_a_device_that_was_switched_off_returns_by_itself(deployment):
    """Its key is refused until two heartbeats are missing; systemd tries until then."""
    deployment.prepare()
    deployment.on_server(deployment.block("mkdir -p ~/.flwr"))
    device = deployment.on_device(1, deployment.service())
    node = device.wait_for(LET_IN)[1]
    for process in _marked({device._mark}):
        if any(word.endswith("flower-supernode") for word in process.cmdline()[:2]):
            process.kill()
    until(lambda: len(re.findall(LET_IN, device.log)) == 2, lambda: device.log)
    assert re.findall(LET_IN, device.log) == [node, node]
    assert "Failed to activate SuperNode" in device.log
