"""Error feedback: what is not sent is kept and sent later; against a reference that can be read, and in whole runs."""

import numpy as np
import pytest
from scipy.linalg import hadamard

from fedtempo.engine.clients import Start
from fedtempo.engine.settings import TrainingSettings
from fedtempo.learning.quantisation import BLOCK, Quantiser, _signed, _words
from fedtempo.learning.sparsification import count_sent, sparse_share
from fedtempo.simulator.workers import LocalWorkers
from support.simulations import goes_on_alike, loop_of, run

WAYS = {"top": {"upload_top": 0.05}, "bits": {"upload_bits": 4}}


def largest(x, share, sent):
    """Return x with all but its largest numbers put to 0; of numbers as large as each other, those that were sent."""
    kept = np.zeros_like(x)
    places = np.lexsort((sent == 0, -np.abs(x)))[: count_sent(share, x.size)]
    kept[places] = x[places]
    return kept


def nearest(x, bits, quantiser, client, round_index):
    """Return x with each block, with the signs that are drawn, rotated and rounded to the nearest of its levels."""
    words, sent = _words(quantiser.key, client, np.uint64(round_index)), np.zeros_like(x)
    for first in range(0, x.size, BLOCK):
        block, signs = x[first : first + BLOCK], np.ones(BLOCK, np.float32)
        _signed(words, first, signs)
        size = 1 << (block.size - 1).bit_length()
        turn, signs = hadamard(size) / np.sqrt(size), signs[: block.size]
        turned = turn[:, : block.size] @ (signs * block).astype(np.float64)
        scale = np.abs(turned).max() or 1.0
        step = 2 * scale / (2**bits - 1)
        level = np.floor((turned + scale) / step + 0.5)
        sent[first : first + BLOCK] = signs * (turn[:, : block.size].T @ (level * step - scale))
    return sent


def compressed(x, training, sent, *drawn):
    if "upload_top" in training:
        return largest(x, training["upload_top"], sent)
    return nearest(x, training["upload_bits"], *drawn)


class Watched(LocalWorkers):
    """Workers that note each whole update beside what was sent of it."""

    def __init__(self, inner):
        super().__init__(inner.trainer, inner.batches, inner.training, inner.quantiser)
        self.whole, self.sent, self.drawn = {}, {}, {}

    def _sent(self, result, work, round_index):
        found = super()._sent(result, work, round_index)
        for place, client in enumerate(work.clients.tolist()):
            self.whole.setdefault(client, []).append(result.update[place].copy())
            self.sent.setdefault(client, []).append(found.update[place].copy())
            self.drawn.setdefault(client, []).append((self.quantiser, client, round_index))
        return found


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


@pytest.mark.parametrize("policy", ["weighted", "fedbuff"])
def test_clients_do_what_the_reference_does(data, times, way, policy):
    """e = 0; for each update Δ: x = Δ + e is cut or rounded to C(x), which is sent, and e = x - C(x)."""
    loop = loop_of(data, times, policy, rounds=12, error_feedback=True, **way)
    workers = loop.clients.workers = Watched(loop.clients.workers)
    list(loop.rounds())
    assert max(map(len, workers.whole.values())) > 2
    for client, updates in workers.whole.items():
        rest = np.zeros_like(updates[0])
        for update, sent, drawn in zip(updates, workers.sent[client], workers.drawn[client], strict=True):
            x = update + rest
            np.testing.assert_allclose(sent, compressed(x, way, sent, *drawn), rtol=1e-6, atol=1e-6 * np.abs(x).max())
            rest = x - sent
        kept = loop.clients.state.rest.by_client[client]
        np.testing.assert_array_equal(kept, rest)
        total = np.sum(updates, axis=0, dtype=np.float64)
        np.testing.assert_allclose(np.sum(workers.sent[client], axis=0) + kept, total, rtol=1e-5, atol=1e-7)
    assert set(loop.clients.state.rest.by_client) == set(workers.whole), "memory for those alone who were drawn"


def test_without_feedback_nothing_is_kept_and_much_is_lost(data, times):
    plain, fed = (
        loop_of(data, times, "full", rounds=8, upload_top=0.01, error_feedback=feedback) for feedback in (False, True)
    )
    losses = [[record["loss"] for record in loop.rounds()] for loop in (plain, fed)]
    assert plain.clients.state.rest.by_client == {}
    assert losses[0][0] == losses[1][0], "there is nothing to feed back yet"
    assert losses[1][-1] < losses[0][-1]


