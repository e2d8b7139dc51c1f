"""An uplink that clients share: what is asked of it, and what an allotment must satisfy."""

from collections.abc import Sequence
from typing import Protocol

from fedtempo.checks import InputError, as_integers, as_numbers, check_choice, check_positive
from fedtempo.flower.link.shaping import Upload
from fedtempo.theory.bandwidth import LINK_MODES, LinkMode


class Link(Protocol):
    """An uplink that clients share."""

    def allot(self, members: Sequence[int], mode: LinkMode, shares: Sequence[float] | None = None) -> None:
        """Say how these clients upload next; others keep what they have. ``shares`` are for ``paper`` alone.

        To be called before the server asks them to train. A client keeps its share until ``measured`` takes it. The
        shares of one call must fit into the total; who allots one client after another sees to that himself, or uses
        ``shared``.
        """

    def measured(self, clients: Sequence[int]) -> dict[int, Upload]:
        """Return what these clients have uploaded since they were allotted, and take their shares away.

        Whoever sent no bulk is missing. Of an upload that still runs, the part that has arrived is returned, and the
        rest trickles: leave such a client out, and it keeps its share. What is left of it when the client is allotted
        anew goes first and does not count.
        """


def check_client_numbers(name: str, clients: Sequence[int], num_clients: int) -> list[int]:
    """Return the numbers of different clients."""
    numbers: list[int] = as_integers(name, clients).reshape(-1).tolist()
    wrong = next((client for client in numbers if not 0 <= client < num_clients), None)
    if wrong is not None:
        raise InputError(name=name, rule=f"be numbers of clients from 0 to {num_clients - 1}", got=f"{wrong}")
    if len(set(numbers)) < len(numbers):
        raise InputError(name=name, rule="name each client once", got=f"{numbers}")
    return numbers


def check_rates(rates: Sequence[float]) -> list[float]:
    """Return the rates of at least one client, in bits/s."""
    if len(rates) == 0:
        raise InputError(name="rates", rule="have one entry for each client", got="none")
    return [check_positive("rates", rate) for rate in as_numbers("rates", rates).reshape(-1).tolist()]


def check_allotment(
    members: Sequence[int],
    mode: LinkMode,
    shares: Sequence[float] | None,
    *,
    num_clients: int,
    total_bandwidth: float,
) -> dict[int, float]:
    """Return the share of each member; on a link of mode ``shared`` that is all of the bandwidth for each in turn."""
    check_choice("mode", mode, LINK_MODES)
    numbers = check_client_numbers("members", members, num_clients)
    if mode == "paper":
        own = [] if shares is None else as_numbers("shares", shares).reshape(-1).tolist()
        if len(own) != len(numbers):
            raise InputError(name="shares", rule=f"have one entry for each of {len(numbers)} members", got=len(own))
        checked = [check_positive("shares", share) for share in own]
        if sum(checked) > total_bandwidth * (1 + 1e-9):
            raise InputError(
                name="shares", rule=f"sum to at most {total_bandwidth:g}, the total", got=f"{sum(checked):g}"
            )
        return dict(zip(numbers, checked, strict=True))
    if shares is not None:
        raise InputError(
            name="shares", rule=f"be left out for mode {mode}, which sets them itself", remedy="or use mode paper"
        )
    return dict.fromkeys(numbers, total_bandwidth / len(numbers) if mode == "equal" else total_bandwidth)
