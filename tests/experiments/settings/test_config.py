"""Files of experiments: presets, policies and paths in them, and one sentence for bad ones."""

import pytest

from fedtempo.checks import InputError
from fedtempo.experiments.running.problem import problem_of
from fedtempo.experiments.settings.config import for_policy
from fedtempo.experiments.settings.config_file import load_experiment
from support.paths import ROOT
from support.runs import SMALL, UPLOAD, command


def test_presets_and_policies_lie_over_the_file(config):
    experiment = load_experiment(config)
    assert experiment.training.link == "paper"
    best = load_experiment(config, "best")
    assert (best.training.link, best.training.duplicates) == ("shared", "physical")
    assert for_policy(best, "weighted")[0].step_size == 0.05
    training, options = for_policy(best, "proposed")
    assert training.step_size == 0.1
    assert options == {"losses": [2.2, 2.1], "max_rounds": 4}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "cohort_size = 3",
            "cohort_siz = 3",
            "training.cohort_siz must be a known setting, got 'cohort_siz'; did you mean",
        ),
        ("cohort_size = 3", "cohort_size = 0", "training: cohort_size must be a whole number of at least 1, got 0"),
        ("cohort_size = 3", 'cohort_size = "3"', "training.cohort_size must be a whole number, got '3'"),
        ("cohort_size = 3", "cohort_size = true", "training.cohort_size must be a whole number, got True"),
        ("cohort_size = 3", "", "training.cohort_size must be given"),
        ("local_steps = 5", "step_size = -1", "step_size must be positive"),
        ("local_steps = 5", 'link = "wired"', "training.link must be one of paper, equal, shared, got 'wired'"),
        ("max_rounds = 6", "", "must have a limit"),
        ('kind = "synthetic"', 'kind = "cifar"', "data.kind must be one of synthetic, mnist, emnist"),
        ("samples = 800", "samples = 3", "samples"),
        ("[training]", "[trainng]", "did you mean 'training'"),
        ("[training]", "training", "must be TOML"),
        ('upload = { kind = "uniform", low = 0.2, high = 2.0 }', "", "either upload or uplink_mbps"),
        ('kind = "uniform", low = 0.2', 'kind = "uniform", lw = 0.2', "times.upload.lw must be a known setting"),
        ("low = 0.2, high = 2.0", "low = 0.0, high = 0.0", "times.upload: high must be positive"),
        ("[policy.weighted.training]\nstep_size = 0.05", "[policy.weighted]\nflor = 1", "got 'flor'"),
        (
            "[policy.weighted.training]\nstep_size = 0.05",
            "[policy.weighted.training]\nstep = 1",
            "policy.weighted.training.step",
        ),
        ("samples = 800", "samples = 800\nclasses = [1]", "data.classes must be a list of 2"),
        (UPLOAD, '[channel]\nkind = "traces"\ntraces = ["no.up"]', "no.up"),
        (UPLOAD, '[channel]\nkind = "traces"', "at least one trace"),
        (
            UPLOAD,
            f'{UPLOAD}\n[channel]\nkind = "traces"',
            "times.upload must not be given where channel.kind is traces",
        ),
        (
            "[policy.weighted.training]\nstep_size = 0.05",
            "[policy]\nweighted = 3",
            "policy.weighted must be a table, got 3",
        ),
        (
            "[policy.weighted.training]\nstep_size = 0.05",
            "[policy.weighted]\ntraining = 3",
            "policy.weighted.training must be a table, got 3",
        ),
        ("[policy.weighted.training]", "[policy.weigthed]", "got 'weigthed'; did you mean 'weighted'?"),
        (
            "[presets.best.training]",
            "[presets]\npaper = 3\n[presets.best.training]",
            "presets.paper must be a table, got 3",
        ),
        ('name = "small"', 'name = "small"\npreset = "best"', "preset must be a known setting"),
        ("samples = 800", "samples = 800\nseed = -1", "data: seed must be a whole number of at least 0, got -1"),
        (UPLOAD, f"{UPLOAD}\nseed = -1", "times: seed must be a whole number of at least 0, got -1"),
        ("[stop]", "[channel]\nseed = -1\n[stop]", "channel: seed must be a whole number of at least 0, got -1"),
        ('kind = "softmax"', 'kind = "softmax"\ndevice = "gpu"', "device must be cpu for softmax, got 'gpu'"),
        ('kind = "softmax"', 'kind = "lenet5"', "must have the shape"),
        ("cohort_size = 3", "cohort_size = 100000000000", "cohort_size must be at most 10,000,000"),
    ],
)
def test_bad_configurations_get_one_sentence_and_code_2(config, tmp_path, capsys, old, new, said):
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new))
    assert command("run", config, "--policy", "weighted", "-o", tmp_path / "out") == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert said in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("preset", ["paper", "authors-code", "best"])
