"""Single settings over an experiment: what a text means, what it lies over, and one sentence for bad ones."""

import tomllib

import pytest

from fedtempo.checks import InputError
from fedtempo.engine.records import RECORDS, read_header
from fedtempo.experiments.settings.assignments import lay_over, parse_assignments, refuse_assigned
from fedtempo.experiments.settings.config import for_policy
from fedtempo.experiments.settings.config_file import load_experiment
from support.runs import command


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("training.step_size=0.05", ("training", "step_size"), 0.05),
        (" stop.max_rounds = 20 ", ("stop", "max_rounds"), 20),
        ("training.link=shared", ("training", "link"), "shared"),
        ('training.link="shared"', ("training", "link"), "shared"),
        ("channel.times_known=false", ("channel", "times_known"), False),
        ("channel.told=false", ("channel", "times_known"), False),
        ("data.kind=my.module:make", ("data", "kind"), "my.module:make"),
        ("times.compute_scores=/a/b-c.json", ("times", "compute_scores"), "/a/b-c.json"),
        ("policy.proposed.losses=[2.2, 2.1]", ("policy", "proposed", "losses"), [2.2, 2.1]),
        ("times.upload={kind='constant', value=1.0}", ("times", "upload"), {"kind": "constant", "value": 1.0}),
        ('policy."my.module:Mine".floor=0.1', ("policy", "my.module:Mine", "floor"), 0.1),
        ('name="two = words"', ("name",), "two = words"),
    ],
)
def test_the_value_is_toml_and_a_bare_word_text(text, path, value):
    (found,) = parse_assignments([text])
    assert (found.path, found.value, found.text) == (path, value, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("training.step_size", "must be KEY=VALUE, got 'training.step_size'; for example training.step_size=0.05"),
        ("training.step_size=", "must be KEY=VALUE"),
        ("=1", "must be KEY=VALUE"),
        ("training..step_size=1", "must name a setting, such as training.step_size, got 'training..step_size'"),
        ("[training]=1", "must name a setting"),
        ("name=two words", "must have a value of TOML, or a bare word, got 'two words'; quote text"),
        ("a.b=[1,", "must have a value of TOML"),
        ("a.b=1\nc=2", "must have a value of TOML"),
        ("training={step_size=0.1}", "must name a setting, not a whole table"),
    ],
)
def test_what_is_no_assignment_gets_one_sentence(text, said, config, capsys):
    with pytest.raises(InputError) as error:
        parse_assignments([text])
    assert said in str(error.value)
    assert command("run", config, "--policy", "uniform", "--set", text) == 2
    assert "fedtempo: --set must " in capsys.readouterr().err


def test_settings_lie_over_all_else_and_replace_tables():
    table = tomllib.loads(
        "[training]\nstep_size = 0.1\n[times]\nupload = {kind = 'uniform', low = 1.0, high = 2.0}\n"
        "[policy.weighted.training]\nstep_size = 0.2\n[policy.uniform.training]\nstep_size = 0.3\ncohort_size = 4\n"
    )
    before = repr(table)
    found = lay_over(
        table,
        parse_assignments(
            ["training.step_size=0.5", "training.step_size=0.6", "times.upload={kind='constant', value=1}"]
        ),
    )
    assert found["training"] == {"step_size": 0.6}
    assert found["times"]["upload"] == {"kind": "constant", "value": 1}
    assert found["policy"] == {"weighted": {}, "uniform": {"training": {"cohort_size": 4}}}
    assert repr(table) == before


def test_a_policys_own_setting_is_over_that_of_all_where_both_are_set(config):
    given = parse_assignments(["policy.weighted.training.step_size=0.7", "training.step_size=0.6"])
    experiment = load_experiment(config, "best", over={"training": {"step_size": 0.4}}, assignments=given)
    steps = {policy: for_policy(experiment, policy)[0].step_size for policy in ("uniform", "weighted")}
    assert steps == {"uniform": 0.6, "weighted": 0.7}
    assert experiment.training.link == "shared", "the preset's"


