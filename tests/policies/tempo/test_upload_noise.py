"""Tempo learns the noise of uploads, and chooses bits by it."""

import numpy as np
import pytest

from fedtempo.policies.tempo import Tempo
from fedtempo.policies.tempo.upload_noise import UploadNoise, UploadNoiseState
from fedtempo.theory.bits import BITS
from support.tempo_cases import context, run, setting

EXPECTED = np.array([1.3, 0.4, 0.08, 3e-4, 4e-9, 0.0])


class Report:
    """The part of a report that matters here."""

    def __init__(self, members, norms, noise, failed=None):
        self.plan = type("Plan", (), {"members": np.array(members)})
        self.update_norm, self.noise = np.array(norms, dtype=float), np.array(noise, dtype=float)
        self.noise_of_uploads = None  # as if all had come with 32 bits
        self.failed = np.zeros(len(members), dtype=bool) if failed is None else np.array(failed)


def test_a_client_has_its_own_noise_and_others_the_usual_by_squared_norms():
    noise = UploadNoise(UploadNoiseState.at_first(3, EXPECTED))
    np.testing.assert_array_equal(noise.rows, np.tile(EXPECTED, (3, 1)))
    noise.observe(Report([0, 2], [1.0, 2.0], [EXPECTED, 2 * EXPECTED]))
    np.testing.assert_allclose(noise.rows[[0, 2]], [EXPECTED, 2 * EXPECTED])
    np.testing.assert_allclose(noise.rows[1], 1.8 * EXPECTED, err_msg="1 and 4 parts")
    noise.observe(Report([1, 0], [1.0, np.nan], [3 * EXPECTED, 9 * EXPECTED], failed=[False, True]))
    np.testing.assert_allclose(noise.rows, [EXPECTED, 3 * EXPECTED, 2 * EXPECTED])


def test_what_is_no_noise_is_not_learned():
    noise = UploadNoise(UploadNoiseState.at_first(2, EXPECTED))
    noise.observe(Report([0, 1], [0.0, 1.0], [EXPECTED / 2, np.full(6, np.nan)]))
    np.testing.assert_array_equal(noise.rows, np.tile(EXPECTED, (2, 1)))
    assert not UploadNoise(UploadNoiseState.at_first(2, np.array([]))).chooses


def chosen(**fleet):
    policy = Tempo(setting(np.full(20, 0.05), upload_bits="auto", upload_noise=tuple(EXPECTED), fleet=fleet))
    return policy.plan(context()).upload_bits


def test_slow_links_send_fewer_bits_and_slow_computers_more():
    assert (chosen(compute_time=0.0) <= 4).all()
    assert (chosen(compute_time=1e6) >= 16).all()
    assert Tempo(setting(np.full(20, 0.05))).plan(context()).upload_bits is None, "the engine's"


@pytest.mark.parametrize("options", [{}, {"memory": False}, {"largest_factor": float("inf")}])
def test_each_client_has_bits_of_its_own(options):
    records = run(options=options, upload_bits="auto", rounds=80).records
    bits = np.concatenate([record["upload_bits"] for record in records])
    assert set(bits) <= set(BITS)
    assert bits.min() < 16


def test_along_a_memory_more_bits_are_sent_since_rounding_adds_to_all_that_is_sent():
    policy = Tempo(setting(np.full(20, 0.05), upload_bits="auto", upload_noise=tuple(EXPECTED)))
    novelty = policy.state.novelty
    novelty.reported_in[:], novelty.direction[:], novelty.previous[:] = 0, 1.0, 1.0
    novelty.seen_share, novelty.first_count = 1.0, 20
    bits = []
    for new in (1.0, 0.1, 1e-3):
        novelty.residual[:], novelty.drift[:], novelty.signal, policy.state.in_flight = new, new, new, {}
        policy.state.steps.sampling_prob, policy.state.caution.follows_memory = None, True
        bits.append(policy.plan(context()).upload_bits.mean())
    assert bits == sorted(bits)
    assert bits[0] < bits[-1]


def test_rounds_leave_the_size_to_the_engine():
    record = run(options={"overlap": False}, upload_bits="auto", rounds=2).records[-1]
    assert len(set(record["upload_bits"])) == 1
