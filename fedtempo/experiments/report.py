"""Runs as one HTML page that needs nothing but itself: tables, interactive curves, and how to run it all again."""

import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from fedtempo.checks import MissingDependencyError
from fedtempo.experiments.comparison import Target, Times, times_to
from fedtempo.experiments.figures import BAND, Style, on_dark, styles
from fedtempo.experiments.report_data import (
    Section,
    contenders,
    ending,
    fastest,
    headline,
    pilots_said,
    plot_data,
    seconds_of,
    sections,
    why_missed,
)
from fedtempo.experiments.results import Run
from fedtempo.experiments.tables import (
    INTERVALS_SAID,
    NOTHING,
    factor_and_interval,
    interval,
    mean_seconds,
    pilots,
    rounds,
)
from fedtempo.experiments.toml import as_toml
from fedtempo.files import whole_file

# The browser itself then refuses to load anything from elsewhere.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
CURVES_SAID = f"""Lines are means over seeds, bands span the {BAND}. Between evaluations a run keeps its last value, and
so does one that has ended after it reached the target; a mean ends with the first run that ended without. Axes begin
with what lies near the target: double-click shows all, and double-click again goes back. Drag to zoom."""
PILOTS_SAID = "Pilots are left out of the curves, while the table and the sentence above it count them."

COLUMNS = (
    ("Policy", ""), ("Seconds", "mean ± sd, {how}"), ("95 % interval", "of the mean"),
    ("× fastest", "95 % interval"), ("Rounds", "mean"), ("Pilots", "seconds"), ("Without pilots", "mean ± sd"),
    ("Missed it", "runs"),
)  # fmt: skip


def write_report(runs: list[Run], path: Path, *, target: Target | None = None) -> None:
    """Write one HTML page about some runs. Equal runs give equal bytes.

    Without a target, each experiment's is one that all of its runs were to reach, or the lowest loss that all reached.
    """
    text = page(sections(runs, target))
    with whole_file(path) as stream:
        stream.write(text)


def page(parts: Sequence[Section]) -> str:
    """Return the whole page."""
    looks = [styles(section.groups) for section in parts]
    data = [plot_data(section, look) for section, look in zip(parts, looks, strict=True)]
    titles = [section.title for section in parts] if len(parts) > 1 else ["Results"]
    bodies = [
        _section(section, number, titles[number], looks[number], data[number]) for number, section in enumerate(parts)
    ]
    runs = [run for section in parts for run in section.runs]
    title = escape(parts[0].title if len(parts) == 1 else "Experiments")
    counts = f"{_count(len(runs), 'run')} of {_count(len(parts), 'experiment')}"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} – fedtempo</title>
<style>
{_asset("report.css")}{_on_dark_page(looks)}</style>
</head>
<body>
<a class="skip" href="#experiment-0">Skip to the results</a>
<header>
<p class="brand">fedtempo report</p>
<h1>{title}</h1>
<p class="lead">{counts}. Times are {seconds_of(runs)} of training.</p>
{_contents(parts)}</header>
<main>
<noscript><p class="notice">The curves need JavaScript; all tables are here without it.</p></noscript>
<p class="notice" id="failure" role="alert" hidden></p>
{"".join(bodies)}</main>
<script type="application/json" id="numbers">{_json(data)}</script>
<script>{_plotly()}</script>
<script>
{_asset("report.js")}</script>
</body>
</html>
"""


def _contents(parts: Sequence[Section]) -> str:
    if len(parts) == 1:
        return ""
    items = [f'<li><a href="#experiment-{n}">{escape(section.title)}</a></li>' for n, section in enumerate(parts)]
    return f'<nav aria-label="Experiments"><ul>{"".join(items)}</ul></nav>\n'


def _section(section: Section, number: int, title: str, look: dict[str, Style], data: dict[str, Any]) -> str:
    found = [(target, times_to(section.runs, target)) for target in section.targets]
    said = [headline(times, target) for target, times in found] or ["There is no target."]
    evaluated = any(np.isfinite(run.loss).any() for run in section.runs)
    plots = _plots(section, look, data["fleet"]) if evaluated else "<p>No run was evaluated: there are no curves.</p>"
    return f"""
