"""The uplink by the kernel's own means, for operators who are root: clients in network namespaces, shaped with ``tc``.

Each client sits in a namespace of its own, with one device to the outside. The token bucket of that device (``tbf``)
has the rate of the client's share, and the device's counters show when it uploaded. Rates hold for whole frames, so a
model takes about 5 % longer than its bytes alone. Within one client all traffic waits in one queue.
"""

import ctypes
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from fedtempo.checks import InputError, check_positive
from fedtempo.flower.link.allotment import check_allotment, check_client_numbers, check_rates
from fedtempo.flower.link.shaping import TRICKLE, Upload
from fedtempo.flower.link.upload_meter import Counters, UploadMeter
from fedtempo.flower.startable import Startable
from fedtempo.theory.bandwidth import LinkMode

CLONE_NEWNET = 0x40000000  # setns(2): the file is a network namespace
MEMBER_BURST_SECONDS = 0.005  # of its rate: what a member may send at once
SMALLEST_BURST = 4_000  # bytes; a frame must fit
TRICKLE_BURST = 65_536  # bytes that a client without a share may send at once: its control traffic passes
QUEUE_SECONDS = 0.5  # that a frame may wait before it is dropped
POLL_SECONDS = 0.02  # between two looks at the counters
COMMAND_TIMEOUT = 10.0  # s for one call of tc


class Place(NamedTuple):
    """Where a client is."""

    namespace: str
    device: str


class TcLink(Startable):
    """A link whose shares are token buckets of the kernel. It needs root, and ``ip`` and ``tc`` of iproute2."""

    def __init__(
        self, places: Sequence[tuple[str, str]], rates: Sequence[float], *, total_bandwidth: float = 1.0
    ) -> None:
        """Set up a link for client i in the namespace and at the device of places[i], with rates[i] bits/s alone."""
        self._places = [Place(*place) for place in places]
        self._rates = check_rates(rates)
        if len(self._places) != len(self._rates):
            raise InputError(
                name="places", rule=f"have one entry for each of {len(self._rates)} rates", got=f"{len(self._places)}"
            )
        self._total = check_positive("total_bandwidth", total_bandwidth)
        self._meters: dict[int, UploadMeter] = {}
        self._counters: list[int] = []  # open files
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Let every client trickle, and begin to watch the counters."""
        if self._thread is not None:
            raise RuntimeError("the link has been started already")
        try:
            for place in self._places:
                self._counters.append(_open_counters(place))
            for client in range(len(self._rates)):
                self._set_trickle(client)
        except BaseException:
            self._close_counters()
            raise
        self._stopped.clear()
        self._thread = threading.Thread(target=self._watch, name="fedtempo-tc-link", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take all token buckets away, and leave no thread or file behind."""
        if self._thread is None:
            return
        self._stopped.set()
        self._thread.join()
        self._thread = None
        self._close_counters()
        self._meters.clear()
        for place in self._places:
            _tc(place, "del", check=False)  # the device may be gone by now

    def allot(self, members: Sequence[int], mode: LinkMode, shares: Sequence[float] | None = None) -> None:
        """Say how these clients upload next: see ``Link.allot``. Mode ``shared`` is refused."""
        allotted = check_allotment(members, mode, shares, num_clients=len(self._rates), total_bandwidth=self._total)
        if mode == "shared":
            raise InputError(
                name="mode",
                rule="be paper or equal for a link of token buckets, each of which knows nothing of the others",
                got="'shared'",
                remedy="use a ShapedLink, which serves in order",
            )
        self._check_started()
        for member, share in allotted.items():
            rate = share * self._rates[member]
            burst = max(SMALLEST_BURST, int(rate * MEMBER_BURST_SECONDS / 8))
            self._set_rate(member, rate, burst)
            with self._lock:
                self._meters[member] = UploadMeter(rate, time.monotonic(), self._read(member))

    def measured(self, clients: Sequence[int]) -> dict[int, Upload]:
        """Return what these clients have uploaded since they were allotted: see ``Link.measured``."""
        numbers, uploads = check_client_numbers("clients", clients, len(self._rates)), {}
        self._check_started()
        for client in numbers:
            with self._lock:
                meter = self._meters.pop(client, None)
                if meter is not None:
                    meter.look(time.monotonic(), self._read(client))
            if meter is not None:
                self._set_trickle(client)
                if meter.upload is not None:
                    uploads[client] = meter.upload
        return uploads

    def _check_started(self) -> None:
        if self._thread is None:
            raise RuntimeError("the link must be started before it is used; enter it as a context manager")

    def _watch(self) -> None:
        while not self._stopped.wait(POLL_SECONDS):
            with self._lock:
                for client, meter in self._meters.items():
                    meter.look(time.monotonic(), self._read(client))

    def _read(self, client: int) -> Counters:
        text = os.pread(self._counters[client], 65_536, 0).decode()
        for line in text.splitlines():
            name, _, fields = line.partition(":")
            if name.strip() == self._places[client].device:
                numbers = fields.split()
                return Counters(sent=int(numbers[8]), received=int(numbers[0]))
        return self._meters[client].last if client in self._meters else Counters(0, 0)  # the device is gone

    def _set_trickle(self, client: int) -> None:
        self._set_rate(client, TRICKLE * self._total * self._rates[client], TRICKLE_BURST)

    def _set_rate(self, client: int, rate: float, burst: int) -> None:
        bucket = ("rate", f"{max(1, round(rate))}bit", "burst", f"{burst}b", "latency", f"{QUEUE_SECONDS * 1000:.0f}ms")
        _tc(self._places[client], "replace", *bucket)

    def _close_counters(self) -> None:
        for file in self._counters:
            os.close(file)
        self._counters.clear()


def _tc(place: Place, action: str, *bucket: str, check: bool = True) -> None:
    """Change the token bucket at a client's device."""
    kind = ("tbf", *bucket) if bucket else ()
    command = ("ip", "netns", "exec", place.namespace, "tc", "qdisc", action, "dev", place.device, "root", *kind)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT, check=False)
    except FileNotFoundError as error:
        raise InputError(
            name="a link by tc", rule="have the commands ip and tc", got="none", remedy="install iproute2"
        ) from error
    if check and done.returncode:
        output = (done.stderr or done.stdout).strip().splitlines() or ["no reason"]
        rule = f"be able to shape {place.device} in namespace {place.namespace}"
        raise InputError(name="tc", rule=rule, got=output[-1])


def _open_counters(place: Place) -> int:
    """Open a namespace's table of devices.

    The file stays with the namespace that its reader was in when it was opened, so one thread visits the namespace and
    opens it, and everybody can read it from then on.
    """
    opened: list[int | OSError] = []

    def visit() -> None:
        try:
            namespace = os.open(f"/var/run/netns/{place.namespace}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWNET):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
                opened.append(os.open("/proc/thread-self/net/dev", os.O_RDONLY | os.O_CLOEXEC))
            finally:
                os.close(namespace)
        except OSError as error:
            opened.append(error)

    visitor = threading.Thread(target=visit)
    visitor.start()
    visitor.join()
    if isinstance(opened[0], OSError):
        raise InputError(
            name="namespace", rule="be one that this user may enter", got=f"{place.namespace!r}: {opened[0]}"
        )
    return opened[0]
