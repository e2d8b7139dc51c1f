"""The scheme of the paper: its pilots, and the optimum for what they found."""

import numpy as np
import pytest

from fedtempo import Fleet
from support.simulations import run


def test_pilots_are_the_baselines_and_their_time_is_apart(data, times):
    piloted = run(data, times, "proposed")
    uniform, weighted = (run(data, times, policy, rounds=5) for policy in ("uniform", "weighted"))
    phases = {
        phase: [r for r in piloted.records if r["phase"] == phase] for phase in ("pilot-uniform", "pilot-weighted")
    }
    for phase, plain in (("pilot-uniform", uniform), ("pilot-weighted", weighted)):
        ours, theirs = phases[phase], plain.records[: len(phases[phase])]
        assert ours
        assert [r["loss"] for r in ours] == [r["loss"] for r in theirs]
        assert [r["members"] for r in ours] == [r["members"] for r in theirs]
    summary = piloted.summary
    assert summary["pilot_rounds"] == sum(map(len, phases.values()))
    trained = [r for r in piloted.records if r["phase"] == "train"]
    assert summary["pilot_time"] + sum(r["round_time"] for r in trained) == pytest.approx(piloted.records[-1]["time"])
    assert summary["time"] == pytest.approx(sum(r["round_time"] for r in trained))
    note = trained[0]["note"]
    assert note["fallback"] == (note["beta_over_alpha"] is None)
    assert len(note["gradient_bound"]) == 12
    assert trained[0]["round"] == 0, "training starts again from w₀"


def test_pilots_that_tell_nothing_lead_to_the_closed_form(data, times):
    from fedtempo import optimal_sampling

    short = {"losses": [1e-6], "max_rounds": 2, "floor": 0.1}
    result = run(data, times, "proposed", options=short, rounds=40)
    first = next(r for r in result.records if r["phase"] == "train")
    assert first["note"]["fallback"] is True
    assert "does not exist" in first["note"]["estimate"]
    fleet = Fleet(data.data_share, np.array(first["note"]["gradient_bound"]), **times)
    q = optimal_sampling(fleet, cohort_size=4, beta_over_alpha=0.0, floor=0.1)
    for record in result.records:
        if record["phase"] == "train":
            members, counts = np.array(record["members"]), np.array(record["counts"])
            np.testing.assert_allclose(record["weights"], counts * data.data_share[members] / (4 * q[members]))


def test_proposed_trains_with_the_optimum_for_what_its_pilots_found(data, times):
    from fedtempo import estimate_beta_over_alpha, optimal_sampling

    for floor in (0.0, 0.2):
        options = {"losses": [1.8, 1.6], "max_rounds": 60, "floor": floor}
        result = run(data, times, "proposed", options=options, rounds=20, seed=2)
        trained = [r for r in result.records if r["phase"] == "train"]
        note = trained[0]["note"]
        known = Fleet(data.data_share, np.array(note["gradient_bound"]), **times)
        rounds = [
            [
                1 + next(r["round"] for r in result.records if r["phase"] == phase and r["loss"] <= loss)
                for loss in (1.8, 1.6)
            ]
            for phase in ("pilot-uniform", "pilot-weighted")
        ]
        ratio = estimate_beta_over_alpha(known, *rounds, cohort_size=4).value
        assert note["beta_over_alpha"] == ratio
        q = optimal_sampling(known, cohort_size=4, beta_over_alpha=ratio or 0.0, floor=floor)
        np.testing.assert_allclose(note["sampling_prob"], q)
        for record in trained:
            members, counts = np.array(record["members"]), np.array(record["counts"])
            np.testing.assert_allclose(record["weights"], counts * data.data_share[members] / (4 * q[members]))
    assert ratio is not None, "the case must have an estimate to tell"
