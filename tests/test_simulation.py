"""The loop: exactly reproducible, resumable, honest about time, and open to policies of every kind."""

import sys
import tracemalloc

import numpy as np
import pytest

from fedtempo import Fleet, InputError
from fedtempo.data.federation import FederatedData
from fedtempo.data.synthetic import synthetic_data
from fedtempo.learning.softmax import SoftmaxTrainer
from fedtempo.learning.trainer import Evaluation, LocalResult
from fedtempo.policies.policy import PolicySetting, Probe, RoundPlan
from fedtempo.policies.registry import BUILT_IN, available_policies, make
from fedtempo.simulator.api import assemble, simulate
from fedtempo.simulator.channel import StaticChannel
from fedtempo.simulator.loop import DivergedError
from fedtempo.simulator.markov import WithAbsences
from fedtempo.simulator.settings import StopSettings, TrainingSettings

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


def test_absent_clients_fail_and_do_not_count(data, times):
    failed = 0
    for record in simulation(data, times, "uniform").rounds():
        if "members" in record:
            failed += len(record["failed"])
            for client in record["failed"]:
                assert record["update_norm"][record["members"].index(client)] is None
    assert failed > 0


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
    assert [r["loss"] is not None for r in result.records] == [False, False, True, False, False, True, False]
    seconds, losses = result.series("loss")
    assert len(seconds) == len(losses) == 2


def test_a_diverging_run_names_the_round(data, times):
    with pytest.raises(DivergedError, match=r"diverged in round \d+.*smaller step_size"):
        run(data, times, "uniform", rounds=300, step_size=1e30, schedule="constant")


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
    with pytest.raises(InputError, match=r"pip install 'fedtempo\[torch\]'"):
        run(data, times, model=lambda: None)


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
        ("proposed", {"losses": []}, "at least one positive loss"),
        ("proposed-oracle", {}, "beta_over_alpha must be given"),
        ("proposed-oracle", {"beta_over_alpha": -1.0}, "beta_over_alpha must be zero or positive"),
    ],
)
def test_bad_options_of_policies_are_refused(data, times, policy, options, said):
    with pytest.raises(InputError, match=said):
        run(data, times, policy, options=options)
