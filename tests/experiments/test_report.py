"""The report: its numbers are those of the records, its page needs nothing else, and a browser draws it."""

import html
import json
import os
import re
import shutil
import subprocess
import tomllib
from dataclasses import replace

import numpy as np
import pytest
from test_run import SMALL

from fedtempo import InputError
from fedtempo.engine.loop import DivergedError
from fedtempo.engine.records import RECORDS
from fedtempo.experiments import report_data, runner
from fedtempo.experiments.comparison import Target, Times, times_to
from fedtempo.experiments.config import read_experiment
from fedtempo.experiments.figures import styles
from fedtempo.experiments.report import as_toml, write_report
from fedtempo.experiments.report_data import choose_target, headline, labelled, plot_data, sections, why_missed
from fedtempo.experiments.results import read_runs
from fedtempo.experiments.tables import amount

pytest.importorskip("plotly")

LONG = SMALL.replace("max_rounds = 6", "max_rounds = 12").replace("mean = 1.0", "mean = 900.0")
LONG = LONG.replace("low = 0.2, high = 2.0", "low = 200.0, high = 2000.0")
TARGET = Target(loss=1.95)


def run_small(folder, *, policies=("proposed", "uniform"), seeds=(0, 1), preset="paper", over=None):
    (folder / "small.toml").write_text(LONG)
    experiment, table = read_experiment(folder / "small.toml", preset, over=over)
    for policy in policies:
        for seed in seeds:
            runner.run(experiment, table, policy=policy, seed=seed, folder=folder / f"{policy}{seed}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    run_small(folder)
    return folder


@pytest.fixture(scope="module")
def runs(folder):
    return read_runs([folder])


def written(runs, tmp_path, target=None):
    write_report(runs, tmp_path / "report.html", target=target)
    return (tmp_path / "report.html").read_text(encoding="utf-8")


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


def test_the_headline_names_the_first_and_the_ratios(runs):
    times = times_to(runs, TARGET)
    counted = [one.with_pilots() for one in times.values()]
    first, last = sorted(counted, key=lambda one: one.mean)
    said = headline(times, TARGET)
    after = f"after {first.mean:,.0f} s, pilots counted, in the mean of 2 seeds."
    assert said.startswith(f"{first.policy} was first at loss 1.95 {after}")
    assert f"Next was {last.policy}, which took {last.mean / first.mean:.2f} times as long (95 % interval" in said
    trained = min(times.values(), key=lambda one: one.mean)
    other = f"With all pilots left out, {trained.policy} would be first, after {trained.mean:,.0f} s."
    assert said.endswith(other) == (trained.policy != first.policy)
    alone = {"uniform": times["uniform"]}
    assert headline(alone, TARGET).startswith("uniform reached loss 1.95 after"), "there are no pilots to speak of"
    assert "pilots" not in headline(alone, TARGET)


def ended_at(run, **stop):
    return replace(run, header=run.header | {"config": run.header["config"] | {"stop": stop}})


def times_of(policy, seconds, *, missed=0, pilots=0.0, oracle=False):
    reached = np.array([place >= missed for place in range(3)])
    return Times(policy, (0, 1, 2), np.full(3, seconds), np.full(3, pilots), reached, np.ones(3), oracle)


def test_a_headline_names_the_next_or_a_few_and_how_many_more_there_are():
    times = {f"p{n}": times_of(f"p{n}", 100.0 * n) for n in range(1, 20)}
    said = headline(times, TARGET)
    assert said == (
        "p1 was first at loss 1.95 after 100 s in the mean of 3 seeds. "
        "Next was p2, which took 2.00 times as long (95 % interval 2.00–2.00)."
    )
    short = {label: one if label == "p1" else replace(one, reached=~one.reached) for label, one in times.items()}
    assert headline(short, TARGET).endswith(
        "The others missed it: p2 in 3 of 3 runs, p3 in 3 of 3 runs, p4 in 3 of 3 runs, and 15 more below."
    )
    missed = {label: replace(one, reached=np.zeros(3, dtype=bool)) for label, one in times.items()}
    assert headline(missed, TARGET).endswith("p1 in 0 of 3, p2 in 0 of 3, p3 in 0 of 3, and 16 more below.")
    assert "more below" not in headline({label: times[label] for label in list(times)[:5]}, TARGET)


def test_who_takes_pilots_for_granted_is_told_apart(runs, tmp_path):
    times = {"oracle": times_of("oracle", 1.0, oracle=True), "uniform": times_of("uniform", 300.0)}
    assert headline(times, TARGET) == "uniform reached loss 1.95 after 300 s in the mean of 3 seeds."
    times["proposed"] = times_of("proposed", 200.0, pilots=200.0)
    said = headline(times, TARGET)
    assert said.startswith("uniform was first at loss 1.95 after 300 s, pilots counted, in the mean of 3 seeds.")
    assert said.endswith("With all pilots left out, proposed would be first, after 200 s.")
    alone = {label: times_of(label, seconds, oracle=True) for label, seconds in (("K = 1", 9.0), ("K = 2", 8.0))}
    assert headline(alone, TARGET).startswith("K = 2 was first at loss 1.95 after 8.00 s, pilots taken for granted,")
    named = [
        replace(run, header=run.header | {"policy": "proposed-oracle"}, policy="proposed-oracle")
        if run.policy == "uniform"
        else run
        for run in runs
    ]
    page = written(named, tmp_path, TARGET)
    rows = re.findall(r"<tr[^>]*><th[^>]*><svg.*?</svg>(.*?)</th>(.*?)</tr>", page)
    assert [name for name, _ in rows] == ["proposed", "proposed-oracle"]
    told = re.findall(r"<td>(.*?)</td>", rows[1][1])
    assert [*told[:3], told[4]] == ["-", "-", "-", "taken for granted"]
    assert "±" in told[5]
    assert "Below all others, with pilots taken for granted: proposed-oracle." in page


def test_why_runs_missed_the_target_is_said_as_it_was(runs):
    ends = {
        "target": "ended at another target",
        None: "not finished",
        "diverged": "diverged",
        "max_time": "at the limit",
    }
    for end, word in ends.items():
        assert why_missed([replace(runs[0], summary={"end": end})], Target(loss=1e-6)) == f"1 {word}"
    assert why_missed([replace(runs[0], summary={"end": "target"})], TARGET) == "1 after the limit"


def test_runs_with_other_targets_share_the_easiest_and_are_not_called_equal(runs, tmp_path):
    ends = {"proposed": {"target_loss": 1.9, "target_accuracy": 0.5}, "uniform": {"target_loss": 1.95, "max_rounds": 9}}
    mixed = [ended_at(run, **ends[run.policy]) for run in runs]
    assert choose_target(mixed) == Target(loss=1.95)
    assert choose_target([ended_at(run, target_loss=1.9, target_accuracy=0.7) for run in runs[:1]] + mixed[:2]) == (
        Target(loss=1.9, accuracy=0.5)
    )
    shorter = ended_at(replace(runs[2], records=runs[2].records[:-1]), target_loss=2.5)
    (section,) = sections([*runs, shorter, runs[0]])
    assert (section.duplicates, section.other_ends, len(section.runs)) == (1, 1, 4)
    page = written([*runs, shorter, runs[0]], tmp_path)
    assert "1 run given twice, each counted once. 1 run with another end left out: longer ones" in page


def test_labels_are_short_where_that_tells_runs_apart_and_take_one_look_at_each_run(runs, monkeypatch):
    def with_ratio(run, value):
        config = run.header["config"] | {"policy": {"uniform": {"beta_over_alpha": value}}}
        return replace(run, header=run.header | {"config": config})

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
    looks, plain = [], report_data._differing
    monkeypatch.setattr(report_data, "_differing", lambda settings: looks.append(len(settings)) or plain(settings))
    labelled(runs * 5)
    assert sorted(looks) == [10, 10, 20], "once for all runs, once for those of each policy"


def test_the_target_is_the_one_of_the_configuration_or_a_loss_that_all_reach(runs):
    target = choose_target(runs)
    assert target.accuracy is None
    worst = max(run.loss.min() for run in runs)
    assert worst <= target.loss <= 1.01 * worst
    assert all(times.missed == 0 for times in times_to(runs, target).values())
    asked = [
        replace(run, header=run.header | {"config": run.header["config"] | {"stop": {"target_accuracy": 0.5}}})
        for run in runs
    ]
    assert choose_target(asked) == Target(accuracy=0.5)


def test_runs_with_other_settings_are_not_averaged_and_equal_ones_count_once(runs, tmp_path):
    run_small(tmp_path, policies=["uniform"], seeds=[0], over={"training": {"cohort_size": 5}})
    (section,) = sections([*runs, *read_runs([tmp_path]), runs[0]])
    assert list(section.groups) == [
        "proposed, cohort_size 3",
        "uniform, cohort_size 3",
        "uniform, cohort_size 5",
    ]
    assert section.duplicates == 1
    assert len(section.runs) == 5


def test_presets_get_sections_of_their_own(runs, tmp_path):
    run_small(tmp_path, policies=["uniform"], seeds=[0], preset="best")
    found = sections([*runs, *read_runs([tmp_path])])
    assert [section.title for section in found] == ["small, preset best", "small, preset paper"]


def test_plots_show_what_was_drawn_and_how_long_it_took(runs):
    (section,) = sections(runs, TARGET)
    data = plot_data(section, styles(section.groups))
    fleet = data["fleet"]
    noted = [group["noted"] for group in fleet["groups"]]
    assert noted == [True, False]
    uniform = [run for run in runs if run.policy == "uniform"]
    draws = np.zeros(10)
    for run in uniform:
        for record in run.trained:
            for member, count in zip(record["members"], record["counts"], strict=True):
                draws[member] += count
    assert fleet["groups"][1]["draws"] == draws[fleet["client"]].tolist()
    np.testing.assert_allclose(fleet["groups"][1]["share"], (draws / draws.sum())[fleet["client"]], rtol=1e-4)
    record = uniform[0].trained[0]
    place = fleet["client"].index(record["members"][0])
    assert fleet["compute"][place] == pytest.approx(record["compute_time"][0], rel=1e-4)
    assert fleet["seconds"] == sorted(fleet["seconds"])
    times = np.concatenate([np.diff(run.time, prepend=0) for run in uniform])
    assert data["rounds"][1]["quantiles"][2] == pytest.approx(np.median(times), rel=1e-4)


def test_runs_of_different_fleets_share_no_scatter_plot(runs, tmp_path):
    run_small(tmp_path, policies=["uniform"], seeds=[0], over={"data": {"clients": 12}})
    both = [*runs, *read_runs([tmp_path])]
    (section,) = sections(both)
    assert list(section.groups)[-1] == "uniform, data.clients 12"
    assert plot_data(section, styles(section.groups))["fleet"] is None
    assert "there is no one fleet to show" in written(both, tmp_path)


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
    named = [
        replace(run, header=run.header | {"experiment": "<b>x</b>"}, policy=f"</script><i>{run.policy}</i>")
        for run in runs
    ]
    page = written(named, tmp_path)
    assert "<b>x</b>" not in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page
    assert "<i>" not in without_plotly(page)
    assert page.count("</script>") == 3


def test_the_page_tells_how_to_run_it_again_to_the_byte(folder, runs, tmp_path, monkeypatch, capsys):
    from fedtempo.cli import main

    page = written(runs, tmp_path)
    config, commands = (html.unescape(text) for text in re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL))
    assert tomllib.loads(config) == runs[0].header["config"]
    assert commands.splitlines() == [
        f"fedtempo run CONFIG --policy {policy} --seed {seed}" for policy in ("proposed", "uniform") for seed in (0, 1)
    ]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "CONFIG").write_text(config)
    with pytest.raises(SystemExit) as ended:
        main([*commands.splitlines()[1].split()[1:], "-o", "again"])
    assert ended.value.code == 0
    assert (tmp_path / "again" / RECORDS).read_bytes() == (folder / "proposed1" / RECORDS).read_bytes()
    assert runs[0].header["data_checksum"] in page
    assert f"numpy {np.__version__}" in page


