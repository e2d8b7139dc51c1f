"""Commands for Flower: a federation on this machine, and what one of many machines needs."""

import json
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedtempo.checks import InputError, check_count, check_nonnegative, check_positive
from fedtempo.cli.options import JSON, check_ending, check_installed, check_outputs, stop_options
from fedtempo.cli.terminal import FAILED, Interrupted, compiling_noted, console, fail
from fedtempo.engine.records import RECORDS, read_header, read_lines
from fedtempo.files import whole_file
from fedtempo.fleet_csv import read_fleet

if TYPE_CHECKING:
    from fedtempo.flower.testbed.federation import Testbed

LEAST_NODES = 2  # that hold all classes of the small experiment
ENGINE_SECONDS = 60.0  # that a round may take beyond its deadline
SAMPLES_OF_A_NODE, LEAST_SAMPLES, DRAWS_TRIED = 100, 2000, 20
SMALL: dict[str, Any] = {
    "name": "testbed",
    "data": {"kind": "synthetic"},
    "model": {"kind": "softmax"},
    "times": {
        "compute": {"kind": "uniform", "low": 0.5, "high": 2.0},
        "upload": {"kind": "uniform", "low": 0.5, "high": 2.0},
    },
    "training": {"local_steps": 20, "schedule": "constant", "step_size": 0.02, "duplicates": "physical"},
    "policy": {name: {"losses": [2.1, 1.8, 1.5], "max_rounds": 20} for name in ("proposed", "statistical")},
}


def run_on_testbed(
    nodes: Annotated[int, typer.Option(help="How many SuperNodes.")] = 10,
    rounds: Annotated[int, typer.Option(help="How many rounds.")] = 20,
    policy: Annotated[str, typer.Option(help="Who trains; fedtempo policies lists them.")] = "uniform",
    cohort_size: Annotated[int, typer.Option(help="Clients drawn in each round.")] = 4,
    config: Annotated[
        Path | None,
        typer.Option(help="Experiment to run, with this many clients.", show_default="a small synthetic one"),
    ] = None,
    preset: Annotated[str, typer.Option(help="Which settings of it.")] = "paper",
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
    deadline: Annotated[float, typer.Option(help="Seconds that a node has to answer.")] = 120.0,
    netns: Annotated[bool, typer.Option("--netns", help="Put each node into a network namespace; needs root.")] = False,
    tc: Annotated[bool, typer.Option("--tc", help="Shape the uplink with the kernel's tc; with --netns.")] = False,
    records: Annotated[Path | None, typer.Option(help="Keep the records in this folder, or go on with them.")] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write predicted and measured times.")] = None,
) -> None:
    """Run a real federation on this machine: SuperLink, SuperNodes behind a shaped uplink, TLS and keys."""
    check_installed("flwr", "flower", "testbed")
    from fedtempo.experiments.config import for_policy
    from fedtempo.flower.testbed.federation import Testbed, TestbedSettings
    from fedtempo.flower.testbed.report import report_on, summary_of
    from fedtempo.flower.testbed.screen import summary_lines
    from fedtempo.flower.testbed.sweeper import swept_folder
    from fedtempo.policies.registry import check_name

    check_name(policy)
    for name, count in (("--nodes", nodes), ("--rounds", rounds), ("--cohort-size", cohort_size)):
        check_count(name, count)
    check_positive("--model-megabytes", model_megabytes)
    check_positive("--deadline", deadline)
    stop_options(target_loss=target_loss)
    check_outputs(config, json_path, what="the experiment's own file")
    check_ending("--json", json_path, JSON)
    over = _over(nodes, rounds, cohort_size, link, target_loss) | _known(nodes, policy, clients, beta_over_alpha)
    table = _table(config, preset, nodes, over)
    settings = TestbedSettings(
        table=table, model_bytes=round(model_megabytes * 1e6), deadline=deadline, namespaces=netns, kernel_link=tc
    )
    found = [] if records is None else _lines_there(records, policy, seed, rounds)
    with swept_folder("fedtempo-testbed-") as folder:
        bed = Testbed(settings, folder)
        bed.check_policy(policy)
        if _holds_all(found, table, rounds):
            console().print(f"all {rounds} rounds are there already; with more --rounds the run goes on")
        else:
            done = sum("members" in line for line in found)
            found = _run(bed, policy, rounds=rounds, seed=seed, records=records, done=done)
    training, _ = for_policy(bed.experiment, policy)
    report = report_on(found, bed.fleet, training)
    for line in summary_lines(report, summary_of(report)):
        console().print(line)
    if json_path is not None:
        with whole_file(json_path) as stream:
            json.dump(report, stream, indent=1)


def _lines_there(records: Path, policy: str, seed: int, rounds: int) -> list[dict[str, Any]]:
    """Return what a folder has of the run; refuse another run's before anything starts."""
    if records.exists() and not records.is_dir():
        raise InputError(name="--records", rule="be a folder", got=f"the file {records}")
    records.mkdir(parents=True, exist_ok=True)
    if not (path := records / RECORDS).exists():
        return []
    header = read_header(path)
    for name, wanted in (("policy", policy), ("seed", seed)):
        if header.get(name, wanted) != wanted:
            raise InputError(
                name="--records",
                rule="be a new folder or hold the same run",
                got=f"one with {name} {header[name]}, and {wanted} is asked for",
                remedy="choose another folder, or delete this one",
            )
    found = list(read_lines(path))
    if found and (there := found[-1].get("rounds", 0)) > rounds:
        raise InputError(name="--rounds", rule=f"be at least the {there} that {records} has", got=f"{rounds}")
    return found


