"""A browser draws the report."""

import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from support.marks import slow_after
from support.reports import TARGET, written

pytest.importorskip("plotly")


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
@pytest.mark.parametrize(("width", "height"), slow_after(1, [(1280, 900), (390, 844)]))
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
