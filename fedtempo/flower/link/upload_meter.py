"""Uploads in the counters of a network device, which know bytes and nothing else."""

from typing import NamedTuple

from fedtempo.flower.link.shaping import Upload

RUN_GAP = 0.2  # s without sending that end a run
RUN_BYTES = 16_384  # what a run must have sent in order to be bulk


class Counters(NamedTuple):
    """What a device has sent and received since it exists, in bytes."""

    sent: int
    received: int


class UploadMeter:
    """Finds the upload in a device's counters.

    A run is sending at half the client's rate or more, with gaps of at most 0.2 s. It is bulk once it has sent 16 KiB,
    on average at a quarter of the rate or more, and more than was received meanwhile: polls are too small, and a
    download receives more than it acknowledges. All bulk runs together are the upload.
    """

    def __init__(self, rate: float, now: float, counters: Counters) -> None:
        """Begin to measure; the client may send ``rate`` bits/s."""
        self.last = counters
        self._rate, self._looked_at = rate, now
        self._earlier: Upload | None = None  # bulk runs before this one
        self._run: Upload | None = None
        self._received = 0  # in the run
        self._at_rate = False  # at the last look

    def look(self, now: float, counters: Counters) -> None:
        """Take the counters as they are now."""
        sent, received = counters.sent - self.last.sent, counters.received - self.last.received
        since, self._looked_at, self.last = self._looked_at, now, counters
        rest_of_run = self._at_rate and sent > 0  # the last bytes do not fill the time between two looks
        self._at_rate = sent > 0 and sent * 8 >= 0.5 * self._rate * (now - since)
        self._received += received
        if not self._at_rate and not rest_of_run:
            return
        if self._run is not None and since - self._run.end <= RUN_GAP:
            self._run = Upload(self._run.start, now, self._run.size + sent)
        else:
            self._earlier = self.upload
            self._run, self._received = Upload(since, now, sent), received

    @property
    def upload(self) -> Upload | None:
        """All bulk so far, None where there was none."""
        run = self._run
        if run is None or run.size < max(RUN_BYTES, 0.25 * self._rate * (run.end - run.start) / 8, self._received + 1):
            return self._earlier
        if self._earlier is None:
            return run
        return Upload(self._earlier.start, run.end, self._earlier.size + run.size)