def test_an_unknown_key_is_named(config, capsys):
    for text, said in (
        ("trainng.step_size=1", "trainng must be a known setting, got 'trainng'; did you mean 'training'?"),
        ("training.step_sze=1", "training.step_sze must be a known setting, got 'step_sze'; did you mean 'step_size'?"),
        ("training.step_size=big", "training.step_size must be a number or auto, got 'big'"),
        ("policy.unifrm.floor=1", "policy.unifrm must be a known policy, got 'unifrm'; did you mean 'uniform'?"),
        ("training.step_size.a=1", "training.step_size must be a table"),
        ("training=3", "training must be a table, got 3"),
        ("name.a=1", "name must be a table, got 'small'"),
    ):
        if text.startswith("training.step_size.a"):
            config.write_text(config.read_text().replace("local_steps = 5", "local_steps = 5\nstep_size = 0.1"))
        assert command("compare", config, "--policies", "uniform", "--target-loss", 1, "--set", text) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert f"{config} and the settings over it: {said}" in error


def test_what_somebody_chooses_itself_is_refused():
    given = parse_assignments(["policy.uniform={floor=0.1}"])
    with pytest.raises(
        InputError, match=r"assignments must not set policy.uniform.training.step_size, got .*; because"
    ):
        refuse_assigned(given, [("policy", "uniform", "training", "step_size")], "because")
    refuse_assigned(given, [("policy", "weighted", "training", "step_size")], "because")


def test_the_header_shows_what_was_used_and_another_value_is_another_run(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for step_size in (0.5, 0.6, 0.6):
        arguments = ["--set", f"training.step_size={step_size}", "--set", "stop.max_rounds=2"]
        assert command("run", config, "--policy", "weighted", *arguments) == 0
    found = sorted(tmp_path.rglob(RECORDS))
    assert [path.parent.parent for path in found] == [tmp_path / "runs/small"] * 2
    assert {read_header(path).config["training"]["step_size"] for path in found} == {0.5, 0.6}
    assert all("training" not in read_header(path).config["policy"]["weighted"] for path in found)


def test_studies_take_settings_but_not_those_that_they_try(config, setup2, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tune = [
        "tune",
        config,
        "--policies",
        "weighted",
        "--step-sizes",
        0.1,
        "--seeds",
        1,
        "--target-loss",
        2,
        "--jobs",
        1,
    ]
    assert command(*tune, "--set", "stop.max_rounds=2", "--set", "training.local_steps=3") == 0
    (path,) = tmp_path.rglob(RECORDS)
    used = read_header(path).config
    assert (used["stop"]["max_rounds"], used["training"]["local_steps"]) == (2, 3)
    capsys.readouterr()
    for arguments, said in (
        ([*tune, "--set", "training.step_size=1"], "--set must not set training.step_size, got 'training.step_size=1'"),
        ([*tune, "--set", "policy.weighted.training.step_size=1"], "--set must not set policy.weighted.training.step"),
        (["reproduce", "impact-of-k", "--set", "training.cohort_size=1"], "impact-of-k tries values of it"),
        (["leaderboard", "--setups", "setup2", "--set", "data.seed=1"], "--set must not set data.seed"),
    ):
        assert command(*arguments) == 2
        assert said in capsys.readouterr().err


def test_a_reproduction_names_the_settings_over_its_setups(setup2, tmp_path):
    arguments = ["--configs", setup2.parent, "--seeds", 1, "--jobs", 1, "--records", tmp_path / "runs"]
    given = ["--set", "stop.max_rounds=2", "--set", "training.cohort_size=2"]
    assert command("reproduce", "setup2", *arguments, *given, "-o", tmp_path / "out") == 0
    assert "--set stop.max_rounds=2 --set training.cohort_size=2` with" in (tmp_path / "out/setup2.md").read_text()
    for path in (tmp_path / "runs/setup2").rglob(RECORDS):
        assert read_header(path).config["training"]["cohort_size"] == 2
