"""Plans with uploads of fewer bits: the optimum of the theory, its figures and its words."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

import fedtempo
from fedtempo import InputError, optimal_sampling, optimal_sampling_and_bits, read_fleet
from fedtempo.cli import main
from fedtempo.learning.quantisation import upload_share
from fedtempo.planning.plan import plan_fleet, time_against_cohort
from fedtempo.planning.settings import PlanSettings
from fedtempo.theory.bits import BITS, USUAL_NOISE
from support.fleets import random_fleet
from support.paths import ROOT

EXAMPLE = ROOT / "examples" / "fleet.csv"
FLEET = random_fleet(np.random.default_rng(11), 40, decades=2)
RATIO = 0.3 * float(FLEET.importance.sum()) ** 2


def planned(fleet=FLEET, size=5, **settings):
    return plan_fleet(fleet, PlanSettings(cohort_size=size, beta_over_alpha=RATIO, draws=200, **settings))


def optimum(fleet=FLEET, size=5, megabytes=None):
    numbers = 1 << 24 if megabytes is None else round(megabytes * 250_000)
    return optimal_sampling_and_bits(
        fleet,
        cohort_size=size,
        beta_over_alpha=RATIO,
        quantisation_noise=USUAL_NOISE,
        upload_shares=[upload_share(bits, numbers) for bits in BITS],
    )


@pytest.mark.parametrize("megabytes", [None, 0.001, 5.0])
def test_auto_is_the_optimum_over_q_and_bits(megabytes):
    plan, expected = planned(bits="auto", model_megabytes=megabytes), optimum(megabytes=megabytes)
    np.testing.assert_array_equal(plan.sampling_prob, expected.sampling_prob)
    np.testing.assert_array_equal(plan.upload_bits, expected.bits)
    assert len(set(expected.bits.tolist())) > 1
    assert plan.relative_objective(plan.forecasts[0]) == pytest.approx(1, abs=1e-9)
    for forecast in plan.forecasts:
        assert plan.relative_objective(forecast) >= 1 - 1e-4, forecast.policy


def test_headers_and_scales_count_where_a_model_is_small():
    few = planned(bits=2, model_megabytes=4e-5)  # ten numbers: 15 bytes of 40
    assert few.forecasts[0].surrogate / planned(bits=2).forecasts[0].surrogate > 1.5
    assert planned(bits="auto", model_megabytes=4e-6).upload_bits.tolist() == [32] * 40, (
        "a header is more than a number"
    )


@pytest.mark.parametrize("bits", BITS[:-1])
def test_one_size_for_all_is_the_optimum_of_shorter_and_noisier_uploads(bits):
    plan, place = planned(bits=bits), BITS.index(bits)
    share, noise = upload_share(bits, 1 << 24), USUAL_NOISE[place]
    louder, shorter = FLEET.gradient_bound * np.sqrt(1 + noise), FLEET.upload_time * share
    sent = replace(FLEET, gradient_bound=louder, upload_time=shorter)
    np.testing.assert_allclose(
        plan.sampling_prob, optimal_sampling(sent, cohort_size=5, beta_over_alpha=RATIO), rtol=1e-9
    )
    assert plan.upload_bits.tolist() == [bits] * 40
    assert [forecast.policy for forecast in plan.forecasts][:2] == ["optimal", "32 bits for all"]


def test_32_bits_are_the_plan_without_bits():
    """The plan says nothing of bits, and what is compared is what was compared."""
    plain, whole = planned(), planned(bits=32, noise={4: 0.5}, model_megabytes=1.0)
    assert plain.as_json() == whole.as_json()
    assert list(plain.columns()) == ["round_cost", "sampling_prob", "draws_per_round", "aggregation_weight"]
    assert plain.words_on_bits() == []
    expected = optimal_sampling(FLEET, cohort_size=5, beta_over_alpha=RATIO)
    np.testing.assert_array_equal(plain.sampling_prob, expected)


def test_noise_may_be_given_and_bounded():
    cheap = planned(bits="auto", noise={2: 0.0})
    assert set(cheap.upload_bits.tolist()) == {2}, "nothing is lost by two bits"
    careful = planned(bits="auto", largest_noise=0.01)
    assert min(careful.upload_bits) >= 8
    assert set(planned(bits="auto", largest_noise=0.0).upload_bits.tolist()) == {32}


def test_the_words_count_devices_and_compare_times():
    plan = planned(bits="auto")
    (words,) = plan.words_on_bits()
    sizes, counts = np.unique(plan.upload_bits, return_counts=True)
    most = int(counts.argmax())
    times = {forecast.policy: plan.relative_time(forecast) for forecast in plan.forecasts}
    whole = times["32 bits for all"]
    assert words.startswith(f"{sizes[most]} bits for {counts[most]} devices, ")
    assert f"takes {1 / whole:.2f} of the time with 32 bits at the same K." in words
    single = times[f"{plan.best_single} bits for all"]
    assert words.endswith(f"The best size for all, {plan.best_single} bits, takes {single / whole:.2f}.")
    assert words in str(plan.table().notes[-1])
    assert plan.as_json()["words"] == words


def test_the_best_size_for_all_takes_the_least_time_of_all_sizes():
    plan = planned(bits="auto")
    times = {bits: planned(bits=bits).least_objective for bits in BITS}
    assert plan.best_single == min(times, key=times.get)
    assert plan.least_objective <= min(times.values()) * (1 + 1e-9)


def test_the_cohort_size_is_chosen_together_with_bits():
    free = plan_fleet(FLEET, PlanSettings(beta_over_alpha=RATIO, bits="auto", draws=50))
    times = {size: planned(size=size, bits="auto").least_objective for size in range(1, 4 * free.cohort_size)}
    assert times[free.cohort_size] <= min(times.values()) * (1 + 1e-4)
    sizes, relative, best = time_against_cohort(free)
    assert best == free.cohort_size
    expected = [times[size] / times[best] for size in sizes if size in times]
    np.testing.assert_allclose(relative[: len(expected)], expected, rtol=1e-9)


def test_another_ratio_is_compared_with_its_own_bits():
    for case in planned(bits="auto").sensitivities:
        best = plan_fleet(
            FLEET, PlanSettings(cohort_size=5, beta_over_alpha=case.beta_over_alpha, bits="auto", draws=20)
        )
        assert case.excess_time >= -1e-4
        assert case.moved == pytest.approx(np.abs(best.sampling_prob - planned(bits="auto").sampling_prob).sum() / 2)


def test_from_python_with_a_file(tmp_path):
    found = fedtempo.plan(EXAMPLE, cohort_size=4, beta_over_alpha=0.1, bits="auto", model_megabytes=5.0, draws=50)
    fleet = read_fleet(EXAMPLE, model_megabytes=5.0)
    expected = optimal_sampling_and_bits(
        fleet,
        cohort_size=4,
        beta_over_alpha=0.1,
        quantisation_noise=USUAL_NOISE,
        upload_shares=[upload_share(bits, 1_250_000) for bits in BITS],
    )
    np.testing.assert_array_equal(found.upload_bits, expected.bits)
    assert fedtempo.plan(fleet, cohort_size=4, draws=50).upload_bits.tolist() == [32] * 30
    assert "upload_bits" in found.to_pandas().columns


def test_the_command_writes_each_clients_bits(tmp_path, capsys):
    command = ["plan", str(EXAMPLE), "--model-size", "5", "--cohort-size", "4", "--beta-over-alpha", "0.1"]
    files = ["-o", str(tmp_path / "a.csv"), "--json", str(tmp_path / "a.json")]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--bits", "auto", "--noise", "2=1.5,4=0.02", *files])
    assert ended.value.code == 0
    told = " ".join(capsys.readouterr().out.split())
    with open(tmp_path / "a.csv", encoding="utf-8", newline="") as stream:
        bits = [int(row["upload_bits"]) for row in csv.DictReader(stream)]
    whole = json.loads((tmp_path / "a.json").read_text())
    assert whole["per_client"]["upload_bits"] == bits
    assert whole["noise"]["2"] == 1.5
    assert whole["words"] in told
    read_fleet(tmp_path / "a.csv")  # warnings are errors: the column is known


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"bits": 5}, "bits must be one of 2, 3, 4, 8, 16, 32, or auto"),
        ({"bits": "some"}, "bits must be one of"),
        ({"noise": {5: 0.1}}, "noise must name sizes of 2, 3, 4, 8, 16 bits, got 5"),
        ({"noise": {4: -0.1}}, "noise must be zero or positive, and finite, got -0.1 for 4 bits"),
        ({"largest_noise": -1.0, "bits": "auto"}, "largest_noise must be zero or positive"),
        ({"largest_noise": 1.0, "bits": 8}, "largest_noise must go with"),
        ({"model_megabytes": 0.0}, "model_megabytes must be positive"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, said):
    with pytest.raises(InputError, match=said):
        PlanSettings(cohort_size=2, **settings)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--bits", "5"], "--bits must be one of 2, 3, 4, 8, 16, 32, or auto, got 5"),
        (["--noise", "4=x"], "--noise must name sizes and their noise, as 4=0.1,8=0.0003, got '4=x'"),
        (["--largest-noise", "1"], "--largest-noise must go with --bits auto"),
    ],
)
def test_bad_options_get_one_sentence(capsys, options, said):
    with pytest.raises(SystemExit) as ended:
        main(["plan", str(EXAMPLE), "--model-size", "5", "--cohort-size", "4", *options])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
