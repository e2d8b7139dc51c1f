"""Absences: their share and lengths, and that somebody is always there."""

import itertools

import numpy as np
import pytest

from fedtempo.simulator.absences import WithAbsences
from support.channels import static


def lengths_of_runs(present):
    """Return the mean lengths of presences and absences that begin and end within the rounds; a column is a client."""
    found = {True: [], False: []}
    for column in present.T:
        edges = np.flatnonzero(np.diff(column)) + 1
        for begin, end in itertools.pairwise(edges):
            found[bool(column[begin])].append(end - begin)
    return np.mean(found[True]), np.mean(found[False])


@pytest.mark.parametrize(("share", "absence"), [(0.7, 5.0), (0.3, 2.5), (0.5, 1.0), (0.8, None), (0.25, None)])
def test_presences_have_the_stated_share_and_lengths(share, absence):
    channel = WithAbsences(static(200), present_share=share, absence_rounds=absence, seed=9)
    present = np.array([channel.at(r, 0.0).available for r in range(600)])
    away = 1 / share if absence is None else absence
    assert present[0].mean() == pytest.approx(share, abs=0.12)
    assert present.mean() == pytest.approx(share, abs=0.02)
    assert lengths_of_runs(present) == pytest.approx((away * share / (1 - share), away), rel=0.05)
    if absence is None:  # dropouts: what was says nothing about what comes
        assert np.mean(present[1:] & present[:-1]) == pytest.approx(share**2, abs=0.02)


def test_clients_may_differ_in_how_often_they_are_there():
    share = np.repeat([0.1, 0.5, 1.0], 100)
    channel = WithAbsences(static(300), present_share=share, absence_rounds=np.maximum(1, (1 - share) / share), seed=2)
    present = np.mean([channel.at(r, 0.0).available for r in range(400)], axis=0).reshape(3, 100)
    assert present.mean(axis=1) == pytest.approx([0.1, 0.5, 1.0], abs=0.02)
    assert np.all(present[2] == 1)


def test_somebody_is_always_there_and_nobody_is_favoured():
    share, size, rounds = 0.1, 3, 6000
    channel = WithAbsences(static(size), present_share=share, seed=3)
    present = np.array([channel.at(r, 0.0).available for r in range(rounds)])
    assert np.all(present.any(axis=1))
    expected = share + (1 - share) ** size / size
    assert present.mean(axis=0) == pytest.approx(np.full(size, expected), abs=0.025)
    alone = WithAbsences(static(1), present_share=0.01, absence_rounds=200.0, seed=3)
    assert all(alone.at(r, 0.0).available[0] for r in range(50))


def test_absences_add_up_and_leave_somebody_who_is_allowed():
    inner = WithAbsences(static(5), present_share=0.4, seed=1)
    outer = WithAbsences(inner, present_share=0.2, seed=2)
    for r in range(100):
        allowed, there = inner.at(r, 0.0).available, outer.at(r, 0.0).available
        assert there.any()
        assert not np.any(there & ~allowed)
