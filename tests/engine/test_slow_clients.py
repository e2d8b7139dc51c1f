"""The loss of the clients that upload slowest, in the summary of runs that are asked for it."""

import numpy as np
import pytest

from fedtempo import Fleet, InputError
from fedtempo.engine.records import Summary, decode_line, encode
from fedtempo.engine.settings import TrainingSettings
from fedtempo.engine.slow_clients import mean_loss, slowest
from support.simulations import loop_of


def fleet_of(upload_time):
    number = len(upload_time)
    return Fleet(np.full(number, 1 / number), 1.0, compute_time=1.0, upload_time=upload_time)


@pytest.mark.parametrize(
    ("upload_time", "share", "expected"),
    [([1.0, 3.0, 2.0], 0.1, [1]), ([1.0, 3.0, 2.0], 0.5, [1, 2]), ([1.0, 3.0, 2.0], 1.0, [0, 1, 2]),
     ([2.0, 2.0, 2.0], 0.4, [0, 1]), (np.arange(1.0, 31.0), 0.1, [27, 28, 29]), ([5.0], 0.1, [0])],
)  # fmt: skip
def test_the_slowest_are_those_with_the_longest_uploads(upload_time, share, expected):
    assert slowest(fleet_of(upload_time), share).tolist() == expected


def test_their_loss_is_weighted_by_data():
    assert mean_loss(np.array([1.0, 4.0]), np.array([0.3, 0.1])) == pytest.approx(1.75)
    assert mean_loss(np.array([1.0, np.inf]), np.array([0.3, 0.1])) is None


@pytest.mark.parametrize("server_average", [0.0, 0.8])
def test_the_summary_has_the_loss_of_the_model_that_the_run_returns(data, times, server_average):
    loop = loop_of(data, times, "weighted", slow_share=0.25, server_average=server_average)
    list(loop.rounds())
    who = np.argsort(-loop.fleet.upload_time)[: int(np.ceil(0.25 * data.num_clients))]
    losses = loop.clients.workers.trainer.client_losses(loop.model, np.sort(who))
    shares = loop.fleet.data_share[np.sort(who)]
    summary = loop.summary()
    assert summary.slow_loss == pytest.approx(float((losses * shares).sum() / shares.sum()))
    line = decode_line(encode(summary), "records", "the last line")
    assert isinstance(line, Summary)
    assert line == summary


def test_of_all_clients_it_is_the_loss(data, times):
    loop = loop_of(data, times, "weighted", slow_share=1.0)
    list(loop.rounds())
    assert loop.summary().slow_loss == pytest.approx(loop.summary().loss, rel=1e-5)


def test_runs_that_are_not_asked_have_no_such_field(data, times):
    loop = loop_of(data, times, "weighted")
    list(loop.rounds())
    assert "slow_loss" not in loop.summary()
    assert b"slow_loss" not in encode(loop.summary())
    with pytest.raises(InputError, match="slow_share must"):
        TrainingSettings(cohort_size=1, slow_share=1.5)
