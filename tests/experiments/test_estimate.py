"""What records show of a fleet, and which records are refused."""

import numpy as np
import pytest

from fedtempo.engine.records import RECORDS, read_records
from fedtempo.experiments.estimate import estimate_fleet
from fedtempo.theory.estimation import estimate_beta_over_alpha
from support.runs import SMALL, command, whole_run


def rounds_to(folder, target, phase="train"):
    rounds = [record for record in read_records(folder / RECORDS).rounds if record.phase == phase]
    return next((r.round + 1 for r in rounds if r.loss is not None and r.loss <= target), np.nan)


LOSSES = [1.0, 0.9]
COMPARABLE = f"""
[policy.proposed]
losses = {LOSSES}
max_rounds = 60
[policy.proposed.training]
cohort_size = 2
[policy.uniform.training]
cohort_size = 2
[policy.weighted.training]
cohort_size = 2
"""


@pytest.mark.parametrize("every", [1, 2])
def test_rounds_are_averaged_over_the_runs_of_a_scheme(config, tmp_path, every):
    text = SMALL.replace("local_steps = 5", f"local_steps = 5\nevaluate_every = {every}")
    config.write_text(text[: text.index("[policy.proposed]")] + COMPARABLE)
    runs = {scheme: [tmp_path / scheme / str(seed) for seed in range(3)] for scheme in ("uniform", "weighted")}
    for scheme, folders in runs.items():
        for seed, folder in enumerate(folders):
            whole_run(config, folder, seed, scheme, stop={"max_rounds": 60})
    whole_run(config, tmp_path / "proposed", 3, "proposed")
    files = [folder / RECORDS for folders in runs.values() for folder in folders] + [tmp_path / "proposed" / RECORDS]
    expected = {}
    for scheme, folders in runs.items():
        each = [[rounds_to(folder, target) for target in LOSSES] for folder in folders]
        each.append([rounds_to(tmp_path / "proposed", target, f"pilot-{scheme}") for target in LOSSES])
        expected[scheme] = np.mean(each, axis=0)
    assert np.isfinite([*expected.values()]).all()
    for order in (files, files[::-1]):
        found = estimate_fleet(order)
        wanted = estimate_beta_over_alpha(found.fleet, *expected.values(), cohort_size=2)
        np.testing.assert_array_equal(found.beta_over_alpha.ratios, wanted.ratios)
        np.testing.assert_array_equal(found.beta_over_alpha.values, wanted.values)


@pytest.mark.parametrize(
    ("old", "new", "differing"),
    [
        ("cohort_size = 3", "cohort_size = 4", "cohort size"),
        ("step_size = 0.05", "cohort_size = 2", "cohort size"),
        ("losses = [2.2, 2.1]", "losses = [2.2]", "losses"),
        ("mean = 1.0", "mean = 2.0", "times"),
        ("samples = 800", "samples = 801", "clients"),
        ("[stop]", '[channel]\nkind = "fading"\n[stop]', "channel"),
    ],
)
def test_runs_that_do_not_go_together_are_refused(config, tmp_path, capsys, old, new, differing):
    whole_run(config, tmp_path / "runs" / "a", policy="weighted")
    assert old in SMALL
    config.write_text(SMALL.replace(old, new))
    whole_run(config, tmp_path / "runs" / "b", policy="weighted")
    assert command("estimate", tmp_path / "runs", "-o", tmp_path / "x.csv") == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert f"must have the same {differing} as" in error
    assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no records\n", "must hold the records of a run, got something else in line 1"),
        (b"[1]\n", "must hold the records of a run, got something else in line 1"),
        (b"\xff\xfe\n", "must hold the records of a run, got something else in line 1"),
        (b"", "must hold the records of a run, got no line"),
        (b'{"header":{"policy":"uniform"}}\n', "something else in line 1: Object missing required field `experiment`"),
        (b'{"round":0,"members":[1]}\n', "something else in line 1: Object missing required field `header`"),
    ],
)
@pytest.mark.parametrize("reader", ["estimate", "export"])
def test_other_files_are_refused(tmp_path, capsys, reader, content, said):
    (tmp_path / "other.jsonl").write_bytes(content)
    assert command(reader, tmp_path / "other.jsonl", "-o", tmp_path / "x.csv") == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert said in error


