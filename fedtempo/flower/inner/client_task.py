"""What Flower's program ``flwr-clientapp`` is started with; its own file, since two processes exchange it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientTask:
    """One message that a ClientApp is to answer."""

    address: str  # host:port of the SuperNode
    token: str  # lets the program fetch the message
    root_certificates: str | None  # a file
    insecure: bool  # no TLS
    parent: int | None  # a process id: the program ends with that process
