"""A federation of real processes: SuperLink, SuperNodes with TLS and keys, uploads through the link."""

import json
from contextlib import ExitStack, suppress
from dataclasses import replace

import numpy as np
import psutil
import pytest

from fedtempo.engine.records import RECORDS, RoundRecord, read_records
from fedtempo.experiments.running.runner import simulation_of
from fedtempo.experiments.settings.config import for_policy, make_experiment
from fedtempo.experiments.settings.decode import merged
from fedtempo.flower.app.model_arrays import MODEL
from fedtempo.flower.app.run_config import RunConfig
from fedtempo.flower.credentials import make_node_key
from fedtempo.flower.strategy.model_file import MODEL_FILE
from fedtempo.flower.strategy.notes import uploads_in
from fedtempo.flower.testbed.federation import APP, Testbed
from fedtempo.flower.testbed.report import report_times
from fedtempo.flower.testbed.settings import TestbedSettings
from fedtempo.flower.testbed.supernode import SuperNode
from fedtempo.learning.quantisation import upload_share
from support.processes import TABLE, eventually

DEADLINE, SHORT_DEADLINE = 40.0, 25.0


IN_ONE_PROCESS = pytest.mark.xdist_group("testbed")  # which then starts the nodes once


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    with Testbed(
        TestbedSettings(table=TABLE, model_bytes=200_000, deadline=DEADLINE), tmp_path_factory.mktemp("bed")
    ) as bed:
        yield bed
        begun = [process for one in (bed.superlink, *bed.nodes) if one.pid for process in tree(one.pid)]
    assert begun
    left = [p for p in begun if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert not left, "processes are left behind"


def tree(pid):
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def servers_of_forks(node):
    """Return how many processes fork ClientApps; a fork that is about to end looks like them, but for its parent."""
    found = 0
    for process in tree(node.pid):
        with suppress(psutil.Error):
            commands = [" ".join(one.cmdline()) for one in (process, process.parent())]
            found += "testbed.forks" in commands[0] and "testbed.forks" not in commands[1]
    return found


def simulated(policy, seed, rounds=3, **training):
    experiment = make_experiment(merged(TABLE, {"stop": {"max_rounds": rounds}, "training": training}))
    simulation = simulation_of(experiment, policy, seed)
    return list(simulation.rounds()), simulation.model


@IN_ONE_PROCESS
def test_a_deployment_trains_as_the_simulator_does(bed, tmp_path):
    """The same cohorts, weights and model; uploads take what their shares say, in the median within 15 %."""
    expected, model = simulated("weighted", 4)
    found = bed.run("weighted", rounds=3, seed=4, records=tmp_path / "run", timeout=240)
    for record, other in zip(found.rounds, expected, strict=True):
        assert record.members == other.members
        np.testing.assert_allclose(record.weights, other.weights, rtol=1e-12)
        np.testing.assert_allclose(record.update_norm, other.update_norm, rtol=1e-4)
        assert record.loss == pytest.approx(other.loss, rel=1e-5)
    assert found.summary.end == "max_rounds"
    training, _ = for_policy(bed.experiment, "weighted")
    report = report_times(found.rounds, bed.fleet, training)
    assert (report.nodes, report.refused, report.failures) == (3, 0, 0)
    uploads = [member for one in report.rounds for member in one.members]
    assert len(uploads) == sum(len(record.members) for record in found.rounds)
    errors = [one.measured_upload / one.predicted_upload - 1 for one in uploads]
    assert min(errors) > -0.15, "nobody uploads faster than its share"
    assert np.median(np.abs(errors)) < 0.15
    with np.load(tmp_path / "run" / MODEL_FILE) as saved:
        np.testing.assert_allclose(saved[MODEL], model, atol=1e-5)
    drawn = {client for record in found.rounds for client in record.members}
    assert [servers_of_forks(bed.nodes[client]) for client in drawn] == [1] * len(drawn)
    assert not any("Start `flwr-clientapp` process" in node.log for node in bed.nodes), "ClientApps are forks"


@pytest.mark.slow
@IN_ONE_PROCESS
def test_uploads_of_eight_bits_put_a_quarter_of_the_bytes_on_the_link(bed, tmp_path):
    """The same cohorts and the simulator's model, and uploads that take as much less time as was predicted."""
    expected, model = simulated("weighted", 4, upload_bits=8)
    training, _ = for_policy(bed.experiment, "weighted")
    found, sizes = {}, {}
    for bits in (32, 8):
        folder = tmp_path / f"{bits}"
        over = {"training": {"upload_bits": bits}}
        found[bits] = bed.run("weighted", rounds=3, seed=4, records=folder, timeout=240, over=over).rounds
        sizes[bits] = [one.size for record in found[bits] for one in uploads_in(record).values()]
    assert [one.members for one in found[8]] == [one.members for one in found[32]] == [one.members for one in expected]
    share = upload_share(8, *bed.problem.upload_numbers)
    assert np.median(sizes[8]) / np.median(sizes[32]) == pytest.approx(share, abs=0.05)
    with np.load(tmp_path / "8" / MODEL_FILE) as saved:
        np.testing.assert_allclose(saved[MODEL], model, atol=1e-6)
    report = report_times(found[8], bed.fleet, training, bed.problem.upload_numbers)
    assert (report.refused, report.failures) == (0, 0)
    errors = [one.measured_upload / one.predicted_upload - 1 for each in report.rounds for one in each.members]
    assert np.median(np.abs(errors)) < 0.25, "on a busy machine, where a quarter of 200 kB is soon through"


@pytest.mark.slow
@IN_ONE_PROCESS
def test_a_killed_node_costs_a_deadline_and_no_more(bed, tmp_path, monkeypatch):
    """It still counts as connected for a while, so it is asked; the round ends without it, and training goes on."""
    monkeypatch.setattr(bed, "settings", replace(bed.settings, deadline=SHORT_DEADLINE))

    def kill_one(line):
        if isinstance(line, RoundRecord) and bed.nodes[0].running:
            bed.nodes[0].kill()

    found = bed.run("full", rounds=2, seed=1, records=tmp_path / "run", timeout=240, show=kill_one)
    assert found.summary.rounds == 2
    first, second = found.rounds
    assert 0 not in first.failed
    assert 0 in second.failed or 0 not in second.members
    assert all(set(record.failed) <= {0} for record in found.rounds), "the others are not lost with it"
    assert all(record.round_time < SHORT_DEADLINE + 30 for record in found.rounds)
    assert second.loss < first.loss


@pytest.mark.slow
def test_another_device_takes_the_place_of_one_that_died(tmp_path):
    """With a key and an id of its own, and the partition of the old one; the run goes on meanwhile."""
    records, settings = tmp_path / "run", TestbedSettings(table=TABLE, model_bytes=100_000, deadline=SHORT_DEADLINE)
    with ExitStack() as stack:
        bed = stack.enter_context(Testbed(settings, tmp_path / "bed"))
        config = RunConfig(
            experiment=json.dumps(TABLE), policy="full", rounds=12, records=str(records), deadline=SHORT_DEADLINE
        )
        run_id = bed.superlink.start_run(APP, config.as_flower())
        eventually((records / "checkpoint.npz").exists)
        bed.nodes[2].kill()
        key = make_node_key(tmp_path / "bed" / "keys" / "new")
        node_id = bed.superlink.register(key.public)
        place = {"partition-id": 2}, {"folder": tmp_path / "new", "ca_certificate": bed.credentials.ca_certificate}
        stack.enter_context(SuperNode(9, key.private, f"{bed.host}:{bed.superlink.port}", place[0], **place[1]))
        eventually(lambda: bed.superlink.run_status(run_id)[0] == "completed", 300.0)
        assert f"node {node_id} takes the place of client 2" in bed.superlink.run_log(run_id)
    rounds = read_records(records / RECORDS).rounds
    assert any(2 in record.failed or 2 not in record.members for record in rounds)
    assert 2 in rounds[-1].members
    assert not rounds[-1].failed


def test_making_a_testbed_starts_nothing_and_loads_nothing(tmp_path, monkeypatch):
    def work(*arguments):
        raise AssertionError("a constructor does no work")

    monkeypatch.setattr("fedtempo.flower.testbed.federation.assemble", work)
    bed = Testbed(TestbedSettings(table=TABLE), tmp_path / "bed")
    assert bed.num_nodes == 3
    assert not (tmp_path / "bed").exists()
    with pytest.raises(AssertionError):
        bed.make_policy("uniform")