@pytest.mark.parametrize("reader", ["estimate", "export"])
def test_rounds_that_lack_something_are_refused(config, tmp_path, capsys, reader):
    header, first, *_ = whole_run(config, tmp_path / "out").splitlines(keepends=True)
    (tmp_path / "out" / RECORDS).write_bytes(header + first.replace(b'"upload_time"', b'"upload"'))
    assert command(reader, tmp_path / "out", "-o", tmp_path / "x.csv") == 2
    assert "got something else in line 2: " in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b'{"header":{"pol'])
def test_runs_killed_at_their_start_are_passed_over(config, tmp_path, capsys, content):
    whole_run(config, tmp_path / "runs" / "a")
    (tmp_path / "runs" / "b").mkdir()
    (tmp_path / "runs" / "b" / RECORDS).write_bytes(content)
    for reader, page in (("report", "x.html"), ("export", "x.csv"), ("estimate", "y.csv")):
        assert command(reader, tmp_path / "runs", "-o", tmp_path / page) == 0
        (note,) = (line for line in capsys.readouterr().err.splitlines() if "passed over" in line)
        assert note.startswith(f"note: {tmp_path / 'runs' / 'b' / RECORDS} without a line passed over")
    assert command("report", tmp_path / "runs" / "b", "-o", tmp_path / "x.html") == 2
    assert "must hold records of runs (records.jsonl), got none" in capsys.readouterr().err


def test_runs_that_name_no_losses_take_those_of_the_others(setup2, tmp_path, capsys):
    """Those of a comparison: their headers leave out other policies' options."""
    arguments = ["compare", setup2, "--policies", "uniform,weighted,proposed", "--seeds", 1, "--target-loss", 1.4]
    assert command(*arguments, "--jobs", 1, "-o", tmp_path / "runs") == 0
    capsys.readouterr()
    assert command("estimate", tmp_path / "runs", "-o", tmp_path / "fleet.csv") == 0
    assert "none in these records" not in capsys.readouterr().out


@pytest.fixture
def compared(setup2, tmp_path, capsys):
    """A comparison of uniform and weighted sampling, whose records name no losses."""
    arguments = ["compare", setup2, "--policies", "uniform,weighted", "--seeds", 1, "--target-loss", 1.4]
    assert command(*arguments, "--jobs", 1, "-o", tmp_path / "runs") == 0
    capsys.readouterr()
    return tmp_path / "runs"


def test_what_beta_over_alpha_lacks_is_said_and_may_be_given(compared, tmp_path, capsys):
    def said(*options, folder=compared):
        assert command("estimate", folder, "-o", tmp_path / "fleet.csv", *options) == 0, "the fleet was written"
        return capsys.readouterr().out.splitlines()[0]

    assert said().startswith("β/α must have losses to count rounds to, got none in these records; give --losses")
    assert said("--losses", "0.1,0.2").startswith("β/α must have a loss that all runs reached, got 0.2 as the highest")
    assert "must" not in said("--losses", "2.6,2.5")
    (uniform,) = compared.glob("**/uniform-*")
    assert "got none of weighted; run weighted too" in said("--losses", "1.8", folder=uniform)


def test_losses_that_are_given_take_the_place_of_those_of_the_runs(config, tmp_path):
    whole_run(config, tmp_path / "proposed", 3, "proposed")
    files = [tmp_path / "proposed" / RECORDS]
    assert len(estimate_fleet(files).beta_over_alpha.values) == 2
    assert len(estimate_fleet(files, [2.25, 2.2, 2.1]).beta_over_alpha.values) == 3


@pytest.mark.parametrize("losses", ["", "1,1", "one", "0", "nan"])
def test_losses_must_be_positive_numbers(config, tmp_path, capsys, losses):
    whole_run(config, tmp_path / "a")
    assert command("estimate", tmp_path / "a", "-o", tmp_path / "x.csv", "--losses", losses) == 2
    assert "--losses must " in capsys.readouterr().err
    assert not (tmp_path / "x.csv").exists()
