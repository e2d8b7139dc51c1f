"""Policies with fixed probabilities."""

import numpy as np

from support.simulations import run


def test_the_uniform_baseline_of_the_authors_code(data, times):
    result = run(data, times, "uniform", options={"replacement": False})
    for record in result.records:
        assert len(record["members"]) == 4
        assert record["weights"] == [0.25] * 4
        scale = 0.1 / (1 + record["round"]) * data.data_share[record["members"]] * 12
        np.testing.assert_allclose(record["step_size"], scale)
