"""Tuning, ranking, planning and the paper, from Python."""

import pytest

import fedtempo
from fedtempo import InputError
from fedtempo.api.conformance import check_policy
from fedtempo.policies.builtin import BUILT_IN

SHORT = {"cohort_size": 3, "local_steps": 5, "schedule": "constant", "max_rounds": 8, "target_loss": 1.9, "jobs": 1}
OPTIONS = {
    "proposed": {"losses": [2.25, 2.2], "max_rounds": 4},
    "statistical": {"losses": [2.25, 2.2], "max_rounds": 4},
    "proposed-oracle": {"beta_over_alpha": 0.1},
}


def by_share(fleet):
    return fleet.data_share


def test_each_policy_is_tuned(problem, tmp_path):
    found = fedtempo.tune(problem, ["weighted", by_share], step_sizes=[1e-4, 0.05], seeds=1, **SHORT)
    assert found.best == {"weighted": {"step_size": 0.05}, "by_share": {"step_size": 0.05}}
    assert len(found.table().rows) == 4
    assert "step_size = 0.05" in found.settings()
    found.plot().savefig(tmp_path / "tuned.png")
    found.report(tmp_path / "tuned.html")
    assert "At the edge" in (tmp_path / "tuned.html").read_text()
    assert {run.seed for trial in found.trials for run in trial.runs} == {1000}
    frame = found.to_pandas()
    assert frame.groupby("policy")["best"].sum().to_dict() == {"weighted": 1, "by_share": 1}
    assert frame[frame["best"]]["step_size"].tolist() == [0.05, 0.05]
    assert frame["time_with_pilots"].dtype == float


def test_policies_are_ranked_at_their_best(problem, tmp_path):
    found = fedtempo.rank(
        problem, {"good": by_share, "tempo": "tempo"}, step_sizes=[1e-4, 0.05], seeds=3, tuning_seeds=1, **SHORT
    )
    assert set(found.order) == {"good", "tempo"}
    assert "each seed" in str(found)
    assert "step_size 0.05" in str(found)
    frame = found.to_pandas()
    assert frame.groupby("policy")["seed"].agg(list).to_dict() == {"good": [0, 1, 2], "tempo": [0, 1, 2]}
    assert frame["seconds"].dtype == float
    found.plot().savefig(tmp_path / "ranked.png")
    found.report(tmp_path / "ranked.html")
    assert "3 seeds" in (tmp_path / "ranked.html").read_text()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"step_sizes": []}, "at least one step size"),
        ({"step_sizes": [0.1, 0.1]}, "different from each other"),
        ({"step_sizes": [-1]}, "step_sizes must be positive"),
        ({"step_sizes": [0.1], "cohort_sizes": [0]}, "cohort_sizes must be"),
    ],
)
def test_bad_choices_get_one_sentence(problem, change, sentence):
    for verb in (fedtempo.tune, fedtempo.rank):
        with pytest.raises(InputError, match=sentence):
            verb(problem, ["weighted"], **SHORT, **change)


def test_a_fleet_is_planned(problem, tmp_path):
    found = fedtempo.plan(problem.fleet, cohort_size=3)
    assert found.cohort_size == 3
    assert found.sampling_prob.sum() == pytest.approx(1)
    assert len(found.to_pandas()) == len(problem.fleet)
    found.plot().savefig(tmp_path / "plan.png")
    found.report(tmp_path / "plan.html")
    found.write(tmp_path / "plan.csv")
    assert fedtempo.read_fleet(tmp_path / "plan.csv").data_share == pytest.approx(problem.fleet.data_share)
    with pytest.raises(InputError, match="did you mean 'cohort_size'"):
        fedtempo.plan(problem.fleet, cohort_sise=3)
    with pytest.raises(InputError, match="fleet must be a Fleet, or the path of its CSV file, got NoneType"):
        fedtempo.plan(None)


@pytest.mark.parametrize("policy", BUILT_IN)
def test_built_in_policies_have_the_properties_that_engines_rely_on(policy):
    found = check_policy(policy, OPTIONS.get(policy))
    assert found.holds, str(found)
    assert "FAILS" not in str(found)


class Forgetful:
    """A policy whose state leaves something out, and that draws from a stream of its own."""

    def __init__(self, setting):
        self.size, self.fleet, self.count = setting.cohort_size, setting.fleet, 0

    def plan(self, context):
        self.count += 1
        members = [(self.count * 7) % len(self.fleet)]
        return fedtempo.RoundPlan(members=members, weights=[1.0])

    def observe(self, report):
        if report.failed.any():
            raise RuntimeError("never heard of it")

    def state(self):
        return {}

    def restore(self, state):
        pass


def test_what_a_policy_lacks_is_said():
    found = {one.name: one for one in check_policy(Forgetful).findings}
    assert not found["resume"].holds
    assert "state leaves something out" in found["resume"].seen
    assert not found["members that fail"].holds
    assert "never heard of it" in found["members that fail"].seen
    assert found["weights"].holds
    assert found["weights"].biased
    assert "| biased |" in str(check_policy(Forgetful))
    assert found["equal runs"].holds


class Heavy(Forgetful):
    """A policy whose weights are three times what they should be."""

    def plan(self, context):
        return fedtempo.RoundPlan(members=[int(context.rng.integers(len(self.fleet)))], weights=[3.0])


def test_weights_that_add_up_to_three_fail():
    (found,) = (one for one in check_policy(Heavy).findings if one.name == "weights")
    assert not found.holds
    assert "add up to 3.00" in found.seen


def test_a_policy_that_is_there_already_cannot_be_tried():
    class Ready:
        def plan(self, context):
            return None

        def observe(self, report):
            pass

    with pytest.raises(fedtempo.InputError, match="be made anew for each trial, got a Ready"):
        check_policy(Ready())
