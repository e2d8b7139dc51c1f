"""The link by tc: what it refuses and, where this user may make them, real network namespaces."""

import itertools
import os
import shutil
import subprocess
from contextlib import contextmanager

import pytest

from fedtempo.checks import InputError
from fedtempo.flower.link.tc import TcLink
from support.uplink import MBIT, SLACK, Sink, seconds

numbers = itertools.count()


@contextmanager
def namespace(subnet):
    """Make a network namespace with a device to this one; it is gone afterwards whatever happens."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if shutil.which("ip") is None or shutil.which("tc") is None:
        pytest.skip("ip and tc of iproute2 are not installed")
    name = f"ft{os.getpid()}x{next(numbers)}"
    inside, outside = f"{name}i"[-15:], f"{name}o"[-15:]

    def ip(*args, check=True):
        done = subprocess.run(["ip", *args], capture_output=True, text=True, timeout=10.0, check=False)
        if check and done.returncode:
            pytest.skip(f"ip {' '.join(args)}: {done.stderr.strip()}")

    try:
        ip("netns", "add", name)
        ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
        ip("addr", "add", f"{subnet}.1/30", "dev", outside)
        ip("link", "set", outside, "up")
        ip("-n", name, "addr", "add", f"{subnet}.2/30", "dev", inside)
        ip("-n", name, "link", "set", inside, "up")
        yield name, inside, f"{subnet}.1"
    finally:
        ip("link", "del", outside, check=False)
        ip("netns", "del", name, check=False)


SEND = """
import socket, struct, sys
address, port, *sizes = sys.argv[1:]
with socket.create_connection((address, int(port)), timeout=20.0) as connection:
    for size in map(int, sizes):
        connection.sendall(struct.pack("!Q", size) + bytes(size))
        assert connection.recv(2, socket.MSG_WAITALL) == b"ok"
"""


def test_tc_shapes_and_measures_a_namespace():
    with namespace(f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}") as (name, device, address):
        sink = Sink(address)

        def upload_from_inside(*sizes):
            command = ["ip", "netns", "exec", name, "python3", "-c", SEND, address, str(sink.address[1])]
            subprocess.run([*command, *map(str, sizes)], check=True, timeout=20.0)

        try:
            with TcLink([(name, device)], [8 * MBIT]) as link:
                link.allot([0], "paper", [0.5])
                upload_from_inside(400_000)
                done = link.measured([0])[0]
                assert 400_000 < done.size < 1.15 * 400_000  # headers are sent as well
                assert 0.9 * 0.8 < seconds(done) < SLACK * 0.8 * 1.15
                link.allot([0], "equal")
                upload_from_inside(500, 500)
                assert link.measured([0]) == {}
                assert link.measured([0]) == {}
                with pytest.raises(InputError, match="mode must be paper or equal for a link of token buckets"):
                    link.allot([0], "shared")
                shown = subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc"], capture_output=True, text=True)
                assert f"dev {device} root" in shown.stdout
                assert "rate 160Kbit" in shown.stdout  # the trickle
        finally:
            sink.close()
        shown = subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc"], capture_output=True, text=True)
        assert "tbf" not in shown.stdout
    assert name not in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout


def test_tc_refuses_what_is_not_there():
    with pytest.raises(InputError, match="places must have one entry for each of 2 rates, got 1"):
        TcLink([("a", "b")], [MBIT, MBIT])
    link = TcLink([("fedtempo-no-such-namespace", "eth0")], [MBIT])
    with pytest.raises(RuntimeError, match="must be started"):
        link.allot([0], "equal")
    with pytest.raises(InputError, match="namespace must be one that this user may enter, got 'fedtempo-no-such"):
        link.start()
