"""Labels: short ones that tell runs apart."""

from fedtempo.experiments.report import labels
from fedtempo.experiments.report.labels import labelled
from fedtempo.experiments.report.sections import sections
from support.reports import with_config, with_header


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


def test_runs_of_a_policy_whose_code_has_changed_are_told_apart(runs):
    before, after = (with_header(runs[2], files={"policy": {"code": code * 8}}) for code in ("ab12", "cd34"))
    assert [run.policy for run in labelled([before, after])] == ["uniform, code ab12ab12", "uniform, code cd34cd34"]
    (section,) = sections([before, after, after])
    assert (len(section.runs), section.duplicates) == (2, 1)
    models = [with_header(runs[2], files={"model": {"kind": code * 8}}) for code in ("ab12", "cd34")]
    assert [run.policy for run in labelled(models)] == [
        "uniform, file of model.kind ab12ab12",
        "uniform, file of model.kind cd34cd34",
    ]
