"""Uploads of fewer bits on Flower nodes: the simulator's models, hostile bytes, and times of the size of reference."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.clientapp import ClientApp

from fedtempo import Fleet
from fedtempo.engine.records import RECORDS, read_records
from fedtempo.flower.app.client_app import app as client_app
from fedtempo.flower.link.shaping import Upload
from fedtempo.flower.strategy.failures import FailureKind
from fedtempo.flower.strategy.messages import (
    ARRAYS,
    MEASUREMENTS,
)
from fedtempo.flower.strategy.notes import failures_in
from fedtempo.flower.strategy.packing import UPLOAD
from fedtempo.learning.quantisation import upload_bytes, upload_share
from fedtempo.policies.policy import BufferedPlan, RoundPlan, Stateless
from fedtempo.policies.registry import BUILT_IN
from fedtempo.theory.bits import BITS
from support.flower_runs import (
    StoppedError,
    assert_same_to,
    grid_of,
    nodes_of,
    problem_of,
    simulated,
    stop_after,
    train,
    with_training,
)

ON_NODES = [name for name in BUILT_IN if name != "proposed-oracle"]  # which must know what no node reports
SYNCHRONOUS = ["uniform", "weighted", "full", "kvib", "clustered", "ocs", "power-of-choice"]
SAME = ("members", "counts", "weights", "upload_bits")


@pytest.fixture
def eight(config):
    """The small experiment with uploads of 8 bits."""
    return with_training(config, "upload_bits = 8")


@pytest.mark.parametrize("policy", ON_NODES)
def test_with_eight_bits_records_and_model_are_those_of_the_simulator(eight, policy):
    expected, model = simulated(eight, policy)
    run = train(eight, policy, clock="simulated")
    assert_same_to(run.rounds, expected)
    np.testing.assert_array_equal(run.model, model)
    assert {bits for record in run.rounds for bits in record.upload_bits} == {8}


@pytest.mark.parametrize("bits", [*BITS, '"auto"'])
@pytest.mark.parametrize("policy", ["weighted", "tempo", "ocs"])
def test_with_any_bits_records_and_model_are_those_of_the_simulator(config, policy, bits):
    with_training(config, f"upload_bits = {bits}")
    expected, model = simulated(config, policy, rounds=5)
    run = train(config, policy, clock="simulated", rounds=5)
    assert_same_to(run.rounds, expected)
    np.testing.assert_array_equal(run.model, model)


@pytest.mark.parametrize("policy", SYNCHRONOUS)
def test_on_the_wall_clock_cohorts_and_models_of_eight_bits_are_those_of_the_simulator(eight, policy):
    expected, model = simulated(eight, policy)
    run = train(eight, policy)
    for record, other in zip(run.rounds, expected, strict=True):
        for name in SAME:
            np.testing.assert_allclose(record[name], other[name], rtol=1e-6)
    np.testing.assert_allclose(run.model, model, atol=1e-6)


@pytest.mark.parametrize("policy", [name for name in ON_NODES if name not in SYNCHRONOUS])
def test_other_policies_train_with_eight_bits_on_the_wall_clock(eight, policy):
    run = train(eight, policy, rounds=8)
    assert run.summary.rounds == 8
    assert {bits for record in run.rounds for bits in record.upload_bits} == {8}
    assert all(0 < noise < 0.01 for record in run.rounds for noise in record.quantisation_noise)
    assert not any(record.failed for record in run.rounds)
    assert run.rounds[-1].loss < run.rounds[0].loss


def uploads_seen(sizes):
    """Return the ready app, of which the bytes of each reply's arrays are noted."""

    def note(message, context):
        reply = client_app(message, context)
        if ARRAYS in reply.content:
            sizes.append(sum(array.numpy().nbytes for array in reply.content[ARRAYS].values()))
        return reply

    app = ClientApp()
    app.train()(note)
    app.evaluate()(client_app)
    return app


def test_what_travels_are_the_packed_bytes(eight):
    sizes = []
    train(eight, "full", grid_of(eight, "full", app=uploads_seen(sizes)), rounds=1)
    assert set(sizes) == {upload_bytes(8, problem_of(eight).trainer.num_parameters)}


def hostile(how):
    """Return the ready app, whose client 2 packs its update in another way than it was asked to."""

    def spoil(message, context):
        reply = client_app(message, context)
        if context.node_config["partition-id"] != 2:
            return reply
        data = reply.content[ARRAYS][UPLOAD].numpy().copy()
        if how == "a scale that is no number":
            data[8:12] = np.frombuffer(np.float32(np.nan).tobytes(), np.uint8)
        elif how == "an absurd scale":
            data[8:12] = np.frombuffer(np.float32(1e30).tobytes(), np.uint8)
        elif how == "a scale that no other has":
            data[8:12] = np.frombuffer(np.float32(1e12).tobytes(), np.uint8)
        elif how == "other bits":
            data[2] = 4
        elif how == "garbage":
            data = np.random.default_rng(0).integers(256, size=data.size, dtype=np.uint8)
        arrays = {UPLOAD: Array(data[:-3] if how == "too short" else data)}
        if how == "no bytes":
            arrays[UPLOAD] = Array("uint8", (len(data),), "numpy.ndarray", b"no array at all")
        reply.content[ARRAYS] = ArrayRecord(arrays)
        return reply

    app = ClientApp()
    app.train()(spoil)
    return app


def raising(message, context):
    if context.node_config["partition-id"] == 2:
        raise RuntimeError("no more memory")
    return client_app(message, context)


