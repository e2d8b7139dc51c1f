"""A SuperLink's Control API: nodes that may connect, runs of apps. Plain values go in and come out."""

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import httpx
from flwr.app import UserConfigValue
from flwr.cli.build import build_fab_from_disk
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    StreamLogsRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.fab import Fab

from fedtempo.checks import InputError


class ControlError(RuntimeError):
    """What a SuperLink refused, or that it did not answer."""


class RunStatus(NamedTuple):
    """Where a run of an app is."""

    status: str  # pending, starting or running; then completed, failed or stopped
    details: str  # why it failed, "" where there is nothing to say


@dataclass(frozen=True, slots=True)
class Control:
    """Calls one SuperLink over TLS, whose certificate the CA signed."""

    address: str  # host:port
    ca_certificate: bytes

    def register(self, public_key: bytes) -> int:
        """Let a node with this key (PEM) connect; return its node id, the same each time for the same key."""
        with self._client() as client:
            try:
                return client.RegisterNode(RegisterNodeRequest(public_key=public_key)).node_id
            except httpx.HTTPStatusError as error:
                answer = FlowerError.from_json(error.response.text)
                if answer is None or answer.code != ApiErrorCode.PUBLIC_KEY_ALREADY_IN_USE:
                    raise
            known = client.ListNodes(ListNodesRequest()).nodes_info
            return next(int(node.node_id) for node in known if node.public_key == public_key)

    def nodes(self) -> dict[int, str]:
        """Return the status of each registered node: registered, online or offline."""
        with self._client() as client:
            return {node.node_id: node.status for node in client.ListNodes(ListNodesRequest()).nodes_info}

    def start_run(self, app: Path, run_config: Mapping[str, UserConfigValue]) -> int:
        """Start a run of the app in a folder; return its id."""
        content = _built(app)
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        overrides = user_config_to_proto(dict(run_config))
        with self._client() as client:
            return client.StartRun(StartRunRequest(fab=fab_to_proto(fab), override_config=overrides)).run_id

    def run_status(self, run_id: int) -> RunStatus:
        """Return where a run is."""
        with self._client() as client:
            status = client.ListRuns(ListRunsRequest(run_id=run_id)).run_dict[run_id].status
        return RunStatus(status.sub_status or status.status, status.details)

    def run_log(self, run_id: int) -> str:
        """Return what the ServerApp of a run that has ended wrote."""
        with self._client() as client:
            return "".join(part.log_output for part in client.StreamLogs(StreamLogsRequest(run_id=run_id)))

    def stop_run(self, run_id: int) -> None:
        """Stop a run."""
        with self._client() as client:
            client.StopRun(StopRunRequest(run_id=run_id))

    @contextmanager
    def _client(self) -> Iterator[ControlHttpClient]:
        try:
            with ControlHttpClient.from_server_address(self.address, False, self.ca_certificate, []) as client:
                yield client
        except httpx.HTTPStatusError as error:
            answer = FlowerError.from_json(error.response.text)
            raise ControlError(f"refused: {answer.message if answer else error}") from error
        except httpx.TransportError as error:
            raise ControlError(f"did not answer at {self.address} ({error})") from error


def _built(app: Path) -> bytes:
    """Return the app in a folder as Flower ships it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # flwr 1.41 uses an old name of pathspec's
            return build_fab_from_disk(app)
    except ValueError as error:
        raise InputError(name="app", rule="be a Flower app", got=f"{app}: {error}") from None