<section id="experiment-{number}" data-number="{number}" aria-labelledby="title-{number}">
<h2 id="title-{number}">{escape(title)}</h2>
{"".join(f'<p class="headline">{escape(one)}</p>' for one in said)}
{_problems(section)}
{"<h3>Time to the target</h3>" if found else ""}
{"".join(_table(section, target, times, look) for target, times in found)}
{plots}
<h3>What was run</h3>
{_origin(section)}
</section>
"""


def _plots(section: Section, look: dict[str, Style], fleet: dict[str, Any] | None) -> str:
    names = ", ".join(section.groups)
    said = CURVES_SAID + (f" {PILOTS_SAID}" if any(run.pilot_time for run in section.runs) else "")
    return f"""<div>
<h3>Curves</h3>
{_legend(section, look)}
<div class="plots">
{_figure("panel-0", f"Loss against time for {names}", "Loss against time", wide=True)}
{_figure("panel-1", f"Accuracy against time for {names}", "Accuracy against time", log="x")}
{_figure("panel-2", f"Loss against rounds for {names}", "Loss against rounds")}
</div>
<p class="note">{said}</p>
<h3>Who trains</h3>
{_fleet(fleet, names)}
<h3>How long rounds take</h3>
<div class="plots">
{_figure("rounds", f"Distribution of round times for {names}", "Round times", log="x", wide=True)}
</div>
<p class="note">Boxes span the middle half of the rounds of training, whiskers 5 % to 95 % of them; the line
in a box is the median, the dashed one the mean.</p>
</div>"""


def _table(section: Section, target: Target, times: dict[str, Times], look: dict[str, Style]) -> str:
    counted = {label: one.with_pilots() for label, one in times.items()}
    ranked = contenders(counted)
    first, how = fastest(ranked), pilots_said(ranked)
    heads = "".join(
        f'<th scope="col">{name}{f"<small>{below.format(how=how)}</small>" if below else ""}</th>'
        for name, below in COLUMNS
    )
    order = sorted(counted, key=lambda label: (label not in ranked, counted[label].missed, counted[label].mean))
    rows = [_row(ranked.get(label), times[label], first, section.groups[label], target, look[label]) for label in order]
    granted = [label for label in order if label not in ranked]
    note = f" Below all others, with pilots taken for granted: {', '.join(granted)}." if granted else ""
    return f"""<p class="hint" aria-hidden="true">The table goes on to the right: scroll it sideways.</p>
