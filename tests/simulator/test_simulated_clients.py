"""Simulated clients: who fails, what a probe, a download and the link cost."""

import numpy as np
import pytest

from fedtempo.learning.batches import Batches
from fedtempo.learning.softmax import SoftmaxTrainer
from fedtempo.learning.trainer import LocalWork
from fedtempo.policies.policy import RoundPlan, Stateless
from fedtempo.simulator.absences import WithAbsences
from fedtempo.simulator.channel import StaticChannel
from support.simulations import Asking, loop_of, run


class Everyone(Stateless):
    """Plan for all clients, whether they are there or not."""

    def __init__(self, data_share):
        self.data_share = data_share

    def plan(self, context):
        return RoundPlan(members=np.arange(len(self.data_share)), weights=self.data_share)


def test_absent_clients_fail_take_no_time_and_do_not_count(data, times):
    from fedtempo import cohort_round_time

    trainer, channel = SoftmaxTrainer(data), WithAbsences(StaticChannel(**times), present_share=0.5, seed=3)
    running = loop_of(
        data, times, Everyone(data.data_share), channel=channel, trainer=trainer, rounds=1, weight_decay=0.01
    )
    before = running.model.copy()
    record = next(running.rounds())
    there = np.setdiff1d(np.arange(12), record["failed"])
    assert 0 < there.size < 12
    assert record["update_norm"][record["failed"][0]] is None
    assert record["round_time"] == pytest.approx(
        cohort_round_time(times["compute_time"][there], times["upload_time"][there])
    )
    batches = Batches(data.offsets, batch_size=24, seed=0)
    work = LocalWork(
        start=np.zeros_like(there), rows=batches.draw(there, 0, 5), local_steps=np.full_like(there, 5),
        step_size=np.full(there.size, 0.1), weight_decay=0.01,
    )  # fmt: skip
    update = trainer.train(before[None], work).update
    np.testing.assert_allclose(running.model, before + data.data_share[there] @ update, atol=1e-6)


def test_a_probe_is_answered_and_its_time_charged(data, times):
    from fedtempo import cohort_round_time

    tau, t = times["compute_time"], times["upload_time"]
    norms = run(data, times, Asking("update_norm"), rounds=1).records[0]
    members = np.array(norms["members"])
    upload_only = cohort_round_time(np.zeros(2), t[members])
    assert norms["round_time"] == pytest.approx(tau[[3, 1, 8, 6]].max() + upload_only)
    losses = run(data, times, Asking("loss"), rounds=1).records[0]
    passes = data.sizes[[3, 1, 8, 6]] / 24 / 5
    chosen = np.array(losses["members"])
    expected = (tau[[3, 1, 8, 6]] * passes).max() + cohort_round_time(tau[chosen], t[chosen])
    assert losses["round_time"] == pytest.approx(expected)
    full = run(data, times, "full", rounds=1).records[0]
    best = sorted([3, 1, 8, 6], key=lambda i: -full["update_norm"][i])[:2]
    assert norms["members"] == sorted(best)


def test_a_download_delays_the_round(data, times):
    slow = times | {"download_time": np.full(12, 5.0)}
    runs = [next(loop_of(data, of_clients, "weighted", cohort_size=4).rounds()) for of_clients in (times, slow)]
    assert runs[1]["round_time"] == pytest.approx(runs[0]["round_time"] + 5.0)


def test_link_duplicates_caps_and_total_bandwidth_reach_the_clock(data, times):
    from fedtempo import cohort_round_time

    settings = {"total_bandwidth": 0.5, "bandwidth_cap": np.linspace(0.05, 0.3, 12)}
    for link in ("paper", "equal", "shared"):
        for duplicates in ("paper", "physical"):
            for record in run(data, times, link=link, duplicates=duplicates, **settings).records:
                members = np.array(record["members"])
                draws = np.array(record["counts"]) if duplicates == "paper" else 1
                cap = settings["bandwidth_cap"][members]
                work = draws * times["upload_time"][members]
                if link == "equal":
                    share = np.minimum(0.5 * draws / np.sum(draws * np.ones(members.size)), cap)
                    expected = (times["compute_time"][members] + work / share).max()
                else:
                    expected = cohort_round_time(
                        times["compute_time"][members], work, 0.5, link=link, bandwidth_cap=cap
                    )
                assert record["round_time"] == pytest.approx(expected)


def test_a_probe_sends_the_model_once(data, times):
    for ask in ("loss", "update_norm"):
        near, far = (
            run(data, times, Asking(ask), rounds=1, download_time=np.full(12, seconds)).records[0]["round_time"]
            for seconds in (0.0, 5.0)
        )
        assert far == pytest.approx(near + 5.0)
