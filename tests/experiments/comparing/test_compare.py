"""The verb `compare`: values in, values out, and nothing printed."""

import pytest

from fedtempo.checks import InputError
from fedtempo.engine.records import RunNotice
from fedtempo.experiments.comparing.compare import compare
from fedtempo.experiments.comparing.statistics import Target
from fedtempo.experiments.settings.config_file import load_experiment
from support.grids import ONE_PROCESS, cells


def test_a_comparison_is_a_value(config, tmp_path, capsys):
    experiment = load_experiment(config, over={"stop": {"target_loss": 1.8, "max_rounds": 8}})
    found = compare(experiment, ["uniform", "weighted"], [3, 4], folder=tmp_path / "runs", execution=ONE_PROCESS)
    assert (found.target, found.time_limit) == (Target(loss=1.8), None)
    assert [(run.policy, run.seed) for run in found.runs] == [
        ("uniform", 3), ("uniform", 4), ("weighted", 3), ("weighted", 4),
    ]  # fmt: skip
    table = found.table()
    assert table.title == "small, Synthetic(1, 1): seconds to loss 1.8"
    assert [row[0] for row in cells(table)[1:]] == ["uniform", "weighted"]
    for outcome, run in zip(found.outcomes(), found.runs, strict=True):
        assert outcome.reached == (run.time_to(loss=1.8) is not None)
        assert outcome.time_to_target == (run.time_to(loss=1.8) or run.time_trained)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")


def test_what_to_know_first_is_a_warning(config, tmp_path):
    experiment = load_experiment(config, over={"stop": {"target_loss": 2.15}})
    with pytest.warns(RunNotice, match="the pilots of proposed go on to loss 2.1, below the target 2.15"):
        compare(experiment, ["proposed"], [0], folder=tmp_path / "runs", execution=ONE_PROCESS)


@pytest.mark.parametrize(
    ("policies", "over", "sentence"),
    [
        (["uniform"], {}, "small.toml must have a target under [stop], got none; or give target_loss"),
        (["uniform", "unifrm"], {"stop": {"target_loss": 1.0}}, "did you mean 'uniform'?"),
        (
            ["uniform", "kvib"],
            {"stop": {"target_loss": 1.0}, "policy": {"kvib": {"thta": 1}}},
            "policy kvib: options must be known, got 'thta'",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_runs(config, tmp_path, policies, over, sentence):
    experiment = load_experiment(config, over=over)
    with pytest.raises(InputError) as caught:
        compare(experiment, policies, [0], folder=tmp_path / "runs", execution=ONE_PROCESS)
    assert sentence in str(caught.value)
    assert not (tmp_path / "runs").exists()