@pytest.mark.parametrize("setup", ["setup1", "setup2", "setup3"])
def test_the_setups_are_those_of_the_paper(setup, preset):
    experiment = load_experiment(ROOT / "configs" / f"{setup}.toml", preset)
    training, data = experiment.training, experiment.data
    assert (training.local_steps, training.batch_size) == (50, 24)
    assert (data.clients, data.samples, training.cohort_size) == {
        "setup1": (40, 33036, 4), "setup2": (100, 20509, 10), "setup3": (100, 15129, 10),
    }[setup]  # fmt: skip
    assert (training.duplicates == "physical") == (preset == "best")
    assert for_policy(experiment, "uniform")[1].get("replacement", True) == (preset != "authors-code")


@pytest.mark.parametrize(
    ("name", "kind", "model"),
    [("fashion", "fashion-mnist", "lenet5"), ("cifar10", "cifar10", "cnn"), ("shakespeare", "shakespeare", "lstm")],
)
def test_each_data_set_has_a_configuration_with_the_times_of_setup_3_and_one_with_phones(
    tmp_path, monkeypatch, name, kind, model
):
    path = ROOT / "configs" / f"{name}.toml"
    experiment = load_experiment(path)
    assert (experiment.data.kind, experiment.model.kind) == (kind, model)
    assert experiment.times == load_experiment(ROOT / "configs" / "setup3.toml").times
    assert experiment.stop.target_loss is not None
    (tmp_path / "traces").mkdir()
    for file in ("benchmark2score.json", "ATT-LTE-driving.up"):
        (tmp_path / "traces" / file).touch()
    monkeypatch.setenv("FEDTEMPO_DATA", str(tmp_path))
    phones = load_experiment(path, "phones")
    assert phones.times.compute is None
    assert phones.times.upload is None
    assert phones.times.compute_scores == str(tmp_path / "traces" / "benchmark2score.json")
    assert phones.channel.traces[0] == str(tmp_path / "traces" / "ATT-LTE-driving.up")
    assert phones.channel.traces[1] == "traces/TMobile-UMTS-driving.up", "nobody has it here"


@pytest.mark.parametrize(
    ("preset", "times"),
    [
        ('[times]\ncompute_scores = "phones.json"', {"compute_scores", "upload"}),
        ('[times]\nuplink_mbps = { kind = "constant", value = 3 }', {"compute", "uplink_mbps"}),
        ('[channel]\nkind = "traces"\ntraces = ["lte.up"]', {"compute"}),
        ("[training]\nbatch_size = 3", {"compute", "upload"}),
    ],
)
def test_a_preset_replaces_times_that_it_gives_in_another_way(config, preset, times):
    config.write_text(SMALL + preset.replace("[", "[presets.other.", 1))
    experiment = load_experiment(config, "other")
    given = {name for name in ("compute", "compute_scores", "upload", "uplink_mbps") if getattr(experiment.times, name)}
    assert given == times


