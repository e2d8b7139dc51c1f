"""Times of clients, drawn from distributions or taken from benchmarks."""

import json
import os

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.randomness import stream
from fedtempo.simulator.times import TimesSpec, benchmark_times, draw_times
from support.channels import DATA

needs_scores = pytest.mark.skipif(
    "FEDTEMPO_DATA" not in os.environ or not (DATA / "benchmark2score.json").exists(),
    reason="FEDTEMPO_DATA does not name a folder with traces/benchmark2score.json",
)


@pytest.mark.parametrize(
    ("spec", "mean", "median"),
    [
        (TimesSpec("exponential", mean=2.0), 2.0, 2 * np.log(2)),
        (TimesSpec("uniform", low=0.22, high=5.04), 2.63, 2.63),
        (TimesSpec("constant", value=0.5), 0.5, 0.5),
        (TimesSpec("lognormal", median=3.0, sigma=0.5), 3 * np.exp(0.125), 3.0),
    ],
)
def test_drawn_times_follow_their_distribution(spec, mean, median):
    times = draw_times(spec, 100_000, stream(1, "times"))
    assert times.mean() == pytest.approx(mean, rel=0.02)
    assert np.median(times) == pytest.approx(median, rel=0.02)
    np.testing.assert_array_equal(draw_times(spec, 3, stream(1, "times")), draw_times(spec, 3, stream(1, "times")))
    assert draw_times(spec, 1, stream(1, "times")).shape == (1,)


@pytest.mark.parametrize(
    ("kind", "parameters", "said"),
    [
        ("gamma", {}, "kind must be one of constant, exponential, lognormal, uniform, got 'gamma'"),
        ("exponential", {}, "must have a number mean, got none"),
        ("exponential", {"mean": 0.0}, "mean must be positive"),
        ("exponential", {"mean": "1"}, "number mean, got '1'"),
        ("exponential", {"mean": True}, "number mean, got True"),
        ("exponential", {"mean": 1.0, "low": 0.0}, "must have mean alone, got low too"),
        ("uniform", {"low": 1.0}, "must have a number high"),
        ("uniform", {"low": 2.0, "high": 1.0}, "low must not exceed high"),
        ("uniform", {"low": -1.0, "high": 1.0}, "low must be zero or positive"),
        ("constant", {"value": np.inf}, "value must be zero or positive, and finite"),
        ("lognormal", {"median": 0.0, "sigma": 1.0}, "median must be positive"),
    ],
)
def test_bad_distributions_are_refused(kind, parameters, said):
    with pytest.raises(InputError, match=said):
        TimesSpec(kind, **parameters)


def test_faster_phones_compute_faster(tmp_path):
    path = tmp_path / "scores.json"
    path.write_text(json.dumps({"slow": 100, "fast": 400, "middling": 200.0}))
    times = benchmark_times(path, 3000, 7.0, stream(1, "phones"))
    distinct, counts = np.unique(times, return_counts=True)
    np.testing.assert_allclose(distinct, [3.0, 6.0, 12.0])  # 1/400, 1/200 and 1/100, scaled to a mean of 7
    assert counts == pytest.approx([1000, 1000, 1000], rel=0.1)
    np.testing.assert_array_equal(times, benchmark_times(path, 3000, 7.0, stream(1, "phones")))
    assert benchmark_times(path, 1, 7.0, stream(2, "phones"))[0] in distinct


@needs_scores
def test_recorded_scores_spread_sixtyfold():
    times = benchmark_times(DATA / "benchmark2score.json", 200_000, 2.0, stream(1, "phones"))
    assert times.mean() == pytest.approx(2.0, rel=0.02)
    low, high = np.quantile(times, [0.05, 0.95])
    assert high / low == pytest.approx(60, rel=0.1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be JSON"),
        ("{", "must be JSON"),
        ("[1, 2]", "must hold an object"),
        ("{}", "at least one phone"),
        ('{"a": 0}', "positive number, got 0 for 'a'"),
        ('{"a": 1, "b": "2"}', "got '2' for 'b'"),
        ('{"a": true}', "got True"),
        ('{"a": NaN}', "got nan"),
    ],
)
def test_bad_scores_are_refused_in_one_sentence(tmp_path, text, said):
    path = tmp_path / "scores.json"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as refused:
        benchmark_times(path, 5, 1.0, stream(1))
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)
