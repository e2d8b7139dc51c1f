"""A federation of real processes on this machine: how far uploads keep to their shares, what the engine costs.

    python benchmarks/testbed.py links      # 10 nodes, 20 rounds on each kind of link
    python benchmarks/testbed.py sizes      # how many nodes this machine carries
    python benchmarks/testbed.py policies   # to a target loss, several runs of each policy
    python benchmarks/testbed.py faults     # nodes and the SuperLink are killed, and come back
    python benchmarks/testbed.py bits       # uploads of 8 bits a number against those of 32

Computing is padded to nominal times, uploads of a megabyte go through the shaped link; nothing else should need the
machine meanwhile. Each part writes benchmarks/testbed_PART.md.
"""

import argparse
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import psutil

from fedtempo.engine.records import RoundRecord, Summary
from fedtempo.experiments.settings.config import for_policy
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.files import whole_file
from fedtempo.flower.strategy.notes import failures_in, uploads_in
from fedtempo.flower.testbed.federation import Testbed
from fedtempo.flower.testbed.report import TestbedReport, medians_of, report_times
from fedtempo.flower.testbed.settings import TestbedSettings
from fedtempo.flower.testbed.watched import ProcessError
from fedtempo.tables.table import Table
from fedtempo.theory.bandwidth import LINK_MODES, LinkMode

ROOT = Path(__file__).parents[1]
COHORT_SIZE, MEGABYTE = 4, 1_000_000
LINKS = LINK_MODES
SIZES = (10, 20, 40)
POLICIES = ("uniform", "proposed", "tempo")
MOST_ROUNDS, TARGET, BITS_ROUNDS = 40, 1.2, 8
DEADLINE, ROUND_SECONDS, IDLE_SECONDS = 60.0, 120.0, 20.0
TIMES: dict[str, Any] = {
    "compute": {"kind": "uniform", "low": 0.5, "high": 2.0},
    "upload": {"kind": "uniform", "low": 0.5, "high": 3.0},
    "seed": 0,
}


Interval = tuple[float, float]


def table_of(nodes: int, **over: Mapping[str, object]) -> dict[str, object]:
    """Return Setup 1 with as many clients as there are nodes, and times that differ more."""
    times = TIMES | {"compute": TIMES["compute"] | {"value": None}}  # in the place of Setup 1's
    changed = {"data": {"clients": nodes}, "times": times, "stop": {"max_rounds": 1000, "target_accuracy": None}}
    training = {"cohort_size": COHORT_SIZE, "schedule": "constant", "step_size": 0.05, "duplicates": "physical"}
    over = changed | {"training": training} | over
    return dict(load_experiment(ROOT / "configs" / "setup1.toml", over=over).table)


def bed_of(nodes: int, folder: str, **over: Mapping[str, object]) -> Testbed:
    """Return a testbed that is not started yet."""
    settings = TestbedSettings(table=table_of(nodes, **over), model_bytes=MEGABYTE, deadline=DEADLINE)
    return Testbed(settings, Path(folder))


def reported(bed: Testbed, rounds: Sequence[RoundRecord], policy: str, link: LinkMode) -> TestbedReport:
    """Return predicted and measured times of a run."""
    training, _ = for_policy(bed.experiment, policy)
    return report_times(rounds, bed.fleet, replace(training, link=link))


def links(folder: str) -> str:
    """Return what 20 rounds of the same cohorts take on each kind of link."""
    rows = []
    with bed_of(10, folder) as bed:
        for link in LINKS:
            found = bed.run(
                "uniform", rounds=20, seed=1, records=Path(folder, link), timeout=20 * ROUND_SECONDS,
                over={"training": {"link": link}},
            )  # fmt: skip
            report = reported(bed, found.rounds, "uniform", link)
            uploads = [member for one in report.rounds for member in one.members]
            errors = np.abs([one.measured_upload / one.predicted_upload - 1 for one in uploads])
            spreads = _spreads(report)
            rows.append([
                link, f"{len(uploads)}", f"{np.median(errors):.1%}", f"{np.quantile(errors, 0.9):.1%}",
                f"{np.median(spreads):.1%}", f"{max(spreads):.1%}", f"{mean(_spans(found.rounds)):.2f}",
                f"{mean(one.predicted_time for one in report.rounds):.2f}", f"{medians_of(report).overhead:.2f}",
            ])  # fmt: skip
    headings = [
        "link", "uploads", "off the predicted time: median", "90 % quantile", "ends of a round apart: median", "most",
        "last upload ends after (s)", "predicted (s)", "engine's overhead (s)",
    ]  # fmt: skip
    return (
        "10 nodes, K = 4, 1 MB, 20 rounds, the same cohorts on each link. Ends apart: between the first and the last "
        "upload of a round, over the time of the last since the round began. The last upload ends so long after nodes "
        "began to compute, in the mean of rounds. Overhead: the round less the longest computing and upload.\n\n"
        + str(Table.from_rows(headings, rows))
    )