def test_tables_become_toml():
    table = {
        "name": 'a "b" \\ \n ü', "on": True, "x": 1e-9, "far": float("inf"), "none": [], "empty": {},
        "list": [1, 2.5, "c", [{"kind": "d"}]], "deep": {"er": {"n": 1}, "odd key": 2}, "1.5": {"é": {"y": -3}},
    }  # fmt: skip
    assert tomllib.loads(as_toml(table)) == table


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


@pytest.mark.parametrize(
    ("value", "said"), [(0, "0"), (1234.5, "1,234"), (99.96, "100.0"), (0.01234, "0.0123"), (3.14159, "3.14")]
)
def test_seconds_have_three_digits(value, said):
    assert amount(value) == said


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# Windows are never as narrow as a phone, frames are. The frame's page is read once it is drawn, and again after a click
# on each of its buttons; a second click takes it back.
FRAME = """<!doctype html><body style="margin:0">
<iframe src="report.html" style="border:0;width:%dpx;height:%dpx"></iframe>
<script>
const frame = document.querySelector("iframe"), pause = () => new Promise((done) => setTimeout(done, 50));
addEventListener("load", async () => {
  const page = frame.contentDocument, root = page.documentElement, told = document.documentElement.dataset;
  while (root.dataset.ready !== "true" && !root.dataset.errors) await pause();
  const traces = () => page.querySelectorAll(".plot .trace").length;
  Object.assign(told, root.dataset, { plots: page.querySelectorAll(".plot .main-svg").length, before: traces() });
  const hint = page.querySelector(".hint"), table = page.querySelector(".scroll");
  table.scrollLeft = 9999;
  const name = page.querySelector("tbody th").getBoundingClientRect(), edge = table.getBoundingClientRect();
  Object.assign(told, { hint: getComputedStyle(hint).display, scrolled: table.scrollLeft > 0 });
  Object.assign(told, { named: name.left >= edge.left - 1, share: name.width / edge.width });
  const pressed = {};
  for (const button of page.querySelectorAll("button")) {
    button.click();
    await pause();
    pressed[button.textContent] = traces();
    button.click();
    await pause();
  }
  Object.assign(told, { pressed: JSON.stringify(pressed), errors: root.dataset.errors || "", wide: root.scrollWidth });
  told.done = "true";
});
</script>"""


