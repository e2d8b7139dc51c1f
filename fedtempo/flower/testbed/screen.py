"""What a person sees of the testbed while it runs: a table of its nodes that follows the run."""

from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.status import Status
from rich.table import Table
from rich.text import Text

from fedtempo.engine.records import HeaderLine, RoundRecord
from fedtempo.flower.strategy.notes import failures_in
from fedtempo.flower.testbed.prediction import PredictedUpload, RoundPredictor
from fedtempo.flower.testbed.records_tail import RecordLine
from fedtempo.flower.testbed.running import Event, Started, Starting

LONGEST_STATE = 40  # characters of what a node last did


class NodesTable:
    """The nodes, what each last did, and the round."""

    def __init__(self, run: Started) -> None:
        """Start with nobody drawn."""
        self.run = run
        self._begin()

    def _begin(self) -> None:
        size = len(self.run.fleet)
        self.done, self.pilots, self.seconds, self.loss = 0, 0, 0.0, ""
        self.predictor = RoundPredictor(self.run.fleet, self.run.training, self.run.upload_numbers)
        self.drawn = [0] * size
        self.last: dict[int, PredictedUpload] = {}
        self.state = [""] * size

    def take(self, line: RecordLine) -> None:
        """Follow one more line of the records; they begin with a header."""
        if isinstance(line, HeaderLine):
            self._begin()
        if not isinstance(line, RoundRecord):
            return
        self.done, self.pilots = self.done + line.trained, self.pilots + (not line.trained)
        self.seconds = line.time
        if line.loss is not None:
            self.loss = f", loss {line.loss:.4f}"
        failures = failures_in(line)
        for client in line.members:
            self.drawn[client] += 1
            self.state[client] = str(failures.get(client, "reported"))
        self.last |= {upload.client: upload for upload in self.predictor.follow(line).members}

    def line(self) -> str:
        """Return where the run is."""
        rounds = f"round {self.done} of {self.run.rounds}"
        place = rounds if self.done or not self.pilots else f"pilot round {self.pilots}"
        return f"{place}, {self.seconds:,.0f} s{self.loss}"

    def table(self) -> Table:
        """Return a line for each node."""
        last = ("last share", "upload (s)", "predicted (s)", "state")
        table = Table("node", "alone (Mbit/s)", "computes (s)", "drawn", *last)
        for column in table.columns[1:7]:
            column.justify = "right"
        for client in range(len(self.run.fleet)):
            table.add_row(*self._row(client), Text(self.state[client][:LONGEST_STATE]))
        return table

    def whole(self) -> Group:
        """Return all that moves on a terminal."""
        return Group(Text(self.line()), self.table())

    def _row(self, client: int) -> list[str]:
        fleet, found = self.run.fleet, self.last.get(client)
        rate = self.run.model_bits / fleet.upload_time[client] / 1e6
        numbers = [f"{rate:.2f}", f"{fleet.compute_time[client]:.2f}", f"{self.drawn[client]}"]
        upload = ["", "", ""]
        if found is not None:
            upload = [f"{number:.2f}" for number in (found.bandwidth, found.measured_upload, found.predicted_upload)]
        return [f"{client}", *numbers, *upload]


class Screen:
    """Shows the events of a run: on a terminal a table moves, elsewhere a line comes for each round."""

    def __init__(self, console: Console) -> None:
        """Start with nothing on it."""
        self.console = console
        self.nodes: NodesTable | None = None
        self._moving: Status | Live | None = None
        self._shown = 0  # rounds that have their line; those of an earlier run have none

    def __enter__(self) -> Self:
        """Begin to show."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Show the table a last time, unless the run ended with an error."""
        self._hold()
        if self.nodes is not None and not self.console.is_terminal and kind is None:
            self.console.print(self.nodes.table())

    def show(self, event: Event) -> None:
        """Show what has just happened."""
        match event:
            case Starting(nodes=nodes):
                self._starting(f"starting a SuperLink and {nodes} SuperNodes")
            case Started():
                self._started(event)
            case _ if self.nodes is not None:
                self._follow(self.nodes, event)

    def _starting(self, what: str) -> None:
        if self.console.is_terminal:
            self._moving = self.console.status(what)
            self._moving.start()
        else:
            self.console.print(what)

    def _started(self, run: Started) -> None:
        self._hold()
        begins = f"goes on after round {run.rounds_done}" if run.rounds_done else "starts"
        self.console.print(f"all nodes are connected; the run {begins}")
        self.nodes, self._shown = NodesTable(run), run.rounds_done
        if self.console.is_terminal:
            self._moving = Live(self.nodes.whole(), console=self.console, refresh_per_second=2)
            self._moving.start()

    def _follow(self, nodes: NodesTable, line: RecordLine) -> None:
        nodes.take(line)
        if isinstance(self._moving, Live):
            self._moving.update(nodes.whole())
        elif nodes.done + nodes.pilots > self._shown:
            self._shown += 1
            self.console.print(nodes.line())

    def _hold(self) -> None:
        """Leave what moves as it is."""
        if self._moving is not None:
            self._moving.stop()
            self._moving = None