def _holds_all(found: list[dict[str, Any]], table: dict[str, Any], rounds: int) -> bool:
    """Return whether records are of this experiment on real nodes, with as many rounds; others the run goes into."""
    from fedtempo.experiments.toml import merged

    if not found or found[-1].get("end") != "max_rounds" or found[-1]["rounds"] != rounds:
        return False
    header, alike = found[0]["header"], {"stop": {"max_rounds": rounds}, "training": {"duplicates": "physical"}}
    asked = merged(json.loads(json.dumps(table)), alike)
    return header["config"] == asked and header.get("clock") == "wall" and "files" not in header


def _run(
    bed: "Testbed", policy: str, *, rounds: int, seed: int, records: Path | None, done: int
) -> list[dict[str, Any]]:
    """Start the federation, run, show what happens and end it; return all records."""
    from fedtempo.experiments.config import for_policy
    from fedtempo.flower.testbed.screen import NodesTable, live_table
    from fedtempo.policies.proposed import PILOTS, ProposedOptions

    training, options = for_policy(bed.experiment, policy)
    shown = NodesTable(bed.fleet, training, rounds, bed.model_bits)
    pilots = ProposedOptions(**options).max_rounds * len(PILOTS) if "losses" in options else 0
    with _explained(records), ExitStack() as at_the_end:
        with compiling_noted(), _said(f"starting a SuperLink and {bed.num_nodes} SuperNodes"):
            at_the_end.enter_context(bed)
        console().print(f"all are there; the run {f'goes on after round {done}' if done else 'starts'}")
        with live_table(shown, console(), done) as show:
            return bed.run(
                policy,
                rounds=rounds,
                seed=seed,
                records=records or bed.folder / "records",
                timeout=(pilots + rounds) * (bed.settings.deadline + ENGINE_SECONDS),
                show=show,
            )


def _said(what: str) -> AbstractContextManager[object]:
    """Say what is being done: moving on a terminal, elsewhere in a line."""
    shown = console()
    if shown.is_terminal:
        return shown.status(what)
    shown.print(what)
    return nullcontext()


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
    """Make a certificate for the server and a key for each SuperNode."""
    check_installed("flwr", "flower", "credentials")
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
    """Stand between SuperNodes and SuperLink and enforce each one's share of the uplink, until Ctrl-C."""
    check_installed("flwr", "flower", "link")
    from fedtempo.flower.credentials import write_secret
    from fedtempo.flower.link.control import LinkServer
    from fedtempo.flower.link.shaped import ShapedLink

    server, _, number = superlink.rpartition(":")
    if not (server and number.isdigit()):
        raise InputError(name="--superlink", rule="be host:port", got=repr(superlink))
    try:
        alone = [1e6 * float(rate) for rate in rates.split(",")]
    except ValueError:
        raise InputError(name="--rates", rule="be numbers with commas between them", got=repr(rates)) from None
    shaped = ShapedLink((server, int(number)), alone, host=host, first_port=first_port)
    with shaped, LinkServer(shaped, port=port) as control:
        token.unlink(missing_ok=True)  # one that is there may be open to others
        write_secret(token, control.token.encode())
        for client, place in enumerate(shaped.ports):
            print(f"client {client}: --superlink {host}:{place}")
        print(f'run config: link="{":".join(map(str, control.address))}" link-token="{token.absolute()}"', flush=True)
        threading.Event().wait()


def _over(nodes: int, rounds: int, cohort_size: int, link: str | None, target_loss: float | None) -> dict[str, Any]:
    """Return what the options say, as a table to lie over an experiment."""
    training: dict[str, Any] = {"cohort_size": cohort_size}
    if link is not None:
        training["link"] = link
    stop: dict[str, Any] = {"max_rounds": rounds}
    if target_loss is not None:
        stop["target_loss"] = target_loss
    return {"data": {"clients": nodes}, "training": training, "stop": stop}


def _known(nodes: int, policy: str, clients: Path | None, beta_over_alpha: float | None) -> dict[str, Any]:
    """Return what is known of the clients beforehand, as options of the policy."""
    known: dict[str, Any] = {}
    if clients is not None:
        fleet = read_fleet(clients)
        if len(fleet) != nodes:
            raise InputError(name="--clients", rule=f"have a line for each of {nodes} nodes", got=f"{len(fleet)}")
        known["gradient_bound"] = fleet.gradient_bound.tolist()
    if beta_over_alpha is not None:
        known["beta_over_alpha"] = check_nonnegative("--beta-over-alpha", beta_over_alpha)
    return {"policy": {policy: known}} if known else {}


def _table(config: Path | None, preset: str, nodes: int, over: dict[str, Any]) -> dict[str, Any]:
    """Return the experiment as a plain table."""
    from fedtempo.experiments.config import make_experiment, read_experiment
    from fedtempo.experiments.runner import load_data
    from fedtempo.experiments.toml import merged

    if config is not None:
        return read_experiment(config, preset, over=over)[1]
    if nodes < LEAST_NODES:
        raise InputError(
            name="--nodes",
            rule=f"be at least {LEAST_NODES}",
            got=f"{nodes}",
            remedy="or give an experiment with --config",
        )
    table = merged(SMALL, over | {"data": {"clients": nodes, "samples": max(SAMPLES_OF_A_NODE * nodes, LEAST_SAMPLES)}})
    for seed in range(DRAWS_TRIED):  # few clients may lack a class
        table["data"] = table["data"] | {"seed": seed}
        with suppress(InputError):
            load_data(make_experiment(table).data)
            break
    return table