@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on the PATH")
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_a_browser_draws_the_page_without_error_or_sideways_scrolling(runs, tmp_path, width, height):
    long_name = "a-policy-whose-name-is-longer-than-the-screen-of-any-telephone-is-wide"
    named = [replace(run, policy=long_name if run.policy == "uniform" else "<b>x</b>") for run in runs]
    written(named, tmp_path, TARGET)
    (tmp_path / "frame.html").write_text(FRAME % (width, height))
    options = ["--headless", "--disable-gpu", "--disable-background-networking", "--allow-file-access-from-files"]
    options += ["--no-sandbox"] if os.geteuid() == 0 else []
    shown = subprocess.run(
        [
            BROWSER, *options, f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={max(width, 500)},{height}",
            "--virtual-time-budget=20000", "--dump-dom", (tmp_path / "frame.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    told = {name: html.unescape(value) for name, value in re.findall(r'data-([a-z]+)="([^"]*)"', shown[:5000])}
    assert told["done"] == "true"
    assert told["errors"] == ""
    assert told["ready"] == "true"
    assert int(told["width"]) == width, "the page must have been as narrow as asked"
    assert told["overflow"] == "0"
    assert int(told["wide"]) <= width
    narrow = width < 760
    assert told["hint"] == ("block" if narrow else "none"), "a table that scrolls says so"
    if narrow:
        assert (told["scrolled"], told["named"]) == ("true", "true"), "who a row is about stays in sight"
        assert float(told["share"]) < 0.6
    # For each of two groups: a band and a mean in three panels, a scatter in two, a box with a place to point at. Seeds
    # replace a band by two.
    traces = 2 * (3 * 2 + 2 + 2)
    assert int(told["before"]) == int(told["traces"]) == traces
    pressed = json.loads(told["pressed"])
    assert pressed["<b>x</b>"] == traces / 2
    assert pressed[long_name] == traces / 2
    assert pressed["single seeds"] == traces + 2 * 3
    assert pressed["log x"] == pressed["log y"] == traces
