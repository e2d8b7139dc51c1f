"""The loop: exactly reproducible, resumable, honest about time, and open to policies of every kind."""

import ast
import itertools
import math
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from fedtempo import Fleet, InputError
from fedtempo.data.federation import FederatedData
from fedtempo.data.synthetic import synthetic_data
from fedtempo.engine.loop import DivergedError
from fedtempo.engine.settings import StopSettings, TrainingSettings
from fedtempo.learning.batches import Batches
from fedtempo.learning.softmax import SoftmaxTrainer
from fedtempo.learning.trainer import Evaluation, LocalResult, LocalWork
from fedtempo.policies.fixed import Forgetful
from fedtempo.policies.policy import PolicySetting, Probe, Restart, RoundPlan
from fedtempo.policies.registry import BUILT_IN, available_policies, make
from fedtempo.simulator.api import assemble, simulate
from fedtempo.simulator.channel import StaticChannel
from fedtempo.simulator.markov import WithAbsences

OPTIONS = {
    "statistical": {"losses": [2.0, 1.9], "max_rounds": 5},
    "proposed": {"losses": [2.0, 1.9], "max_rounds": 5},
    "proposed-oracle": {"beta_over_alpha": 1.0},
}


@pytest.fixture(scope="module")
def data():
    return synthetic_data(alpha=1.0, beta=1.0, num_clients=12, num_samples=1500, seed=1)


@pytest.fixture(scope="module")
def times():
    return {"compute_time": np.linspace(0.1, 2.0, 12), "upload_time": np.linspace(1.5, 0.2, 12)}


def run(data, times, policy="weighted", *, rounds=6, seed=0, **more):
    settings = {
        "cohort_size": 4,
        "local_steps": 5,
        "max_rounds": rounds,
        "options": OPTIONS.get(str(policy), {}),
    } | more
    return simulate(data, **times, policy=policy, seed=seed, **settings)


@pytest.mark.parametrize("policy", BUILT_IN)
def test_the_same_seed_gives_the_same_run_and_another_seed_another(data, times, policy):
    first, again, other = run(data, times, policy), run(data, times, policy), run(data, times, policy, seed=1)
    assert first.records == again.records
    np.testing.assert_array_equal(first.model, again.model)
    assert first.summary["rounds"] == 6
    if policy != "full":
        assert [r["members"] for r in first.records] != [r["members"] for r in other.records]


def test_the_clock_and_the_weights_are_those_of_the_theory(data, times):
    from fedtempo import cohort_round_time

    result, share, time = run(data, times, "uniform"), data.data_share, 0.0
    for record in result.records:
        members, counts = np.array(record["members"]), np.array(record["counts"])
        np.testing.assert_allclose(record["weights"], counts * share[members] * 12 / 4)
        draws = np.repeat(members, counts)
        assert len(draws) == 4
        expected = cohort_round_time(times["compute_time"][draws], times["upload_time"][draws])
        assert record["round_time"] == pytest.approx(expected)
        time += record["round_time"]
        assert record["time"] == pytest.approx(time)
        np.testing.assert_allclose(record["step_size"], 0.1 / (1 + record["round"]))


def test_policies_share_batches_and_the_initial_model(data, times):
    """A client drawn by two policies in round 0 gets the same batches from the same model: the same norms."""
    full = run(data, times, "full", rounds=1).records[0]
    some = run(data, times, "uniform", rounds=1).records[0]
    for place, client in enumerate(some["members"]):
        assert some["update_norm"][place] == full["update_norm"][client]


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


def simulation(data, times, policy, seed=0, **training):
    fleet = Fleet(data.data_share, 1.0, **times)
    channel = StaticChannel(fleet.compute_time, fleet.upload_time)
    return assemble(
        data=data, trainer=SoftmaxTrainer(data), fleet=fleet,
        channel=WithAbsences(channel, present_share=0.8, seed=3),
        policy=policy, options=OPTIONS.get(policy, {}), seed=seed, stop=StopSettings(max_rounds=7),
        training=TrainingSettings(cohort_size=4, local_steps=5, server_momentum=0.5, server_memory=True, **training),
    )  # fmt: skip


