"""Labels: short ones that tell runs apart."""

from fedtempo.experiments.report import labels
from fedtempo.experiments.report.labels import labelled
from support.reports import with_config


def test_labels_are_short_where_that_tells_runs_apart_and_take_one_look_at_each_run(runs, monkeypatch):
    def with_ratio(run, value):
        return with_config(run, policy={"uniform": {"beta_over_alpha": value}})

    far = [with_ratio(run, value) for run, value in zip(runs[2:], (1177.017519697371, 63.88), strict=True)]
    assert [run.policy for run in labelled(far)] == [
        "uniform, beta_over_alpha 1,177",
        "uniform, beta_over_alpha 63.88",
    ]
    near = [with_ratio(run, value) for run, value in zip(runs[2:], (1177.01, 1177.02), strict=True)]
    assert [run.policy for run in labelled(near)] == [
        "uniform, beta_over_alpha 1177.01",
        "uniform, beta_over_alpha 1177.02",
    ]
    looks, plain = [], labels._differing
    monkeypatch.setattr(labels, "_differing", lambda settings: looks.append(len(settings)) or plain(settings))
    labelled(runs * 5)
    assert sorted(looks) == [10, 10, 20], "once for all runs, once for those of each policy"