<div class="scroll" tabindex="0" role="region" aria-label="Time to {escape(str(target))}">
<table>
<caption>Time to {escape(str(target))}, {how}</caption>
<thead><tr>{heads}</tr></thead>
<tbody>
{"".join(rows)}</tbody>
</table>
</div>
<p class="note">{escape(INTERVALS_SAID + note)}</p>
"""


def _row(
    counted: Times | None, trained: Times, first: Times | None, runs: list[Run], target: Target, style: Style
) -> str:
    """Return the row of one policy; ``counted`` has its times with pilots, None where it is outside the ranking."""
    cells = [NOTHING] * 3 if counted is None else [mean_seconds(counted), interval(counted), _over(counted, first)]
    cells += [rounds(trained), pilots(trained), mean_seconds(trained)]
    ordered = sorted(runs, key=lambda run: run.seed)
    missed = [run for run, reached in zip(ordered, trained.reached, strict=True) if not reached]
    cells.append("\n".join([f"{len(missed)} of {len(runs)}", *([why_missed(missed, target)] if missed else [])]))
    name = f'<th scope="row">{_swatch(style)}{escape(trained.policy)}</th>'
    best = ' class="best"' if counted is not None and counted is first else ""
    return f"<tr{best}>{name}{''.join(map(_cell, cells))}</tr>\n"


def _cell(text: str) -> str:
    """Return a cell, with what comes in a second line in small print."""
    said, _, more = escape(text).partition("\n")
    return f"<td>{said}<small>{more}</small></td>" if more else f"<td>{said}</td>"


def _over(times: Times, first: Times | None) -> str:
    if first is None or times is first:
        return NOTHING if first is None else "1"
    return "\n".join(filter(None, factor_and_interval(times, first)))


def _legend(section: Section, look: dict[str, Style]) -> str:
    buttons = [
        f'<button type="button" class="key" data-group="{place}" aria-pressed="true">{_swatch(look[label])}'
        f"{escape(label)}</button>"
        for place, label in enumerate(section.groups)
    ]
    seeds = '<button type="button" class="option" data-seeds aria-pressed="false">single seeds</button>'
    return f'<div class="legend" role="group" aria-label="Show or hide">{"".join(buttons)}{seeds}</div>'


def _swatch(style: Style) -> str:
    dashes = f' stroke-dasharray="{" ".join(f"{2.5 * length:g}" for length in style.dashes)}"' if style.dashes else ""
    line = f'<line x1="0" y1="5" x2="30" y2="5" style="stroke: {_colour(style)}" stroke-width="2.5"{dashes}/>'
    return f'<svg class="swatch" width="30" height="10" aria-hidden="true">{line}</svg>'


def _colour(style: Style) -> str:
    """Return a colour for the style sheet, which has lighter ones where the dark page needs them."""
    return f"var(--on-{style.colour.removeprefix('#')}, {style.colour})"


def _on_dark_page(looks: Iterable[dict[str, Style]]) -> str:
    """Return rules for the colours of curves that would be too dark on the dark page."""
    colours = sorted({style.colour for look in looks for style in look.values()})
    rules = [f"--on-{one.removeprefix('#')}: {on_dark(one)};" for one in colours if on_dark(one) != one]
    return f"@media (prefers-color-scheme: dark) {{ :root {{ {' '.join(rules)} }} }}\n" if rules else ""


def _figure(name: str, alt: str, title: str, *, log: str = "xy", wide: bool = False) -> str:
    buttons = "".join(
        f'<button type="button" class="option" data-log="{axis}" aria-pressed="false">log {axis}</button>'
        for axis in log
    )
    return f"""<figure class="{"wide" if wide else "half"}">
