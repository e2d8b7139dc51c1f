"""Commands for Flower: a federation on this machine, and what one of many machines needs."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedtempo.checks import InputError
from fedtempo.cli.options import JSON, Assigned, check_ending, check_installed, check_outputs
from fedtempo.cli.terminal import FAILED, Interrupted, compiling_noted, console, fail
from fedtempo.files import whole_file

if TYPE_CHECKING:
    from fedtempo.flower.testbed.running import TestbedRun


def run_on_testbed(
    nodes: Annotated[int, typer.Option(help="How many SuperNodes.")] = 10,
    rounds: Annotated[int, typer.Option(help="How many rounds.")] = 20,
    policy: Annotated[str, typer.Option(help="Who trains; fedtempo policies lists them.")] = "uniform",
    cohort_size: Annotated[int, typer.Option(help="Clients drawn in each round.")] = 4,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Experiment to run, a file or a name, with this many clients.", show_default="a small synthetic one"
        ),
    ] = None,
    preset: Annotated[str, typer.Option(help="Which settings of it.")] = "paper",
    assignments: Assigned = None,
    link: Annotated[str | None, typer.Option(help="paper, equal or shared.", show_default="the experiment's")] = None,
    model_megabytes: Annotated[
        float, typer.Option(help="Size of an upload; ballast makes up for a small model.")
    ] = 1.0,
    target_loss: Annotated[float | None, typer.Option(help="End at this loss.")] = None,
    clients: Annotated[
        Path | None, typer.Option(help="CSV with gradient bounds, from fedtempo estimate, for proposed-oracle.")
    ] = None,
    beta_over_alpha: Annotated[float | None, typer.Option(help="β/α, for proposed-oracle.")] = None,
    seed: Annotated[int, typer.Option(help="Of cohorts, batches and the initial model.")] = 0,
    deadline: Annotated[float, typer.Option(help="Seconds that a node has to report.")] = 120.0,
    netns: Annotated[bool, typer.Option("--netns", help="Put each node into a network namespace; needs root.")] = False,
    tc: Annotated[bool, typer.Option("--tc", help="Shape the uplink with the kernel's tc; with --netns.")] = False,
    records: Annotated[Path | None, typer.Option(help="Keep the records in this folder, or go on with them.")] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write predicted and measured times.")] = None,
) -> None:
    """Run a real federation on this machine: SuperLink, SuperNodes behind a shaped uplink, TLS and keys.

    Example: fedtempo testbed --nodes 3 --rounds 3 --cohort-size 2
    """
    check_installed("flwr", "testbed")
    from fedtempo.experiments.settings.assignments import parse_assignments
    from fedtempo.flower.testbed.request import TestbedRequest
    from fedtempo.flower.testbed.running import run_testbed
    from fedtempo.flower.testbed.screen import Screen

    check_outputs(config, json_path, what="the experiment's own file")
    check_ending("--json", json_path, JSON)
    request = TestbedRequest(
        nodes=nodes, rounds=rounds, policy=policy, cohort_size=cohort_size, config=config, preset=preset, link=link,
        model_megabytes=model_megabytes, target_loss=target_loss, clients=clients, beta_over_alpha=beta_over_alpha,
        seed=seed, deadline=deadline, netns=netns, tc=tc, records=records,
        assignments=tuple(parse_assignments(assignments or ())),
    )  # fmt: skip
    with _explained(records), compiling_noted(), Screen(console()) as screen:
        run = run_testbed(request, screen.show)
    _print(run)
    if json_path is not None:
        with whole_file(json_path) as stream:
            json.dump(run.as_json(), stream, indent=1)


def _print(run: "TestbedRun") -> None:
    """Show what a run came to."""
    if not run.started:
        done = len(run.report.rounds)
        console().print(f"the records hold all {done} rounds already; with more --rounds the run goes on")
    for line in run.lines():
        console().print(line)


@contextmanager
def _explained(records: Path | None) -> Iterator[None]:
    """Turn what ends a testbed into one sentence."""
    from fedtempo.flower.testbed.watched import ProcessError

    try:
        yield
    except ProcessError as error:
        raise typer.Exit(fail(str(error), FAILED)) from None
    except KeyboardInterrupt:
        kept = "nothing is kept without --records" if records is None else f"the same command goes on from {records}"
        raise Interrupted(kept) from None


def credentials(
    folder: Annotated[Path, typer.Argument(help="New folder for certificates and keys.")],
    nodes: Annotated[int, typer.Option(help="How many SuperNodes get a key.")],
    host: Annotated[list[str], typer.Option(help="Name or address by which nodes reach the server; may be repeated.")],
    days: Annotated[float, typer.Option(help="How long the certificate holds.")] = 365.0,
) -> None:
    """Make a certificate for the server and a key for each SuperNode.

    Example: fedtempo credentials keys --nodes 10 --host server.example.org
    """
    check_installed("flwr", "credentials")
    from fedtempo.flower.credentials import make_credentials

    made = make_credentials(folder, nodes, hosts=host, valid_days=days)
    print(f"the server keeps {made.server_certificate}, {made.server_key} and {made.ca_certificate}")
    print(f"node i takes {made.ca_certificate} and {folder}/node-i; the server registers {folder}/node-i.pub")


def link(
    superlink: Annotated[str, typer.Option(help="host:port of the SuperLink.")],
    rates: Annotated[str, typer.Option(help="Mbit/s of each client alone on the whole link, as 4,2.5,8.")],
    token: Annotated[Path, typer.Option(help="File to write the token to, for the server app.")],
    host: Annotated[str, typer.Option(help="Address at which nodes reach this machine.")] = "127.0.0.1",
    first_port: Annotated[int, typer.Option(help="Of client 0; the others follow. 0: any free ones.")] = 0,
    port: Annotated[int, typer.Option(help="Of the control, on 127.0.0.1; 0: any.")] = 0,
) -> None:
    """Stand between SuperNodes and SuperLink and enforce each one's share of the uplink, until Ctrl-C.

    Example: fedtempo link --superlink 127.0.0.1:9092 --rates 4,2.5,8 --token link.token
    """
    check_installed("flwr", "link")
    from fedtempo.flower.link.serving import LinkRequest, serve_link

    request = LinkRequest(
        superlink=_host_and_port("superlink", superlink),
        rates=_rates(rates),
        token=token,
        host=host,
        first_port=first_port,
        port=port,
    )
    with serve_link(request) as served:
        for client, place in enumerate(served.ports):
            print(f"client {client}: --superlink {host}:{place}")
        control = ":".join(map(str, served.control))
        print(f'run config: link="{control}" link-token="{token.absolute()}"', flush=True)
        threading.Event().wait()


def _host_and_port(name: str, address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        raise InputError(name=name, rule="be host:port", got=repr(address))
    return host, int(port)


def _rates(listed: str) -> list[float]:
    try:
        return [float(rate) for rate in listed.split(",")]
    except ValueError:
        raise InputError(name="rates", rule="be numbers with commas between them", got=repr(listed)) from None
