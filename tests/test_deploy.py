"""The deployment guide: its commands, in its order, on a server and two devices with networks and files of their own.

Each machine is a network namespace (the server: this one) and a mount namespace with a `/srv/federation` of its own, so
that paths stand as in the guide. Replaced are: the server's address, the port of the link's control, the number of
rounds; `scp` by a copy of the same files; installing, by this environment and this tree; systemd, by what its unit
would start.
"""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from fedtempo.engine.records import CHECKPOINT, RECORDS, read_lines
from fedtempo.flower.namespaces import Namespaces
from fedtempo.flower.processes import free_port
from fedtempo.flower.watched import MARK, FlowerProcess, ProcessError, stop_all

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "docs/deploy.md").read_text()
SECONDS = 120.0  # for any one step, on a busy machine
PLACE = "/srv/federation"
# A /srv of the machine's own, with its folder in the guide's place; `unshare` keeps this from everybody else.
MACHINE = f'mount -t tmpfs none /srv; mkdir {PLACE}; mount --bind "$1" {PLACE}; cd {PLACE}; exec bash -ec "$2"'
QUICK = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}


def blocks(where: str) -> list[str]:
    """Return the guide's blocks of commands for a machine, in order."""
    return re.findall(rf"^```sh {where}\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)


def block(start: str, where: str = "server") -> str:
    """Return the one block that starts so."""
    (found,) = [text for text in blocks(where) if text.startswith(start)]
    return found


def unit() -> configparser.ConfigParser:
    """Return the systemd unit of the guide."""
    (text,) = re.findall(r"^```ini device\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str
    parsed.read_string(text.replace("\\\n", " "))
    return parsed


class Shell(FlowerProcess):
    """Commands on one machine, with all that they start."""

    def __init__(self, name, machine, text, prefix=()):
        home = machine / "home"
        environment = QUICK | {"HOME": str(home), "FLWR_HOME": str(home / ".flwr")}
        super().__init__(name, machine.parent / "logs", prefix=prefix, environment=environment)
        self._machine, self._text = machine, text

    def _command(self):
        return ["unshare", "--mount", "bash", "-ec", MACHINE, "bash", str(self._machine), self._text]

    def wait_for(self, pattern):
        return self._wait_for_line(pattern, SECONDS)

    def wait(self):
        """Wait for the end; return the exit code."""
        deadline = time.monotonic() + SECONDS
        while self.running:
            if time.monotonic() > deadline:
                raise ProcessError(self._say(f"has not ended after {SECONDS:g} s"))
            time.sleep(0.1)
        return self._process.returncode


class Deployment:
    """The machines of the guide, and what runs on them."""

    def __init__(self, folder: Path, network: Namespaces):
        self.network, self.started = network, []
        self.server = folder / "server"
        self.devices = [folder / f"device-{number}" for number in range(len(network.names))]
        self.control_port = free_port("127.0.0.1")
        for machine in (self.server, *self.devices):
            (machine / "home").mkdir(parents=True)
            (machine / "venv").symlink_to(sys.prefix)  # in place of pip install
        (self.server / "fedtempo").symlink_to(ROOT)  # in place of git clone

    def start(self, name, machine, text, prefix=()):
        """Start commands, with the addresses that are used here in place of the guide's."""
        text = text.replace("10.0.0.1", self.network.server).replace("9093", str(self.control_port))
        shell = Shell(name, machine, text, prefix)
        self.started.append(shell)
        shell.start()
        return shell

    def on_server(self, text, name="command"):
        """Run commands on the server to their end; return what they printed."""
        shell = self.start(name, self.server, text)
        assert shell.wait() == 0, f"{text}\n{shell.log}"
        return shell.log

    def superlink(self):
        """Start the SuperLink as the guide does."""
        shell = self.start("superlink", self.server, block("flower-superlink"))
        shell.wait_for("Uvicorn running on")
        return shell

    def supernode(self, number, superlink, text):
        """Start what is to run on a device, which is device 0 in the guide, and reaches the SuperLink without a link."""
        text = text.replace("10.0.0.1:9092", superlink).replace("partition-id=0", f"partition-id={number}")
        return self.start(f"device-{number}", self.devices[number], text, self.network.prefix(number))

    def copy_to_devices(self, text):
        """Do what the lines with scp say, and run the others."""
        for line in text.splitlines():
            words = shlex.split(line)
            if words[0] != "scp":
                self.on_server(line)
                continue
            *sources, target = words[1:]
            address, _, path = target.partition(":")
            device = self.devices[int(address.rpartition(".")[2]) - 2]
            for source in sources:
                shutil.copy(self.server / source, device / Path(path).relative_to(PLACE))


def by_systemd():
    """Return the command that systemd would run for the guide's unit."""
    service = unit()["Service"]
    assert service["WorkingDirectory"] == PLACE
    assert service["Restart"] == "always"
    return f"{service['Environment']} {service['ExecStart']}"


def rounds_of(records):
    """Return the records of rounds that have been written so far."""
    if not (records / RECORDS).exists():
        return []
    return [record for record in read_lines(records / RECORDS) if "members" in record]


def rounds_in_checkpoint(records):
    """Return how many rounds a run would go on from."""
    with suppress(OSError, ValueError, zipfile.BadZipFile), np.load(records / CHECKPOINT) as saved:
        return json.loads(saved["values"].tobytes()).get("rounds_done", "?")
    return 0


@pytest.fixture
def deployment(tmp_path):
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare", "mount", "bash"))):
        pytest.skip("the deployment guide is tried in namespaces, which need root, ip, unshare, mount and bash")
    with ExitStack() as stack:
        deployment = Deployment(tmp_path, stack.enter_context(Namespaces(2)))
        stack.callback(lambda: stop_all(deployment.started, grace=2.0))
        yield deployment
    marks = {shell._mark for shell in deployment.started}
    assert not [p for p in psutil.process_iter(["environ"]) if (p.info["environ"] or {}).get(MARK) in marks]


def test_the_guide(deployment):
    began = time.monotonic()

    def say(what):
        print(f"{time.monotonic() - began:6.1f} {what}")

    on_server = deployment.on_server
    on_server(block("fedtempo credentials"))
    on_server(block("cat > experiment.toml"))
    deployment.copy_to_devices(block("scp"))
    say("copied")
    superlink = deployment.superlink()
    say("superlink")
    link = deployment.start("link", deployment.server, block("fedtempo link"))
    link.wait_for("run config: .*\n")
    ports = re.findall(r"--superlink (\S+)", link.log)
    say("link")
    print(link.log)
    by_hand = block("flower-supernode", "device")
    stranger = deployment.supernode(0, ports[0], by_hand)
    say(f"{stranger.wait()} {stranger.log}")
    print(on_server(block("mkdir -p ~/.flwr")))
    say("registered")
    nodes = [deployment.supernode(0, ports[0], by_hand), deployment.supernode(1, ports[1], by_systemd())]
    for node in nodes:
        node.wait_for(r"SuperNode ID: (\d+)")
    say("nodes")
    run = block("flwr run").replace("rounds=20", "rounds=2")
    said = on_server(run, "first-run")
    print(said)
    say("run")
    records = deployment.server / "records"
    print((records / RECORDS).read_text())
    number = re.search(r"started run (\d+)", said)[1]
    print(on_server(block("flwr list").replace("RUN_ID", number)))
    say("list")
    print(on_server(block("fedtempo report")))
    say("report")
    again = block("flwr run").replace("/records", "/again")
    command = deployment.start("second-run", deployment.server, again)
    records = deployment.server / "again"
    while True:
        say(f"{len(rounds_of(records))} {rounds_in_checkpoint(records)}")
        time.sleep(2)
        if len(rounds_of(records)) > 4: break
    say("kill")
    superlink.kill()
    say(command.log)
    time.sleep(3)
    say(f"{command.running} {command.log}")
    superlink = deployment.superlink()
    say("superlink again")
    print(on_server("flwr list fleet; flwr supernode list fleet"))
    print(on_server(again.replace("rounds=20", "rounds=8"), "third-run"))
    print((records / RECORDS).read_text())
    say("done")