<figcaption>{title}<span role="group" aria-label="Axes of {title}">{buttons}</span></figcaption>
<div class="plot" data-plot="{name}" role="img" aria-label="{escape(alt)}"></div>
</figure>"""


def _fleet(fleet: dict[str, Any] | None, names: str) -> str:
    if fleet is None:
        return '<p class="note">The runs have different clients, or no rounds: there is no one fleet to show.</p>'
    said = "A client's time is what it takes to compute and to upload alone on the link, its importance the data share "
    said += "times the largest gradient norm that was seen. The line across is uniform sampling. "
    said += "A share is q where the policy noted it, and else what it drew in training."
    shown = len(fleet["client"])
    if shown + fleet["unseen"] < fleet["clients"]:
        said += f" {shown:,} of {fleet['clients']:,} clients are shown."
    if fleet["unseen"]:
        said += f" {_count(fleet['unseen'], 'client')} of {fleet['clients']:,} never trained and cannot be shown."
    if fleet["never_drawn"]:
        said += " A logarithmic axis leaves out who was never drawn."
    return f"""<div class="plots">
{_figure("seconds", f"Share of draws against the time of each client, for {names}", "Draws against time")}
{_figure("importance", f"Share of draws against importance of each client, for {names}", "Draws against importance")}
</div>
<p class="note">{said}</p>"""


def _problems(section: Section) -> str:
    """List the runs that did not end at their target or their limit, and say so if there are none."""
    bad = [run for run in section.runs if run.summary.get("end") in (None, "diverged")]
    said = []
    if section.duplicates:
        said.append(f"{_count(section.duplicates, 'run')} given twice, each counted once.")
    if section.other_ends:
        said.append(
            f"{_count(section.other_ends, 'run')} with another end left out: longer ones of the same are shown."
        )
    if bad:
        said.append(f"{_count(len(bad), 'run')} of {len(section.runs)} did not come to an end:")
    items = [
        f"<li><strong>{escape(run.policy)}</strong>, seed {run.seed}: {escape(ending(run))} "
        f"<code>{escape(str(run.folder))}</code></li>"
        for run in bad
    ]
    listed = f"<ul>{''.join(items)}</ul>" if items else ""
    return f'<div class="notice"><p>{" ".join(said)}</p>{listed}</div>' if said else ""


def _origin(section: Section) -> str:
    runs = [run for group in section.groups.values() for run in group]
    facts = [
        ("Data", _each(runs, lambda run: str(run.header.get("data", "")))),
        ("Checksum", _each(runs, lambda run: str(run.header["data_checksum"]))),
        ("Clients", _each(runs, lambda run: f"{len(run.header['samples']):,}")),
        ("Preset", _each(runs, lambda run: run.header.get("preset") or "")),
        ("Commit", _each(runs, lambda run: str(run.header.get("commit") or "installed package"))),
        ("Versions", _each(runs, _versions)),
        (
            "Seeds",
            "; ".join(f"{label}: {_ranges(run.seed for run in group)}" for label, group in section.groups.items()),
        ),
        ("Ends", _ends(runs)),
    ]
    rows = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts if value)
    return f"<dl>{rows}</dl>\n" + "".join(_again(config, group) for config, group in _configurations(runs))


def _again(config: dict[str, Any], runs: list[Run]) -> str:
    """Show one configuration and how to run it again."""
    commands = [
        f"fedtempo run CONFIG --policy {shlex.quote(run.header['policy'])} --seed {run.seed}"
        for run in sorted(runs, key=lambda run: (run.policy, run.seed))
        if run.clock == "simulated" and "data" in config
    ]
    labels = ", ".join(dict.fromkeys(run.policy for run in runs))
    how = "To run it again, save this as CONFIG, beside the files that it names"
    again = f'<p>and give these commands:</p>\n<pre tabindex="0">{escape(chr(10).join(commands))}</pre>\n'
    if not commands:
        how, again = "Flower nodes trained: to run it again, give their app these settings", ""
    return f"""<details>
<summary>{"Configuration and commands" if commands else "Settings"} <span>{escape(labels)}</span></summary>
<p>Preset and options are already in it. {how}:</p>
<pre tabindex="0">{escape(as_toml(config))}</pre>
{again}</details>
"""


def _configurations(runs: Iterable[Run]) -> list[tuple[dict[str, Any], list[Run]]]:
    """Return the configurations that differ in more than the policies for which they have options, with their runs."""
    found: list[tuple[dict[str, Any], list[Run]]] = []
    for run in runs:
        config, options = run.header["config"], run.header["config"].get("policy", {})
        for known, group in found:
            others = known.get("policy", {})
            clash = any(others[name] != options[name] for name in others if name in options)
            if not clash and {**config, "policy": {}} == {**known, "policy": {}}:
                known["policy"] = {**others, **options}
                group.append(run)
                break
        else:
            found.append((dict(config), [run]))
    return found


def _versions(run: Run) -> str:
    return ", ".join(f"{name} {version}" for name, version in run.header.get("versions", {}).items() if version)


def _ends(runs: Iterable[Run]) -> str:
    words = {"target": "at the target", None: "not finished", "max_rounds": "at the limit", "max_time": "at the limit"}
    counts: dict[str, int] = {}
    for run in runs:
        end = run.summary.get("end")
        counts[words.get(end, str(end))] = counts.get(words.get(end, str(end)), 0) + 1
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def _each(runs: Iterable[Run], of: Callable[[Run], str]) -> str:
    return "; ".join(dict.fromkeys(map(of, runs)))


def _ranges(numbers: Iterable[int]) -> str:
    """Return whole numbers in order, 0–4 for five in a row."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in spans)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _json(value: object) -> str:
    """Return JSON that may stand inside a script element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _asset(name: str) -> str:
    return files("fedtempo.experiments").joinpath(name).read_text(encoding="utf-8")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingDependencyError("plotly", "report", "a report") from None
    return str(get_plotlyjs())
