"""What a person sees of the testbed: a table of its nodes that follows the run, and what it came to."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedtempo.engine.settings import TrainingSettings
from fedtempo.fleet import Fleet
from fedtempo.flower.testbed.report import Rounds

Show = Callable[[Mapping[str, Any]], None]


class NodesTable:
    """The nodes, what each last did, and the round."""

    def __init__(self, fleet: Fleet, training: TrainingSettings, rounds: int, model_bits: float) -> None:
        """Start with nobody drawn."""
        self.fleet, self.training, self.rounds, self.model_bits = fleet, training, rounds, model_bits
        self._begin()

    def _begin(self) -> None:
        self.done, self.pilots, self.seconds, self.loss = 0, 0, 0.0, ""
        self.follow = Rounds(self.fleet, self.training)
        self.drawn = [0] * len(self.fleet)
        self.last: dict[int, Mapping[str, Any]] = {}
        self.state = [""] * len(self.fleet)

    def take(self, record: Mapping[str, Any]) -> None:
        """Follow one more round; records begin with a header."""
        if "header" in record:
            self._begin()
        if "members" not in record:
            return
        trained = record["phase"] == "train"
        self.done, self.pilots, self.seconds = self.done + trained, self.pilots + (not trained), record["time"]
        if record["loss"] is not None:
            self.loss = f", loss {record['loss']:.4f}"
        failures = (record.get("note") or {}).get("failures", {})
        for client in record["members"]:
            self.drawn[client] += 1
            self.state[client] = failures.get(str(client), "answered")
        for member in self.follow.report(record)["members"]:
            self.last[member["client"]] = member

    def line(self) -> str:
        """Return where the run is."""
        place = f"round {self.done} of {self.rounds}" if self.done or not self.pilots else f"pilot round {self.pilots}"
        return f"{place}, {self.seconds:,.0f} s{self.loss}"

    def table(self) -> Table:
        """Return a line for each node."""
        last = ("last share", "upload (s)", "predicted (s)", "state")
        table = Table("node", "alone (Mbit/s)", "computes (s)", "drawn", *last)
        for column in table.columns[1:7]:
            column.justify = "right"
        for client in range(len(self.fleet)):
            found = self.last.get(client)
            upload = ("", "", "")
            if found is not None:
                upload = (
                    f"{found['bandwidth']:.2f}",
                    f"{found['measured_upload']:.2f}",
                    f"{found['predicted_upload']:.2f}",
                )
            rate = self.model_bits / self.fleet.upload_time[client] / 1e6
            times = f"{rate:.2f}", f"{self.fleet.compute_time[client]:.2f}"
            table.add_row(str(client), *times, str(self.drawn[client]), *upload, Text(self.state[client][:40]))
        return table

    def whole(self) -> Group:
        """Return all that moves on a terminal."""
        return Group(Text(self.line()), self.table())


@contextmanager
def live_table(shown: NodesTable, console: Console, done: int = 0) -> Iterator[Show]:
    """Yield a function to call with each record; on a terminal a table moves, elsewhere a line comes for each round.

    Rounds that were done before have no line.
    """
    if not console.is_terminal:
        said = [done]

        def say(record: Mapping[str, Any]) -> None:
            shown.take(record)
            if shown.done + shown.pilots > said[0]:
                said[0] += 1
                console.print(shown.line())

        yield say
        console.print(shown.table())
        return
    with Live(shown.whole(), console=console, refresh_per_second=2) as live:

        def show(record: Mapping[str, Any]) -> None:
            shown.take(record)
            live.update(shown.whole())

        yield show


def summary_lines(report: Mapping[str, Any], medians: Mapping[str, float]) -> list[str]:
    """Return in words what the run came to."""
    measured = sum(one["measured_time"] for one in report["rounds"])
    lines = [f"rounds: {len(report['rounds'])}, nodes: {report['nodes']}, {measured:,.0f} s in all"]
    if "upload_error" in medians:
        lines.append(f"uploads differ from what was predicted by {medians['upload_error']:.1%} in the median")
    if "spread_of_ends" in medians:
        lines.append(f"uploads of a round end within {medians['spread_of_ends']:.1%} of each other in the median")
    if "predicted_time" in medians:
        measured_one, predicted_one = medians["measured_time"], medians["predicted_time"]
        lines.append(f"a round takes {measured_one:.1f} s in the median, {predicted_one:.1f} s without the engine")
    if "overhead" in medians:
        lines.append(f"the engine's own overhead is {medians['overhead']:.1f} s a round in the median")
    lines.append(f"{report['refused']} updates refused, {report['failures']} failures")
    lines += [f"round {event['round']}, client {event['client']}: {event['what'][:100]}" for event in report["events"]]
    return lines