@pytest.mark.parametrize("policy", BUILT_IN)
def test_a_run_carried_over_at_any_round_goes_on_as_if_nothing_had_happened(data, times, policy):
    import json

    whole = list(simulation(data, times, policy).rounds())
    for stop in range(1, len(whole) - 1):
        first = simulation(data, times, policy)
        rounds = first.rounds()
        begun = [next(rounds) for _ in range(stop)]
        values, arrays = first.state()
        second = simulation(data, times, policy)
        second.restore(json.loads(json.dumps(values)), {name: array.copy() for name, array in arrays.items()})
        assert begun + list(second.rounds()) == whole


class Everyone(Forgetful):
    """Plan for all clients, whether they are there or not."""

    def __init__(self, data_share):
        self.data_share = data_share

    def plan(self, context):
        return RoundPlan(members=np.arange(len(self.data_share)), weights=self.data_share)


def test_absent_clients_fail_take_no_time_and_do_not_count(data, times):
    from fedtempo import cohort_round_time

    fleet = Fleet(data.data_share, 1.0, **times)
    trainer, channel = SoftmaxTrainer(data), StaticChannel(fleet.compute_time, fleet.upload_time)
    running = assemble(
        data=data, trainer=trainer, fleet=fleet, channel=WithAbsences(channel, present_share=0.5, seed=3),
        policy=Everyone(data.data_share), options={}, seed=0, stop=StopSettings(max_rounds=1),
        training=TrainingSettings(cohort_size=4, local_steps=5, weight_decay=0.01),
    )  # fmt: skip
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


def test_runs_end_at_a_target_or_a_limit(data, times):
    by_loss = run(data, times, rounds=100, target_loss=1.9)
    assert by_loss.summary["end"] == "target"
    assert by_loss.records[-1]["loss"] <= 1.9 < by_loss.records[-2]["loss"]
    assert by_loss.summary["time_to_loss"] == by_loss.records[-1]["time"]
    assert run(data, times, target_accuracy=0.01).summary["rounds"] == 1
    by_time = run(data, times, rounds=None, max_time=10.0)
    assert by_time.summary["end"] == "max_time"
    assert by_time.records[-2]["time"] < 10.0 <= by_time.records[-1]["time"]
    with pytest.raises(InputError, match="must have a limit"):
        run(data, times, rounds=None)


def test_the_loss_is_evaluated_when_asked(data, times):
    result = run(data, times, rounds=7, evaluate_every=3)
    assert [r["loss"] is not None for r in result.records] == [False, False, True, False, False, True, True]
    seconds, losses = result.series("loss")
    assert len(seconds) == len(losses) == 3
    assert result.summary["loss"] == losses[-1], "the last round is always evaluated"


def test_the_loss_is_evaluated_whenever_the_time_has_grown(data, times):
    every, grown = run(data, times, rounds=60), run(data, times, rounds=60, evaluate_growth=0.1)
    seconds, losses = grown.series("loss")
    assert set(zip(seconds, losses, strict=True)) < set(zip(*every.series("loss"), strict=True)), "nothing else changes"
    assert seconds[0] == every.records[0]["time"], "the first round is looked at"
    longest = max(record["round_time"] for record in every.records)
    assert all(later <= 1.1 * earlier + longest for earlier, later in itertools.pairwise(seconds))
    assert len(seconds) <= 3 + math.log(seconds[-1] / seconds[0]) / math.log(1.1)


def test_a_diverging_run_names_the_round(data, times):
    with pytest.raises(DivergedError, match=r"diverged in round \d+.*smaller step_size") as caught:
        run(data, times, "uniform", rounds=300, step_size=1e30, schedule="constant", evaluate_every=1000)
    assert [r["round"] for r in caught.value.records] == list(range(len(caught.value.records)))


def test_a_sampler_of_ones_own_is_one_function_or_class(data, times):
    def fastest_more(fleet):
        q = 1 / fleet.compute_time
        return q / q.sum()

    by_function = run(data, times, fastest_more)

    class Mine:
        def __init__(self, setting: PolicySetting):
            self.inner = make(fastest_more, setting)
            self.seen = 0

        def plan(self, context):
            return self.inner.plan(context)

        def observe(self, report):
            self.seen += 1

    by_class = run(data, times, Mine)
    assert by_function.records == by_class.records
    with pytest.raises(InputError, match="plan and observe"):
        run(data, times, dict)
    with pytest.raises(InputError, match="did you mean 'weighted'"):
        run(data, times, "weigthed")
    with pytest.raises(InputError, match="policy must be"):
        run(data, times, 7)


