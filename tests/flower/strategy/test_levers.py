"""Levers of training on Flower nodes: means of models, optimisers, the server's direction, all of them together."""

import logging

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedtempo.engine.records import RECORDS
from fedtempo.flower.app.model_arrays import MODEL
from fedtempo.flower.strategy.layout import ALL_BUFFERS
from fedtempo.flower.strategy.messages import (
    ARRAYS,
    CONFIG,
    DIRECTION,
    LOCAL_DIRECTION,
    UPLOAD_BITS,
)
from support.flower_runs import (
    StoppedError,
    assert_same_to,
    grid_of,
    nodes_of,
    simulated,
    simulation_like,
    stop_after,
    train,
    with_training,
)
from support.runs import SMALL

LEVERS = [
    "server_average = 0.9",
    'server_optimiser = "adam"',
    'server_optimiser = "yogi"\nserver_step_size = 0.02',
    'server_optimiser = "fedexp"',
    "local_direction = 0.5",
    'local_direction = 0.3\nupload_bits = 4\nserver_average = 0.8\nserver_optimiser = "adam"',
]


@pytest.mark.parametrize("lines", LEVERS)
@pytest.mark.parametrize("policy", ["weighted", "tempo", "ocs"])
def test_other_levers_make_the_models_of_the_simulator(config, policy, lines):
    without = simulated(config, policy, rounds=4)[1]
    with_training(config, lines)
    expected, model = simulated(config, policy, rounds=4)
    run = train(config, policy, clock="simulated", rounds=4)
    assert_same_to(run.rounds, expected, rtol=1e-4)
    np.testing.assert_allclose(run.model, model, atol=1e-5)
    assert np.abs(run.model - without).max() > 1e-4, "the lever does nothing"


def test_statistics_of_batch_normalisation_travel_as_they_are(config):
    own = SMALL.replace('kind = "softmax"', 'kind = "support.modules:normed"')
    with_training(config, "upload_bits = 4\nlocal_direction = 0.5", own)
    simulation = simulation_like(config, "weighted", rounds=3)
    expected = list(simulation.rounds())
    run = train(config, "weighted", clock="simulated", rounds=3)
    np.testing.assert_allclose(run.model, simulation.model, atol=1e-5)
    np.testing.assert_allclose(run.result.arrays[ALL_BUFFERS].numpy(), simulation.buffers, atol=1e-5)
    assert [record.upload_bits for record in run.rounds] == [record.upload_bits for record in expected]


def bare(message: Message, context: Context) -> Message:
    """Train without the mod, and so without packing."""
    return Message(RecordDict({ARRAYS: message.content[ARRAYS]}), reply_to=message)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"upload_bits": 8},
            r"upload must be packed with 8 bits a number, got whole arrays; the ClientApp needs the mod",
        ),
        ({"local_direction": 0.5}, r"local_direction must be followed .* the ClientApp needs the mod tempo_client"),
    ],
)
def test_an_app_without_the_mod_ends_the_run_by_name(config, settings, said):
    app = ClientApp()
    app.train()(bare)
    grid = grid_of(config, "uniform", app=app)
    with pytest.raises(RuntimeError, match=said):
        train(config, "uniform", grid, rounds=20, nodes=nodes_of(grid), **settings)


@pytest.mark.parametrize("policy", ["weighted", "tempo", "ocs"])
def test_a_run_with_all_levers_that_was_stopped_goes_on_to_the_byte(config, tmp_path, monkeypatch, policy):
    monkeypatch.setattr("fedtempo.engine.run.CHECKPOINT_SECONDS", 0.0)
    with_training(
        config, 'upload_bits = "auto"\nserver_average = 0.8\nserver_optimiser = "yogi"\nlocal_direction = 0.3'
    )
    settings = {"records": tmp_path / "run", "clock": "simulated"}
    with pytest.raises(StoppedError):
        train(config, policy, rounds=6, **settings, progress=stop_after(3))
    model = train(config, policy, rounds=6, **settings).model
    whole = train(config, policy, rounds=6, records=tmp_path / "whole", clock="simulated").model
    assert (tmp_path / "run" / RECORDS).read_bytes() == (tmp_path / "whole" / RECORDS).read_bytes()
    np.testing.assert_array_equal(model, whole)


def test_clients_are_told_what_they_need_and_no_more(config, caplog):
    """Without levers, messages are as they were; a direction comes from the second step on."""
    caplog.set_level(logging.ERROR)
    plain = grid_of(config, "full")
    train(config, "full", plain, rounds=2, nodes=nodes_of(plain))
    for message in plain.sent:
        assert not {UPLOAD_BITS, LOCAL_DIRECTION} & set(message.content.config_records[CONFIG])
        assert list(message.content.array_records) == [ARRAYS]
    grid = grid_of(with_training(config, "local_direction = 0.5"), "full")
    train(config, "full", grid, rounds=2, nodes=nodes_of(grid))
    size = len(grid.contexts)
    assert [DIRECTION in message.content for message in grid.sent] == [False] * size + [True] * size
    (direction,) = grid.sent[-1].content[DIRECTION].values()
    assert direction.numpy().shape == grid.sent[-1].content[ARRAYS][MODEL].numpy().shape
