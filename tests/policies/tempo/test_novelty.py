"""What is new in what clients report: surprise, and how far directions agree."""

from dataclasses import replace

import numpy as np
import pytest

from fedtempo.learning.aggregation import Aggregator
from fedtempo.policies.policy import RoundPlan
from fedtempo.policies.tempo.novelty import Novelty, NoveltyState
from support.rounds import report_of


def novelty_of(*share):
    return Novelty(np.array(share), NoveltyState.at_first(len(share)), grows=True)


def test_the_agreement_is_the_cosine_of_what_was_reported_last_and_before():
    rng, novelty = np.random.default_rng(1), novelty_of(1.0)
    server, model = Aggregator(np.ones(1), memory=True), np.zeros(7, dtype=np.float32)
    reported = []
    for round_index in range(4):
        update = rng.standard_normal((1, 7)).astype(np.float32)
        step = server.apply(model, np.array([0]), update, np.ones(1), 0.5)
        reported.append(update[0])
        report = report_of(RoundPlan(members=[0], weights=[1.0]), round_index, 1.0)
        norm = float(np.linalg.norm(update))
        novelty.observe(
            replace(report, residual_norm=step.residual_norm, update_norm=np.array([norm]), step_size=np.array([0.5])),
            0.0,
        )
        if round_index == 0:
            assert novelty.agreement == 0.0, "nobody reported twice"
        else:
            y, d = reported[-2:]
            assert novelty.agreement == pytest.approx(float(y @ d) / np.linalg.norm(y) / norm, abs=1e-5)


def test_large_norms_count_for_more_in_the_agreement():
    novelty = novelty_of(0.5, 0.5)
    state, cosine = novelty.state, np.array([0.9, -1.0])
    state.direction[:], state.previous[:] = [100.0, 1.0], [100.0, 1.0]
    state.residual[:] = state.direction + state.previous - 2 * np.sqrt(state.direction * state.previous) * cosine
    assert novelty.agreement == pytest.approx((100 * 0.9 - 1.0) / 101)


def test_surprise_counts_each_client_by_its_data_however_seldom_it_reports():
    """A client of half the data, slow and remembered badly, is not forgotten while others report what is known."""
    novelty = novelty_of(0.5, 0.3, 0.2)

    def report(client, new, round_index):
        plan = RoundPlan(members=[client], weights=[1.0])
        novelty.observe(replace(report_of(plan, round_index, 1.0), residual_norm=np.array([new])), 0.0)

    for round_index, client in enumerate((0, 1, 2)):
        report(client, 2.0, round_index)
    assert novelty.surprise == 0.0, "at first all is new, which says nothing of the memory"
    report(0, 2.0, 3)
    assert novelty.surprise == pytest.approx(4.0)
    for round_index in range(4, 104):
        report(1 + round_index % 2, 0.0, round_index)
    assert novelty.surprise == pytest.approx(0.5 * 4.0)
    report(0, 0.0, 104)
    assert novelty.surprise == 0.0
