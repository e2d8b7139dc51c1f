"""Clustered sampling: the clusters of Algorithm 1, unbiased and with less variance."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from fedtempo.policies.clustered import ClusteredSampling, lay_out
from support.unbiased import NORM, SHARE, Scripted, make, plan_round


def by_sample_size(sizes, cohort_size):
    """Algorithm 1 word for word, in whole numbers: r_ki by handing K n_i samples out to K distributions of M each."""
    total, k = sum(sizes), 0
    given_out = [[0] * len(sizes) for _ in range(cohort_size)]
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        left = cohort_size * sizes[i]
        while left:
            part = min(left, total - sum(given_out[k]))
            given_out[k][i] += part
            left -= part
            k += sum(given_out[k]) == total
    return [[Fraction(part, total) for part in row] for row in given_out]


SIZES = [[7], [1, 1], [5, 3, 9, 3], [40, 1, 2, 7], [13, 5, 8, 21, 3]]


@pytest.mark.parametrize("cohort_size", [1, 2, 3, 6])
@pytest.mark.parametrize("sizes", SIZES)
def test_each_cluster_has_the_clients_of_algorithm_1(sizes, cohort_size):
    r = by_sample_size(sizes, cohort_size)
    assert all(sum(row) == 1 for row in r)
    assert [sum(column) for column in zip(*r, strict=True)] == [Fraction(cohort_size * n, sum(sizes)) for n in sizes]
    line = lay_out(np.array(sizes) / sum(sizes), cohort_size)
    ends = [Fraction(0)] + [Fraction(end) for end in line.ends.tolist()]
    for k, row in enumerate(r):
        for place, i in enumerate(line.order.tolist()):
            inside = min(ends[place + 1], Fraction(k + 1)) - max(ends[place], Fraction(k))
            assert float(max(inside, 0)) == pytest.approx(float(row[i]), abs=1e-12)
    assert ends[-1] == cohort_size, "no part of the line is without a client"


def draws(r):
    """Yield each outcome of one draw from each distribution: clients, probability, random numbers that lead to it."""
    choices = []
    for row in r:
        descending = sorted((i for i in range(len(row)) if row[i]), key=lambda i: -SIZES[-1][i])
        ends = list(itertools.accumulate(row[i] for i in descending))
        choices.append([(i, row[i], end - row[i] / 2) for i, end in zip(descending, ends, strict=True)])
    for outcome in itertools.product(*choices):
        clients, chances, middles = zip(*outcome, strict=True)
        yield clients, math.prod(chances), middles


@pytest.mark.parametrize("cohort_size", [1, 2, 3, 4, 6])
def test_clustered_sampling_is_unbiased_and_varies_less_than_draws_from_p(cohort_size):
    sizes = SIZES[-1]
    p = [Fraction(n, sum(sizes)) for n in sizes]
    policy = make(ClusteredSampling, np.array(sizes) / sum(sizes), cohort_size)
    mean, square, chosen, total = [0] * 5, [0] * 5, [0] * 5, 0
    for clients, chance, uniform in draws(by_sample_size(sizes, cohort_size)):
        plan = plan_round(policy, Scripted(uniform), np.ones(5))
        weight = np.zeros(5)
        weight[plan.members] = plan.weights
        assert plan.counts.sum() == cohort_size
        total += chance
        for i in range(5):
            share = Fraction(clients.count(i), cohort_size)
            assert weight[i] == pytest.approx(float(share), abs=1e-12)
            mean[i] += chance * share
            square[i] += chance * share**2
            chosen[i] += chance * (share > 0)
    assert total == 1
    assert mean == p
    for i in range(5):
        assert square[i] - mean[i] ** 2 <= p[i] * (1 - p[i]) / cohort_size
        assert chosen[i] >= 1 - (1 - p[i]) ** cohort_size
    if cohort_size > 1:
        assert sum(square) < sum(q * (1 - q) / cohort_size + q**2 for q in p)


def test_the_last_point_of_the_line_belongs_to_the_last_client():
    policy = make(ClusteredSampling, SHARE, 4)
    plan = plan_round(policy, Scripted([0, 0, 0, 1 - 2**-53]), NORM)
    assert plan.members.tolist() == [0, 1, 4]  # 3 + (1 - 2^-53) rounds to 4, beyond the part of client 0