def _spans(rounds: Sequence[RoundRecord]) -> list[float]:
    work = [_work(record) for record in rounds]
    return [max(end for *_, end in some) - min(began for began, *_ in some) for some in work if some]


def _spreads(report: TestbedReport) -> list[float]:
    ends = [[member.upload_ended for member in one.members] for one in report.rounds]
    return [(max(some) - min(some)) / max(some) for some in ends if len(some) > 1]


def sizes(folder: str) -> str:
    """Return what a round costs with more and more nodes."""
    rows = []
    for nodes in SIZES:
        began = time.monotonic()
        try:
            with bed_of(nodes, f"{folder}/{nodes}") as bed:
                started = time.monotonic() - began
                idle = _idle(bed)
                found = bed.run(
                    "uniform", rounds=5, seed=1, records=Path(folder, f"records-{nodes}"), timeout=5 * ROUND_SECONDS
                )
                medians = medians_of(reported(bed, found.rounds, "uniform", "paper"))
                memory = sum(_of_each(bed, lambda process: process.memory_full_info().uss).values())
        except ProcessError as error:
            rows.append([f"{nodes}", str(error).splitlines()[0][:120], *"-" * 4])
            continue
        rows.append([
            f"{nodes}", f"{started:.0f}", f"{idle:.2f}", f"{memory / 2**30:.1f}", f"{medians.upload_error:.1%}",
            f"{medians.overhead:.2f}",
        ])  # fmt: skip
    headings = [
        "nodes", "until all are connected (s)", "cores in use while nothing runs", "memory (GiB)",
        "uploads off the predicted time: median", "engine's overhead of a round (s)",
    ]  # fmt: skip
    return f"K = 4, 1 MB, 5 rounds, {os.cpu_count()} cores.\n\n" + str(Table.from_rows(headings, rows))


def _idle(bed: Testbed) -> float:
    """Return how many cores the testbed's processes take while they wait for work."""
    before = _of_each(bed, lambda process: sum(process.cpu_times()[:2]))
    time.sleep(IDLE_SECONDS)
    after = _of_each(bed, lambda process: sum(process.cpu_times()[:2]))
    return sum(after[one] - before.get(one, 0.0) for one in after) / IDLE_SECONDS


def _of_each(bed: Testbed, measure: Callable[[psutil.Process], float]) -> dict[psutil.Process, float]:
    """Return something about each process of the testbed, its children included."""
    roots = [psutil.Process(one.pid) for one in (bed.superlink, *bed.nodes) if one.pid is not None]
    found = {}
    for process in (one for root in roots for one in (root, *root.children(recursive=True))):
        with suppress(psutil.Error):
            found[process] = measure(process)
    return found


def policies(folder: str, runs: int) -> str:
    """Return the real seconds to a target loss, and where they go."""
    rows = []
    with bed_of(10, folder, policy={"proposed": {"losses": [2.2, 2.0, 1.8]}}) as bed:
        for policy in POLICIES:
            for seed in range(runs):
                over = {"stop": {"target_loss": TARGET}, "training": {"link": "shared"}}
                rounds = MOST_ROUNDS if policy == "uniform" else 10 * MOST_ROUNDS
                found = bed.run(
                    policy, rounds=rounds, seed=seed, records=Path(folder, f"{policy}-{seed}"), over=over,
                    timeout=rounds * ROUND_SECONDS,
                )  # fmt: skip
                rows.append([policy, f"{seed}", *_times(found.rounds, found.summary)])
                print(rows[-1], flush=True)
    headings = [
        "policy", "seed", f"seconds to loss {TARGET:g}", "of them pilots", "steps", "uploads", "uploading (s)",
        "computing alone (s)", "engine (s)",
    ]  # fmt: skip
    return (
        f"10 nodes, Setup 1's data, K = 4, 1 MB, a shared link, real seconds, {runs} runs of each policy. Uploading: "
        "some upload is under way. Computing alone: no upload, but some node computes. Engine: the rest, in which "
        "Flower starts processes and passes messages on.\n\n" + str(Table.from_rows(headings, rows))
    )


