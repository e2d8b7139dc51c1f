"""A step size that nobody chose: what is found, what it costs, and that runs go on with it as with any other."""

import numpy as np
import pytest

import fedtempo
from fedtempo.checks import InputError
from fedtempo.data.synthetic import synthetic_data
from fedtempo.engine.settings import TrainingSettings
from fedtempo.engine.step_size import GREAT, choose_step_size, quickest

CLIENTS = 12
DATA = synthetic_data(alpha=1.0, beta=1.0, num_clients=CLIENTS, num_samples=1500, seed=0)
TIMES = {"compute_time": np.linspace(0.2, 2.4, CLIENTS), "upload_time": 1.0}
TASK = {**TIMES, "cohort_size": 3, "local_steps": 20, "max_rounds": 6, "progress": False}


def path_of_a_quadratic(curvature, steps=30):
    """Return the mean loss along gradient descent on ½ L w² from w = 1, in closed form."""

    def mean_loss(step_size):
        with np.errstate(over="ignore"):
            way = np.abs(1 - step_size * curvature) ** (2.0 * np.arange(steps)[:, None])
            return (curvature / 2 * way).mean(axis=0)

    return mean_loss


@pytest.mark.parametrize("curvature", [1e-4, 0.1, 3.0, 1e4])
def test_on_a_quadratic_it_is_the_smallest_with_nearly_the_greatest_gain(curvature):
    losses = path_of_a_quadratic(np.array([curvature]))
    found = choose_step_size(losses)
    sizes = np.geomspace(1e-4, 10, 4000) / curvature
    gains = curvature / 2 - np.array([losses(size)[0] for size in sizes])
    exact = sizes[gains >= GREAT * gains.max()][0]
    assert exact / 1.5 < found < exact * 1.5


def test_it_goes_by_the_median_client():
    found = [choose_step_size(path_of_a_quadratic(np.array(each))) for each in ([1.0], [1.0, 1.0, 1000.0])]
    assert found[0] == pytest.approx(found[1])


def test_a_client_whose_loss_is_no_number_does_not_count():
    losses = path_of_a_quadratic(np.array([1.0, 1.0, 1.0]))
    broken = choose_step_size(lambda size: np.where([True, True, False], losses(size), np.nan))
    assert broken == choose_step_size(losses)


@pytest.mark.parametrize("loss", [np.inf, np.nan, 0.0, 7.0])
def test_a_loss_that_no_step_lowers_is_told(loss):
    with pytest.raises(InputError, match="no step size lowers the loss"):
        choose_step_size(lambda size: np.array([loss]))


def test_steps_that_are_too_long_at_first_are_passed_over():
    losses = path_of_a_quadratic(np.array([1e7]))
    assert choose_step_size(lambda size: np.where(losses(size) < 1e9, losses(size), np.nan)) < 2e-7


def test_the_quickest_of_those_available_try():
    assert quickest(np.array([3.0, 1.0, 2.0, 0.1]), np.array([0, 1, 2])).tolist() == [0, 1, 2]
    assert quickest(np.arange(20.0)[::-1], np.arange(20)).tolist() == list(range(12, 20))


@pytest.mark.parametrize("policy", ["weighted", "tempo", "fedbuff", "ocs", "fedacg"])
def test_a_run_is_that_with_the_number_after_a_pilot_that_takes_its_time(policy):
    auto = fedtempo.simulate(DATA, policy=policy, step_size="auto", **TASK)
    pilot, first = auto.records[0], auto.records[1]
    assert pilot.phase == "step-size"
    assert pilot.time == pilot.round_time > 0
    assert auto.summary.pilot_time == pilot.round_time
    assert first.time == pytest.approx(pilot.time + first.round_time)
    given = fedtempo.simulate(DATA, policy=policy, step_size=pilot.note["step_size"], schedule="constant", **TASK)
    assert [record.loss for record in auto.records[1:]] == [record.loss for record in given.records]
    assert auto.summary.time == pytest.approx(given.summary.time)


def test_the_pilot_takes_the_paths_of_the_slowest_that_tries():
    pilot = fedtempo.simulate(DATA, step_size="auto", **TASK).records[0]
    asked, slowest = pilot.note["asked"], max(TIMES["compute_time"][pilot.note["asked"]])
    assert asked == list(range(8))
    paths = pilot.round_time / slowest
    assert paths == pytest.approx(round(paths))
    assert 4 <= paths <= 12


def test_of_few_local_steps_paths_are_longer():
    quick, usual = (fedtempo.simulate(DATA, step_size="auto", **TASK | {"local_steps": e}) for e in (1, 20))
    assert quick.records[0].note["step_size"] == usual.records[0].note["step_size"]
    assert quick.records[0].round_time == pytest.approx(20 * usual.records[0].round_time)


def test_absent_clients_are_not_asked():
    channel = fedtempo.simulator.absences.WithAbsences(
        fedtempo.simulator.channel.StaticChannel(TIMES["compute_time"], np.ones(CLIENTS)), present_share=0.5, seed=1
    )
    pilot = fedtempo.simulate(DATA, step_size="auto", channel=channel, **TASK).records[0]
    present = np.flatnonzero(channel.at(0, 0.0).available)
    assert set(pilot.note["asked"]) <= set(present.tolist())


def test_whoever_names_nothing_gets_a_step_size_that_was_found_and_does_not_fall():
    settings = TrainingSettings(cohort_size=1, step_size="auto")
    assert (settings.schedule, settings.step_size_of(7, 0.03)) == ("constant", 0.03)
    assert TrainingSettings(cohort_size=1, step_size=0.1).schedule == "inverse"
    run = fedtempo.simulate(DATA, **TIMES, max_rounds=2, progress=False)
    assert run.records[0].phase == "step-size"
    assert run.records[1].upload_bits


def test_an_oracle_knows_gradients_at_the_step_size_that_is_found():
    options = {"beta_over_alpha": 0.1}
    auto = fedtempo.simulate(DATA, policy="proposed-oracle", options=options, step_size="auto", **TASK)
    found = auto.records[0].note["step_size"]
    given = fedtempo.simulate(
        DATA, policy="proposed-oracle", options=options, step_size=found, schedule="constant", **TASK
    )
    assert [record.members for record in auto.records[1:]] == [record.members for record in given.records]


@pytest.mark.parametrize("wrong", ["fast", 0, -1.0, float("nan"), True])
def test_other_values_are_refused(wrong):
    with pytest.raises(InputError, match="step_size"):
        fedtempo.simulate(DATA, step_size=wrong, **TASK)
