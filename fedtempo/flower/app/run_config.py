"""The run config of the ready app: the same on the server and on every node, read here and nowhere else.

| key | |
|---|---|
| `config`, `preset` | a configuration file that the server and all nodes have, and a preset of it |
| `experiment` | or the experiment itself, as JSON, which then needs no file |
| `policy`, `seed`, `rounds` | what to run |
| `records` | the server's folder to write records to, and to go on from |
| `clock` | "wall", or "simulated" for Flower's simulation |
| `deadline` | seconds that a client has to report |
| `nodes` | JSON: the client that each node id stands for; otherwise nodes report their partition-id |
| `link`, `link-token` | host:port of the uplink's control, and the file that holds its token |
| `ballast` | bytes to send along with the model, to make it as large as another one; less of it with fewer bits |
| `emulate` | a folder that nodes on one machine share: they compute for their nominal times, a cohort at once |
| `upload-bits`, `server-average` | settings of training, over the experiment's |
| `server-optimiser`, `server-step-size`, `local-direction` | likewise |
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec
from flwr.app import UserConfigValue

from fedtempo.checks import InputError
from fedtempo.experiments.running.identity import SERVER_SETTINGS
from fedtempo.experiments.settings.assignments import Assignment, lay_over
from fedtempo.experiments.settings.config import DEFAULT_PRESET, FileExperiment, make_experiment
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.flower.link.remote import RemoteLink
from fedtempo.flower.strategy.settings import Clock


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """What a run of the ready app was given; empty text counts as not given."""

    config: str = ""
    preset: str = DEFAULT_PRESET
    experiment: str = ""  # JSON
    policy: str = "tempo"
    seed: int = 0
    rounds: int = 20
    records: str = ""
    clock: Clock = "wall"
    deadline: float = 600.0  # s
    nodes: str = ""  # JSON
    link: str = ""
    link_token: str = ""
    ballast: int = 0  # bytes
    emulate: str = ""
    upload_bits: int | str = ""
    server_average: float | str = ""
    server_optimiser: str = ""
    server_step_size: float | None = None
    local_direction: float | None = None

    @classmethod
    def read(cls, run_config: Mapping[str, UserConfigValue]) -> "RunConfig":
        """Return what Flower hands to an app."""
        try:
            return msgspec.convert({key: value for key, value in run_config.items() if value != ""}, cls)
        except msgspec.ValidationError as error:
            raise InputError(name="the run config", rule="be that of the ready app", got=str(error)) from None

    def as_flower(self) -> dict[str, UserConfigValue]:
        """Return it as Flower takes it; what is left out is as the app's own file says."""
        table: dict[str, UserConfigValue] = msgspec.to_builtins(self)
        return table

    def read_experiment(self) -> FileExperiment:
        """Return the experiment."""
        return _read(self.experiment, self.config, self.preset, self._assignments())

    def _assignments(self) -> tuple[Assignment, ...]:
        """Return the settings of training that lie over the experiment."""
        given = {name: getattr(self, name) for name in SERVER_SETTINGS if name in self.__struct_fields__}
        return tuple(Assignment(("training", name), one) for name, one in given.items() if one not in ("", None))

    def client_of_node(self) -> dict[int, int] | None:
        """Return the client that each node id stands for; None: nodes are asked."""
        return msgspec.json.decode(self.nodes, type=dict[int, int], strict=False) if self.nodes else None

    def uplink(self) -> RemoteLink | None:
        """Return the link that enforces and measures bandwidth, None where there is none."""
        if not self.link:
            return None
        host, _, port = self.link.rpartition(":")
        return RemoteLink((host, int(port)), Path(self.link_token).read_text().strip())


@cache
def _read(table: str, path: str, preset: str, assignments: tuple[Assignment, ...]) -> FileExperiment:
    if table:
        return make_experiment(lay_over(json.loads(table), assignments), preset)
    return load_experiment(path, preset, assignments=assignments)