def _times(rounds: Sequence[RoundRecord], summary: Summary) -> list[str]:
    """Return the seconds to the target, and what they went to."""
    total = summary.time + summary.pilot_time
    uploading, working, began = list[Interval](), list[Interval](), 0.0
    for record in rounds:
        for computing, sending, end in _work(record):
            uploading.append((began + sending, began + end))
            working.append((began + computing, began + end))
        began += record.round_time
    reached, transfer, devices = summary.time_to_loss, _covered(uploading), _covered(working)
    seconds = f"> {total:,.0f}" if reached is None else f"{reached + summary.pilot_time:,.0f}"
    numbers = (summary.pilot_time, len(rounds), len(uploading), transfer, devices - transfer, total - devices)
    return [seconds, *(f"{number:,.0f}" for number in numbers)]


def _work(record: RoundRecord) -> list[tuple[float, float, float]]:
    """Return when each member began to compute and to upload, and when it was done, in seconds of the step."""
    computed = dict(zip(record.members, record.compute_time, strict=True))
    sent = [(one.end - one.seconds, one.end, computed[client] or 0.0) for client, one in uploads_in(record).items()]
    return [(start - seconds, start, end) for start, end, seconds in sent]


def _covered(intervals: Sequence[Interval]) -> float:
    """Return the seconds that some interval covers."""
    total, until = 0.0, -np.inf
    for start, end in sorted(intervals):
        total += max(end - max(start, until), 0.0)
        until = max(until, end)
    return total


def faults(folder: str, seed: int) -> str:
    """Kill three of ten nodes and the SuperLink at random moments; return what the records say."""
    rng, events = random.Random(seed), list[str]()
    began = time.monotonic()

    def note(what: str) -> None:
        events.append(f"- {time.monotonic() - began:.0f} s: {what}")
        print(events[-1], flush=True)

    with bed_of(10, folder) as bed:
        began = time.monotonic()
        victims = rng.sample(range(10), 3)
        killing = threading.Thread(target=_kill_nodes, args=(bed, victims, rng, note), daemon=True)
        killing.start()
        killer = threading.Timer(rng.uniform(60, 120), lambda: (note("the SuperLink is killed"), bed.superlink.kill()))
        killer.daemon = True
        killer.start()
        records, attempts = Path(folder, "run"), 0
        while True:
            attempts += 1
            try:
                found = bed.run("uniform", rounds=20, seed=seed, records=records, timeout=20 * ROUND_SECONDS)
                break
            except ProcessError as error:
                note(f"run {attempts} ended: {str(error).splitlines()[0][:100]}")
                if attempts == 5:
                    raise
                if not bed.superlink.running:
                    bed.superlink.start()
                    bed.superlink.wait_until_ready(60)
                    note("the SuperLink runs again")
        killer.cancel()
        killing.join(120)
    note(f"20 rounds are done, the loss is {found.summary.loss:.3f}")
    rows = [
        [f"{record.round}", ", ".join(map(str, record.members)), f"{record.round_time:.1f}", _failed(record)]
        for record in found.rounds
    ]
    return (
        f"10 nodes, K = 4, deadline {DEADLINE:g} s, seed {seed}.\n\n" + "\n".join(events) + "\n\n"
        + str(Table.from_rows(["round", "clients", "seconds", "failed"], rows))
    )  # fmt: skip