def test_installed_packages_may_bring_policies(data, times, monkeypatch):
    from importlib.metadata import EntryPoint

    point = EntryPoint("mine", "fedtempo.theory.sampling:weighted_sampling", "fedtempo.policies")
    monkeypatch.setattr("fedtempo.policies.registry.entry_points", lambda group: [point])
    assert "mine" in available_policies()
    assert run(data, times, "mine").records == run(data, times, "weighted").records


class Asking:
    """A policy that asks before it plans: the two with the highest answers upload."""

    def __init__(self, ask):
        self.ask = ask

    def plan(self, context):
        if context.answers is None:
            return Probe(clients=np.array([3, 1, 8, 6]), ask=self.ask)
        best = np.sort(np.array([3, 1, 8, 6])[np.argsort(-context.answers)[:2]])
        return RoundPlan(members=best, weights=np.full(2, 0.5))

    def observe(self, report):
        pass


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


class Directing:
    """A policy that sets everything that a plan can set."""

    def plan(self, context):
        return RoundPlan(
            members=np.array([0, 11]), weights=np.array([0.5, 0.5]), bandwidth=np.array([0.25, 0.75]),
            local_steps=np.array([10, 5]), step_size=context.step_size * np.array([1.0, 0.5]), deadline=3.0,
        )  # fmt: skip

    def observe(self, report):
        assert report.failed.tolist() == [True, False]


def test_a_plan_may_set_bandwidth_steps_step_sizes_and_a_deadline(data, times):
    record = run(data, times, Directing(), rounds=1).records[0]
    assert record["round_time"] == 3.0
    assert record["failed"] == [0]  # 0.1 s · 2 + 1.5/0.25 = 6.2 s
    assert record["step_size"] == [0.1, 0.05]


def test_a_download_delays_the_round(data, times):
    slow = Fleet(data.data_share, 1.0, **times, download_time=np.full(12, 5.0))
    runs = [
        next(
            assemble(
                data=data, trainer=SoftmaxTrainer(data), fleet=fleet,
                channel=StaticChannel(fleet.compute_time, fleet.upload_time), policy="weighted", options={}, seed=0,
                stop=StopSettings(max_rounds=1), training=TrainingSettings(cohort_size=4, local_steps=5),
            ).rounds()
        )
        for fleet in (Fleet(data.data_share, 1.0, **times), slow)
    ]  # fmt: skip
    assert runs[1]["round_time"] == pytest.approx(runs[0]["round_time"] + 5.0)


def test_the_uniform_baseline_of_the_authors_code(data, times):
    result = run(data, times, "uniform", options={"replacement": False})
    for record in result.records:
        assert len(record["members"]) == 4
        assert record["weights"] == [0.25] * 4
        scale = 0.1 / (1 + record["round"]) * data.data_share[record["members"]] * 12
        np.testing.assert_allclose(record["step_size"], scale)


def test_models_are_checked_and_torch_is_named_where_it_is_missing(data, times, monkeypatch):
    with pytest.raises(InputError, match="model must be softmax"):
        run(data, times, model="resnet")
    for module in ("fedtempo.learning.models", "fedtempo.learning.torch_module"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"pip install -c constraints.txt '\.\[torch\]'"):
        run(data, times, model=lambda: None)


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


class Changing:
    """A policy that asks the world for its times, and starts again once."""

    def __init__(self):
        self.restarted = False

    def plan(self, context):
        if context.round_index == 2 and not self.restarted:
            self.restarted = True
            return Restart()
        return RoundPlan(members=[0, 5], weights=[0.5, 0.5], phase="train" if self.restarted else "pilot")

    def observe(self, report):
        pass


def test_a_restart_forgets_the_model_and_the_server_but_not_the_clock(data, times):
    settings = {"server_momentum": 0.5, "server_memory": True, "rounds": 2}
    restarted = run(data, times, Changing(), **settings)
    plain = Changing()
    plain.restarted = True
    once = run(data, times, plain, **settings)
    assert [r["loss"] for r in restarted.records[2:]] == [r["loss"] for r in once.records]
    assert restarted.records[2]["time"] > restarted.records[1]["time"]
    assert restarted.summary["pilot_rounds"] == 2
    assert restarted.summary["time"] == pytest.approx(once.summary["time"])


