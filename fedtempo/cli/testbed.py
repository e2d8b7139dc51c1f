"""The command that runs a federation on this machine."""

import json
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from fedtempo.checks import MissingDependencyError, check_count, check_positive
from fedtempo.cli.options import check_outputs
from fedtempo.cli.terminal import console
from fedtempo.files import whole_file

ENGINE_SECONDS = 60.0  # that a round may take beyond its deadline
SAMPLES_OF_A_NODE = 100
SMALL: dict[str, Any] = {
    "name": "testbed",
    "data": {"kind": "synthetic"},
    "model": {"kind": "softmax"},
    "times": {
        "compute": {"kind": "uniform", "low": 0.5, "high": 2.0},
        "upload": {"kind": "uniform", "low": 0.5, "high": 2.0},
    },
    "training": {"local_steps": 20, "schedule": "constant", "step_size": 0.02, "duplicates": "physical"},
}


def run_on_testbed(
    nodes: Annotated[int, typer.Option(help="How many SuperNodes.")] = 10,
    rounds: Annotated[int, typer.Option(help="How many rounds.")] = 20,
    policy: Annotated[str, typer.Option(help="Who trains; fedtempo policies lists them.")] = "uniform",
    cohort_size: Annotated[int, typer.Option(help="Clients drawn in each round.")] = 4,
    config: Annotated[
        Path | None, typer.Option(help="Experiment to run, with this many clients. [default: a small synthetic one]")
    ] = None,
    preset: Annotated[str, typer.Option(help="Which settings of it.")] = "paper",
    link: Annotated[str | None, typer.Option(help="paper, equal or shared. [default: the experiment's]")] = None,
    model_megabytes: Annotated[
        float, typer.Option(help="Size of an upload; ballast makes up for a small model.")
    ] = 1.0,
    target_loss: Annotated[float | None, typer.Option(help="End at this loss.")] = None,
    seed: Annotated[int, typer.Option(help="Of cohorts, batches and the initial model.")] = 0,
    deadline: Annotated[float, typer.Option(help="Seconds that a node has to answer.")] = 120.0,
    netns: Annotated[bool, typer.Option("--netns", help="Put each node into a network namespace; needs root.")] = False,
    records: Annotated[Path | None, typer.Option(help="Keep the records in this folder, or go on with them.")] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write predicted and measured times.")] = None,
) -> None:
    """Run a real federation on this machine: SuperLink, SuperNodes behind a shaped uplink, TLS and keys."""
    try:
        import flwr  # noqa: F401
    except ModuleNotFoundError:
        raise MissingDependencyError("flwr", "flower", "testbed") from None
    from fedtempo.experiments.config import for_policy
    from fedtempo.flower.display import NodesTable, live_table, summary_lines
    from fedtempo.flower.testbed import Testbed, TestbedSettings
    from fedtempo.flower.testbed_report import report_on, summary_of

    for name, count in (("--nodes", nodes), ("--rounds", rounds), ("--cohort-size", cohort_size)):
        check_count(name, count)
    check_positive("--model-megabytes", model_megabytes)
    check_positive("--deadline", deadline)
    check_outputs(config or Path(), json_path)
    table = _table(config, preset, _over(nodes, rounds, cohort_size, link, target_loss))
    settings = TestbedSettings(
        table=table, model_bytes=round(model_megabytes * 1e6), deadline=deadline, namespaces=netns
    )
    with ExitStack() as at_the_end:
        folder = Path(tempfile.mkdtemp(prefix="fedtempo-testbed-"))
        at_the_end.callback(shutil.rmtree, folder, ignore_errors=True)
        bed = Testbed(settings, folder)
        training, _ = for_policy(bed.experiment, policy)
        with console().status(f"starting a SuperLink and {nodes} SuperNodes"):
            at_the_end.enter_context(bed)
        shown = NodesTable(bed.fleet, training, rounds, bed.model_bits)
        with live_table(shown, console()) as show:
            found = bed.run(
                policy,
                rounds=rounds,
                seed=seed,
                records=records or folder / "records",
                timeout=rounds * (deadline + ENGINE_SECONDS),
                show=show,
            )
    report = report_on(found, bed.fleet, training)
    for line in summary_lines(report, summary_of(report)):
        console().print(line)
    if json_path is not None:
        with whole_file(json_path) as stream:
            json.dump(report, stream, indent=1)


def _over(nodes: int, rounds: int, cohort_size: int, link: str | None, target_loss: float | None) -> dict[str, Any]:
    """Return what the options say, as a table to lie over an experiment."""
    training: dict[str, Any] = {"cohort_size": cohort_size}
    if link is not None:
        training["link"] = link
    stop: dict[str, Any] = {"max_rounds": rounds}
    if target_loss is not None:
        stop["target_loss"] = target_loss
    return {"data": {"clients": nodes}, "training": training, "stop": stop}


def _table(config: Path | None, preset: str, over: dict[str, Any]) -> dict[str, Any]:
    """Return the experiment as a plain table."""
    from fedtempo.experiments.config import read_experiment
    from fedtempo.experiments.toml import merged

    if config is not None:
        return read_experiment(config, preset, over=over)[1]
    return merged(SMALL | {"data": SMALL["data"] | {"samples": SAMPLES_OF_A_NODE * over["data"]["clients"]}}, over)