def test_presets_and_limits_that_are_no_tables_are_refused(config, tmp_path, capsys):
    whole = SMALL[: SMALL.index("[presets")]
    for text, more, said in (
        (whole.replace("[data]", "presets = 3\n[data]"), [], "presets must be a table, got 3"),
        (whole + "[presets]\nbest = 3\n", ["--preset", "best"], "presets.best must be a table, got 3"),
        (whole.replace("[stop]\nmax_rounds = 6", ""), ["--target-loss", 1.0], "must have a limit"),
        (
            whole.replace("[stop]\nmax_rounds = 6", "").replace("[data]", "stop = 3\n[data]"),
            ["--target-loss", 1.0],
            "stop must be a table, got 3",
        ),
    ):
        config.write_text(text)
        assert command("run", config, "--policy", "uniform", "-o", tmp_path / "out", *more) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert said in error


def test_files_lie_beside_the_configuration_or_where_the_command_is_given(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    config = tmp_path / "there" / "small.toml"
    text = SMALL.replace(UPLOAD, '[channel]\nkind = "traces"\ntraces = ["R.CSV", "b.up"]')
    config.write_text(text.replace('compute = { kind = "exponential", mean = 1.0 }', 'compute_scores = "scores.json"'))
    for folder in ("here", "there"):
        (tmp_path / folder / "R.CSV").write_text("time,mbps\n0,1\n5,10\n")
        (tmp_path / folder / "scores.json").write_text('{"a": 1.0}')
    (tmp_path / "here" / "b.up").write_text("1\n2\n")
    monkeypatch.chdir(tmp_path / "here")
    experiment = load_experiment(config)
    assert experiment.channel.traces == (str(tmp_path / "there" / "R.CSV"), str(tmp_path / "here" / "b.up"))
    assert experiment.times.compute_scores == str(tmp_path / "there" / "scores.json")
    assert experiment.table["channel"]["traces"] == ["R.CSV", "b.up"]
    assert experiment.table["times"]["compute_scores"] == "scores.json"
    assert len(problem_of(experiment).fleet) == 10


def test_a_setting_is_known_by_its_former_name_too(config):
    for preset, known in (("paper", False), ("best", True)):
        config.write_text(SMALL + "[channel]\ntold = false\n[presets.best.channel]\ntimes_known = true\n")
        experiment = load_experiment(config, preset)
        assert experiment.channel.times_known is known
        assert experiment.table["channel"] == {"times_known": known}, "records have the present name"
        assert problem_of(experiment).channel.at(0, 0.0).known is known
    config.write_text(SMALL + "[channel]\ntold = false\ntimes_known = true\n")
    with pytest.raises(InputError, match=r"channel.told must not be given beside channel.times_known"):
        load_experiment(config)


@pytest.mark.parametrize("text", ["", "\n", "# nothing yet\n"])
def test_an_empty_file_is_called_empty(config, capsys, text):
    config.write_text(text)
    assert command("run", config, "--policy", "uniform") == 2
    said = f"{config} must hold an experiment, got an empty file; fedtempo init writes one to start from"
    assert capsys.readouterr().err == f"fedtempo: {said}\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("clients = 10", "clients = 0", "data.clients must be a whole number of at least 1, got 0"),
        ("samples = 800", "samples = -1", "data.samples must be a whole number of at least 1, got -1"),
        (
            "samples = 800",
            "samples = 3",
            "data.samples must give each of the 10 clients at least 1, got 3 samples",
        ),
        ("samples = 800", "samples = 800\nbeta = -1.0", "data.beta must be zero or positive, and finite, got -1.0"),
        (
            "clients = 10",
            "clients = 1",
            "data: each of the 10 classes must be held by a client, got no sample",
        ),
    ],
)
@pytest.mark.parametrize("policies", [["run", "--policy"], ["compare", "--target-loss", 1, "--policies"]])
def test_what_is_wrong_with_data_is_named_as_in_the_file(config, capsys, old, new, said, policies):
    config.write_text(SMALL.replace(old, new))
    name, *options = policies
    assert command(name, config, *options, "uniform") == 2
    assert capsys.readouterr().err.startswith(f"fedtempo: {config}: {said}")