class Alternating:
    """A policy whose pilots and training take turns."""

    def __init__(self):
        self.rounds = 0

    def plan(self, context):
        self.rounds += 1
        return RoundPlan(members=[self.rounds % 3], weights=[1.0], phase="pilot" if self.rounds % 2 else "train")

    def observe(self, report):
        pass


def test_pilots_may_come_between_training(data, times):
    result = run(data, times, Alternating(), rounds=3)
    pilots = [r["round_time"] for r in result.records if r["phase"] == "pilot"]
    assert result.summary["rounds"] == 3
    assert result.summary["pilot_rounds"] == len(pilots) == 3
    assert result.summary["pilot_time"] == pytest.approx(sum(pilots))


@pytest.mark.parametrize("setting", ["server_momentum", "server_memory", "weight_decay"])
def test_settings_of_the_server_and_of_sgd_change_training(data, times, setting):
    plain, other = run(data, times), run(data, times, **{setting: True if setting == "server_memory" else 0.3})
    assert plain.records[0]["members"] == other.records[0]["members"]
    assert np.abs(plain.model - other.model).max() > 1e-4


class Telling:
    """A policy that plans whatever it is told."""

    def __init__(self, **plan):
        self.given = plan

    def plan(self, context):
        if "returns" in self.given:
            return self.given["returns"]
        return RoundPlan(**({"members": [0, 1], "weights": [0.5, 0.5]} | self.given))

    def observe(self, report):
        pass


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"members": [0, 50]}, "members must lie below 12"),
        ({"members": [-1, 2]}, "distinct clients"),
        ({"members": [3, 3]}, "distinct clients"),
        ({"members": [0.5, 1]}, "whole numbers"),
        ({"weights": [0.5]}, "one entry for each of 2 members"),
        ({"weights": [0.5, np.nan]}, "weights must be finite"),
        ({"bandwidth": [1000.0, 1000.0]}, "add up to 1"),
        ({"bandwidth": [0.5, 0.0]}, "bandwidth must be positive"),
        ({"bandwidth": [0.5, -0.1]}, "bandwidth must be positive"),
        ({"deadline": -1.0}, "deadline must be positive"),
        ({"local_steps": 0}, "local_steps must be positive"),
        ({"step_size": -0.1}, "step_size must be positive"),
        ({"counts": [0, 1]}, "counts must be positive"),
        ({"returns": None}, "RoundPlan, a Probe or a Restart"),
        ({"returns": Restart()}, "after at most 100 probes"),
        ({"returns": Probe(clients=[0, 40], ask="loss")}, "clients must lie below 12"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(data, times, plan, said):
    with pytest.raises(InputError, match=said):
        run(data, times, Telling(**plan), rounds=1)


def test_probes_are_checked():
    with pytest.raises(InputError, match="ask must be one of"):
        Probe(clients=[1], ask="mood")
    with pytest.raises(InputError, match="nobody"):
        Probe(clients=[], ask="loss")


def test_a_round_without_members_passes_by(data, times):
    result = run(data, times, Telling(members=[], weights=[]), rounds=2)
    assert [r["round_time"] for r in result.records] == [0.0, 0.0]
    assert not result.model.any()


def test_a_probe_sends_the_model_once(data, times):
    for ask in ("loss", "update_norm"):
        near, far = (
            run(data, times, Asking(ask), rounds=1, download_time=np.full(12, seconds)).records[0]["round_time"]
            for seconds in (0.0, 5.0)
        )
        assert far == pytest.approx(near + 5.0)


def test_bad_arguments_of_simulate_get_one_sentence(data, times):
    for more, said in (
        ({"seed": -1}, "seed must be"),
        ({"seed": 1.5}, "seed must be"),
        ({"cohort_sise": 3}, "did you mean 'cohort_size'"),
        ({"options": {"speed": 1}}, "options"),
        ({"policy": "uniform", "options": {"replacement": "no"}}, "true or false"),
        ({"policy": "proposed", "options": {"losses": 5}}, "list of positive losses"),
        ({"policy": "proposed", "options": {"losses": ["a"]}}, "must hold numbers"),
        ({"policy": "statistical", "options": {"losses": [1.0], "floor": 0.5}}, "'floor'"),
        ({"policy": lambda fleet: fleet.data_share, "options": {"a": 1}}, "options"),
        ({"server_momentum": 1.0}, "below 1"),
    ):
        with pytest.raises(InputError, match=said):
            run(data, times, **more)
    with pytest.raises(InputError, match="cohort_size must be given"):
        simulate(data, **times, max_rounds=1)
    with pytest.raises(InputError, match="FederatedData"):
        simulate((1, 2), **times, max_rounds=1, cohort_size=2)
    with pytest.raises(InputError, match="compute_time and upload_time"):
        simulate(data, max_rounds=1, cohort_size=2)
    assert repr(run(data, times, rounds=1)).startswith("RunResult(end=max_rounds, rounds=1")


def test_a_broken_policy_of_another_package_is_named(data, times, monkeypatch):
    from importlib.metadata import EntryPoint

    point = EntryPoint("mine", "fedtempo.theory.sampling:nothing", "fedtempo.policies")
    monkeypatch.setattr("fedtempo.policies.registry.entry_points", lambda group: [point])
    with pytest.raises(InputError, match="'mine' must be importable"):
        run(data, times, "mine")


ONE_THREAD = """
import numpy as np, threadpoolctl
from fedtempo import simulate
from fedtempo.data.federation import FederatedData
rng = np.random.default_rng(0)
inputs, labels = rng.random((40, 784), dtype=np.float32), np.arange(40) % 10
data = FederatedData(inputs, labels, np.array([0, 20, 40]), inputs, labels, 10, (1, 28, 28), "noise")
def look(fleet):
    return fleet.data_share
class Looking:
    def plan(self, context):
        from fedtempo.policies.policy import RoundPlan
        print([(pool["filepath"], pool["num_threads"]) for pool in threadpoolctl.threadpool_info()])
        return RoundPlan(members=[0], weights=[1.0])
    def observe(self, report):
        pass
MODEL
simulate(data, compute_time=1.0, upload_time=1.0, policy=Looking(), model=model, max_rounds=2, cohort_size=1)
"""


@pytest.mark.parametrize(
    "model", ["model = 'softmax'", "model = 'lenet5'", "from fedtempo.learning.models import LeNet5 as model"]
)
def test_one_thread_does_all_products(model):
    """In a new process, since libraries that are loaded too late would keep all their threads."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    script = ONE_THREAD.replace("MODEL", model)
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    lines = shown.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "openblas" in line
        assert all(threads == 1 for _, threads in ast.literal_eval(line))


class Idle:
    """A trainer without work: what remains is the loop's own."""

    num_parameters = 1

    def initial_model(self, rng):
        return np.zeros(1, dtype=np.float32)

    def train(self, models, work):
        zeros = np.zeros(len(work.start))
        update = zeros[:, None].astype(np.float32)
        return LocalResult(update=update, largest_gradient_norm=zeros, mean_gradient_norm=zeros, mean_loss=zeros)

    def evaluate(self, model):
        return Evaluation(1.0, 0.0)


@pytest.mark.parametrize("policy", ["uniform", "weighted", "full"])
def test_a_client_takes_at_most_200_bytes_beside_its_data(policy):
    size = 200_000
    inputs, labels = np.zeros((size, 1), dtype=np.float32), np.arange(size) % 2
    data = FederatedData(inputs, labels, np.arange(size + 1), inputs[:2], labels[:2], 2, (1,), "nothing")
    rng = np.random.default_rng(0)
    tracemalloc.start()
    compute, upload = rng.exponential(size=(2, size))
    fleet = Fleet(data.data_share, 1.0, compute, upload)
    running = assemble(
        data=data, trainer=Idle(), fleet=fleet, channel=StaticChannel(compute, upload), policy=policy, options={},
        seed=0, stop=StopSettings(max_rounds=3), training=TrainingSettings(cohort_size=10, local_steps=1, batch_size=1),
    )  # fmt: skip
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held <= 200 * size
    if policy != "full":
        assert len(list(running.rounds())) == 4


@pytest.mark.parametrize(
    ("policy", "options", "said"),
    [
        ("uniform", {"replacment": False}, "did you mean 'replacement'"),
        ("weighted", {"floor": 0.1}, "it takes none"),
        ("proposed", {}, "losses must be given"),
        ("proposed", {"losses": []}, "list of positive losses"),
        ("proposed-oracle", {}, "beta_over_alpha must be given"),
        ("proposed-oracle", {"beta_over_alpha": -1.0}, "beta_over_alpha must be zero or positive"),
    ],
)
def test_bad_options_of_policies_are_refused(data, times, policy, options, said):
    with pytest.raises(InputError, match=said):
        run(data, times, policy, options=options)