def test_who_uploads_nothing_keeps_all_it_had(data, times):
    """A deadline cuts the slowest off: what they did not send is what it was before."""
    loop = loop_of(data, times, "weighted", rounds=3, upload_top=0.05, error_feedback=True)
    rounds = loop.rounds()
    next(rounds)
    before = {client: row.copy() for client, row in loop.clients.state.rest.by_client.items()}
    begun = loop.clients.begin(loop._start())
    from fedtempo.policies.policy import RoundPlan

    members = np.arange(12)
    deadline = float(np.median(times["compute_time"]))
    done = begun.train(RoundPlan(members=members, weights=np.full(12, 1 / 12), deadline=deadline))
    assert done.failed.any()
    after = loop.clients.state.rest.by_client
    for client in members[done.failed].tolist():
        assert (client in after) == (client in before)
        if client in before:
            np.testing.assert_array_equal(after[client], before[client])
    assert set(members[~done.failed].tolist()) <= set(after)


def test_nothing_is_kept_from_before_a_restart(data, times):
    """Pilots end at w₀ again: what was not sent of their updates belongs to no model that is trained now."""
    loop = loop_of(
        data,
        times,
        "proposed",
        rounds=2,
        options={"losses": [2.0, 1.9], "max_rounds": 5},
        upload_top=0.05,
        error_feedback=True,
    )
    restarts = []
    for record in loop.rounds():
        members = len(loop.clients.state.rest.by_client)
        restarts.append(record["round"] == 0 and members == len(record["members"]) - len(record["failed"]))
    assert sum(restarts) >= 2


def test_uploads_take_the_time_of_their_bytes(data, times):
    whole, top = (run(data, times, "weighted", rounds=3, link="shared", **more) for more in ({}, WAYS["top"]))
    for one, other in zip(whole.records, top.records, strict=True):
        np.testing.assert_allclose(np.array(other["upload_time"]) / one["upload_time"], sparse_share(0.05, 610))
        assert other["round_time"] < one["round_time"]


def test_rounding_to_the_nearest_names_its_error():
    update = np.random.default_rng(0).standard_normal((2, 700)).astype(np.float32)
    rounded = [update.copy() for _ in range(2)]
    bits, clients = np.array([3, 8]), np.array([5, 6])
    noise = [Quantiser(0).round(copy, bits, clients, 0, nearest=True) for copy in rounded]
    np.testing.assert_array_equal(rounded[0], rounded[1])
    np.testing.assert_array_equal(noise[0], noise[1])
    for row, size in enumerate((1, 3)):
        error = np.sum((rounded[0][row] - update[row]) ** 2, dtype=np.float64) / np.sum(update[row] ** 2)
        assert noise[0][row, size] == pytest.approx(error, rel=0.15), "up to what falls on numbers that fill up a block"


@pytest.mark.parametrize("policy", ["weighted", "fedbuff", "tempo"])
def test_a_stopped_run_goes_on_to_the_byte(data, times, way, policy):
    goes_on_alike(lambda: loop_of(data, times, policy, rounds=6, error_feedback=True, **way), stops=(1, 3, 5))


def test_an_update_that_is_not_finite_ends_the_run_as_ever(data):
    training = TrainingSettings(cohort_size=1, upload_top=0.1, error_feedback=True)

    class Broken:
        def train(self, models, work):
            from fedtempo.learning.trainer import LocalResult

            nan = np.full((1, 610), np.nan, np.float32)
            return LocalResult(
                update=nan, largest_gradient_norm=np.ones(1), mean_gradient_norm=np.ones(1), mean_loss=np.ones(1)
            )

    from fedtempo.learning.batches import Batches
    from fedtempo.simulator.workers import Work

    workers = LocalWorkers(Broken(), Batches(data.offsets, batch_size=4, seed=0), training)
    start = Start(
        model=np.zeros(610, np.float32), buffers=np.empty(0), round_index=0, rounds_done=0, time=0.0, step_size=0.1
    )
    work = Work(
        clients=np.array([1]),
        local_steps=np.array([2]),
        step_size=np.array([0.1]),
        rest=np.zeros((1, 610), np.float32),
    )
    assert not np.isfinite(workers.train(work, start).update_norm[0])
