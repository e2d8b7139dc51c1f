"""The page: its numbers are those of the records, and it needs nothing else."""

import html
import json
import re
import shutil
import tomllib
from dataclasses import replace

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.engine.divergence import DivergedError
from fedtempo.engine.records import RECORDS
from fedtempo.experiments.comparing.statistics import Target
from fedtempo.experiments.report.page import render, report, write_report
from fedtempo.experiments.running.results import read_runs
from support.reports import TARGET, run_small, with_header, written

pytest.importorskip("plotly")
pytest.importorskip("jinja2")


def without_plotly(page):
    """The page without the library's script, which names addresses that it does not load."""
    return re.sub(r"<script>/\*\*.*?</script>", "", page, flags=re.DOTALL)


def seconds_to(folder, loss):
    """Seconds of training to a loss and seconds of pilots, straight from the lines of a run."""
    lines = [json.loads(line) for line in (folder / RECORDS).read_text().splitlines()]
    pilots = sum(line["round_time"] for line in lines if line.get("phase", "train") != "train")
    taken = 0.0
    for line in lines:
        if line.get("phase") == "train":
            taken += line["round_time"]
            if line["loss"] <= loss:
                return taken, pilots
    return None, pilots


def test_a_page_is_a_value_that_says_and_shows_all(runs):
    page = report(runs, TARGET)
    assert (page.title, page.lead) == ("small", "4 runs of 1 experiment. Times are simulated seconds of training.")
    (section,) = page.sections
    assert (len(section.headlines), len(section.tables), section.problems) == (1, 1, None)
    assert section.piloted
    assert section.evaluated
    assert list(section.styles) == [group.name for group in section.plots.groups] == ["proposed", "uniform"]
    assert dict(section.facts)["Seeds"] == "proposed: 0–1; uniform: 0–1"
    assert render(page) == render(report(runs, TARGET))


def test_the_table_has_the_numbers_of_the_records(folder, runs, tmp_path):
    page = written(runs, tmp_path, TARGET)
    for policy in ("proposed", "uniform"):
        found = [seconds_to(folder / f"{policy}{seed}", TARGET.loss) for seed in (0, 1)]
        assert None not in [taken for taken, _ in found], "the target must be one that all reach"
        taken, pilots = np.array(found).T
        row = re.search(rf"<tr[^>]*><th[^>]*><svg.*?</svg>{policy}</th>(.*?)</tr>", page)[1]
        cells = re.findall(r"<td>(.*?)</td>", row)
        assert taken.mean() > 1000, "the numbers must need separators"
        assert cells[0] == f"{(taken + pilots).mean():,.0f} ± {(taken + pilots).std(ddof=1):,.0f}"
        assert cells[1] == "-", "two seeds make no interval"
        alone = [f"{pilots.mean():,.0f}", f"{taken.mean():,.0f} ± {taken.std(ddof=1):,.0f}"]
        assert cells[4:6] == (alone if policy == "proposed" else ["none", alone[1]])
        assert cells[6] == "0 of 2"


def test_runs_that_miss_the_target_are_counted_and_bounds_are_called_bounds(runs, tmp_path):
    target = Target(loss=float(min(run.loss.min() for run in runs) - 0.01))
    page = written(runs, tmp_path, target)
    assert "No policy reached loss" in page
    assert page.count("2 of 2<small>2 at the limit</small>") == 2
    given = np.mean([run.time[-1] for run in runs if run.policy == "uniform"])
    assert f"<td>&gt; {given:,.0f}</td>" in page


def test_nothing_comes_from_elsewhere_and_equal_runs_give_equal_bytes(runs, tmp_path):
    page = written(runs, tmp_path)
    own = without_plotly(page)
    assert len(own) < 200_000
    assert "Plotly.react" in own
    assert not re.findall(r"(?:https?:)?//[a-z]", own)
    for address in re.findall(r"(?:src|href)\s*=\s*[\"']([^\"']*)", own):
        assert address.startswith("#")
    assert "url(" not in own
    assert "@import" not in own
    assert "default-src 'none'" in own
    assert written(runs, tmp_path) == page


def test_names_are_text(runs, tmp_path):
    named = [replace(with_header(run, experiment="<b>x</b>"), policy=f"</script><i>{run.policy}</i>") for run in runs]
    page = written(named, tmp_path)
    assert "<b>x</b>" not in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page
    assert "<i>" not in without_plotly(page)
    assert page.count("</script>") == 3


def test_the_page_tells_how_to_run_it_again_to_the_byte(folder, runs, tmp_path, monkeypatch, capsys):
    from fedtempo.cli import main

    page = written(runs, tmp_path)
    config, commands = (html.unescape(text) for text in re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL))
    assert tomllib.loads(config) == runs[0].header.config
    assert commands.splitlines() == [
        f"fedtempo run CONFIG --policy {policy} --seed {seed}" for policy in ("proposed", "uniform") for seed in (0, 1)
    ]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "CONFIG").write_text(config)
    with pytest.raises(SystemExit) as ended:
        main([*commands.splitlines()[1].split()[1:], "-o", "again"])
    assert ended.value.code == 0
    assert (tmp_path / "again" / RECORDS).read_bytes() == (folder / "proposed1" / RECORDS).read_bytes()
    assert runs[0].header.data_checksum in page
    assert f"numpy {np.__version__}" in page


def test_runs_that_failed_are_listed(runs, tmp_path):
    with pytest.raises(DivergedError):
        run_small(tmp_path, policies=["uniform"], seeds=[2], over={"training": {"step_size": 1e6}})
    shutil.copytree(runs[0].folder, tmp_path / "cut")
    whole = (tmp_path / "cut" / RECORDS).read_bytes().splitlines(keepends=True)
    (tmp_path / "cut" / RECORDS).write_bytes(b"".join(whole[:-5]))
    (cut,) = read_runs([tmp_path / "cut"])
    page = written([*runs[2:], *read_runs([tmp_path])], tmp_path, TARGET)
    assert "2 runs of 4 did not come to an end" in page
    assert f"unfinished after {len(cut.trained)} rounds" in page
    assert "training diverged in round" in page
    only_header = tmp_path / "begun"
    only_header.mkdir()
    (only_header / RECORDS).write_bytes(whole[0])
    page = written(read_runs([only_header]), tmp_path)
    assert "unfinished after 0 rounds" in page
    assert "there are no curves" in page
    assert "data-plot" not in page.split("<script")[0]


def test_a_report_of_nothing_is_refused(tmp_path):
    with pytest.raises(InputError, match="at least one run"):
        write_report([], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