def bits(folder: str) -> str:
    """Return what uploads of 8 bits a number take against those of 32, of a model that has a megabyte itself."""
    rows = []
    data = {"kind": f"{Path(__file__).with_name('wide_data.py')}:wide_data", "clients": 10}
    training = {"local_steps": 5, "batch_size": 8, "step_size": 1.0, "schedule": "constant", "evaluate_every": 4}
    table = {
        "name": "wide", "data": data, "model": {"kind": "softmax"}, "times": TIMES, "stop": {"max_rounds": 1000},
        "training": {"cohort_size": COHORT_SIZE, "duplicates": "physical", **training},
    }  # fmt: skip
    with Testbed(TestbedSettings(table=table, model_bytes=MEGABYTE, deadline=DEADLINE), Path(folder)) as bed:
        for policy in ("uniform", "tempo"):
            for size in (32, 8):
                found = bed.run(
                    policy, rounds=BITS_ROUNDS, seed=1, records=Path(folder, f"{policy}-{size}"),
                    timeout=BITS_ROUNDS * ROUND_SECONDS, over={"training": {"upload_bits": size}},
                )  # fmt: skip
                rows.append([policy, f"{size}", *_uploads(bed, policy, found.rounds), f"{found.summary.loss:.2f}"])
                print(rows[-1], flush=True)
    headings = [
        "policy", "bits", "uploads", "bytes on the link", "predicted (s)", "measured (s)",
        "off the predicted time: median", "90 % quantile", "of all uploads", "seconds of a step", "loss",
    ]  # fmt: skip
    return (
        f"10 nodes, K = 4, a softmax regression of 250,000 numbers, 1 MB without ballast, {BITS_ROUNDS} steps of each "
        "run, the link paper for uniform. Bytes: of an upload in the median, with TLS and Flower's own. Seconds of an "
        "upload are means, under tempo those that it waits in line included. Of all uploads: measured over predicted "
        f"seconds, less 1. The load of the machine's {os.cpu_count()} cores was {os.getloadavg()[2]:.1f} over the last "
        "quarter of an hour.\n\n" + str(Table.from_rows(headings, rows))
    )


def _uploads(bed: Testbed, policy: str, rounds: Sequence[RoundRecord]) -> list[str]:
    """Return how many there were, their bytes, and predicted against measured seconds."""
    training, _ = for_policy(bed.experiment, policy)
    report = report_times(rounds, bed.fleet, training, bed.problem.upload_numbers)
    members = [member for one in report.rounds for member in one.members]
    predicted, measured = (
        np.array([getattr(one, f"{kind}_upload") for one in members]) for kind in ("predicted", "measured")
    )
    errors = np.abs(measured / predicted - 1)
    sent = np.median([one.size for record in rounds for one in uploads_in(record).values()])
    return [
        f"{len(members)}", f"{sent:,.0f}", f"{predicted.mean():.2f}", f"{measured.mean():.2f}",
        f"{np.median(errors):.1%}", f"{np.quantile(errors, 0.9):.1%}", f"{measured.sum() / predicted.sum() - 1:+.1%}",
        f"{mean(record.round_time for record in rounds):.1f}",
    ]  # fmt: skip


def _kill_nodes(bed: Testbed, victims: Sequence[int], rng: random.Random, note: Callable[[str], None]) -> None:
    """Kill nodes one after another; the first comes back."""
    for victim in victims:
        time.sleep(rng.uniform(10, 40))
        bed.nodes[victim].kill()
        note(f"node {victim} is killed")
    back = bed.nodes[victims[0]]
    back.start()
    back.wait_until_ready(200, insist=True)
    note(f"node {victims[0]} is connected again")


def _failed(record: RoundRecord) -> str:
    return "; ".join(f"{client}: {str(failure)[:60]}" for client, failure in failures_in(record).items())


def main() -> None:
    """Run one part, and write its page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("links", "sizes", "policies", "faults", "bits"))
    parser.add_argument("--runs", type=int, default=3, help="of each policy")
    parser.add_argument("--seed", type=int, default=1, help="of the faults")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedtempo-benchmark-") as folder:
        more = {"policies": (given.runs,), "faults": (given.seed,)}.get(given.part, ())
        page = {"links": links, "sizes": sizes, "policies": policies, "faults": faults, "bits": bits}[given.part](
            folder, *more
        )
    report = f"# Testbed: {given.part}\n\nMade by `python benchmarks/testbed.py {given.part}`. {page}\n"
    print(report)
    with whole_file(Path(__file__).with_name(f"testbed_{given.part}.md")) as stream:
        stream.write(report)


if __name__ == "__main__":
    main()