HOSTILE = {
    "too short": "must have",
    "other bits": "begin with the header",
    "a scale that is no number": "scales of an upload must be from 0 to",
    "an absurd scale": "scales of an upload must be from 0 to",
    "a scale that no other has": "an update of norm",
    "garbage": "begin with the header",
    "no bytes": "",
}


@pytest.mark.parametrize("how", HOSTILE)
def test_hostile_bytes_leave_the_model_as_if_their_client_had_failed(eight, how):
    failed = ClientApp()
    failed.train()(raising)
    found = []
    for app in (hostile(how), failed):
        grid = grid_of(eight, "full", app=app)
        found.append(train(eight, "full", grid, rounds=2, nodes=nodes_of(grid)))
    run, other = found
    assert [record.failed for record in run.rounds] == [[2], [2]]
    failure = failures_in(run.rounds[0])[2]
    assert failure.kind is FailureKind.REFUSED
    assert HOSTILE[how] in failure.detail
    np.testing.assert_array_equal(run.model, other.model)


def test_noise_that_a_client_makes_up_reaches_nobody(eight):
    def lie(message, context):
        reply = client_app(message, context)
        if context.node_config["partition-id"] == 2:
            for name in ("noise-8-bits", "noise-2-bits"):
                reply.content[MEASUREMENTS][name] = 1e9
        return reply

    app = ClientApp()
    app.train()(lie)
    grid = grid_of(eight, "full", app=app)
    (record,) = train(eight, "full", grid, rounds=1, nodes=nodes_of(grid)).rounds
    noise = dict(zip(record.members, record.quantisation_noise, strict=True))
    assert noise.pop(2) is None
    assert all(0 < one < 0.01 for one in noise.values())


class OwnBits(Stateless):
    """Names the bits of each member."""

    def __init__(self, setting):
        self.size = len(setting.fleet)

    def plan(self, context):
        members = np.arange(3)
        return RoundPlan(members=members, weights=np.full(3, 1 / 3), upload_bits=[4, 32, 8])


class OwnBitsInFlight(OwnBits):
    def plan(self, context):
        idle = context.available_clients(self.size)[:2]
        return BufferedPlan(start=idle, weights=np.full(len(idle), 0.3), wait_for=2, upload_bits=[2, 16][: len(idle)])


@pytest.mark.parametrize("policy", [OwnBits, OwnBitsInFlight])
@pytest.mark.parametrize("clock", ["wall", "simulated"])
def test_a_policy_names_the_bits_of_each_client(config, policy, clock):
    sizes = []
    grid = grid_of(config, "uniform", app=uploads_seen(sizes))
    run = train(config, policy, grid, clock=clock, options={}, rounds=2)
    numbers, named = problem_of(config).trainer.num_parameters, {OwnBits: [4, 32, 8], OwnBitsInFlight: [2, 16]}[policy]
    assert sorted(sizes[: len(named)]) == sorted(upload_bytes(one, numbers) for one in named)
    assert [sorted(record.upload_bits) for record in run.rounds] == [sorted(named)] * 2


class TwoSeconds:
    """A link on which each upload takes two seconds, one after another."""

    def __init__(self):
        self.shares, self.free = [], 0.0

    def allot(self, members, mode, shares=None):
        self.shares.append(shares)

    def measured(self, clients):
        found = {}
        for client in clients:
            found[client] = Upload(self.free, self.free + 2.0, 1000)
            self.free += 2.0
        return found


@pytest.mark.parametrize(("usual", "reference"), [(32, 32), ("auto", 32), (8, 8)])
def test_measured_times_are_brought_to_the_size_of_reference(config, usual, reference):
    """Uploads of 4, 32 and 8 bits took two seconds each: learners see what the size of reference would have taken."""
    grid = grid_of(config, "uniform")
    run = train(config, OwnBits, grid, options={}, rounds=1, uplink=TwoSeconds(), link="shared", upload_bits=usual)
    numbers = problem_of(config).trainer.num_parameters
    sizes = [upload_share(bits, numbers) / upload_share(reference, numbers) for bits in (4, 32, 8)]
    np.testing.assert_allclose(run.rounds[0].upload_time, 2.0 / np.array(sizes), rtol=1e-9)


def test_shares_of_the_link_are_those_of_the_bytes_that_travel(config):
    """Where all end together, who sends an eighth of the bytes needs a smaller share than with all of them."""
    fleet = Fleet([0.1] * 10, [1.0] * 10, [1.0] * 10, [2.0] * 10)
    link = TwoSeconds()
    grid = grid_of(config, "uniform")
    train(config, OwnBits, grid, options={}, rounds=1, uplink=link, link="paper", duplicates="physical", fleet=fleet)
    four, whole, eight = link.shares[0]
    numbers = problem_of(config).trainer.num_parameters
    assert four / whole == pytest.approx(upload_share(4, numbers), rel=1e-6)
    assert eight / whole == pytest.approx(upload_share(8, numbers), rel=1e-6)


@pytest.mark.parametrize("policy", ["weighted", "ocs"])
def test_on_the_wall_clock_a_stopped_run_goes_on_with_the_same_bits_and_model(eight, tmp_path, policy):
    with pytest.raises(StoppedError):
        train(eight, policy, rounds=5, records=tmp_path / "run", progress=stop_after(2))
    model = train(eight, policy, rounds=5, records=tmp_path / "run").model
    whole = train(eight, policy, rounds=5, records=tmp_path / "whole").model
    stopped, undisturbed = (read_records(tmp_path / name / RECORDS).rounds for name in ("run", "whole"))
    assert [[one[name] for name in SAME] for one in stopped] == [[one[name] for name in SAME] for one in undisturbed]
    np.testing.assert_array_equal(model, whole)
