"use strict";
(function () {
  const root = document.documentElement;
  const failure = document.getElementById("failure");
  const WIDTH = 2.2;

  // Whoever opens the page sees that it failed, and a test finds it in the document.
  function failed(message) {
    root.dataset.errors = `${root.dataset.errors || ""}${message}\n`;
    failure.hidden = false;
    failure.textContent = `The curves could not be drawn: ${message}`;
  }
  window.addEventListener("error", (event) => failed(event.message));
  window.addEventListener("unhandledrejection", (event) => failed(String(event.reason)));

  const numbers = JSON.parse(document.getElementById("numbers").textContent);
  const touch = matchMedia("(pointer: coarse)").matches; // a finger on a plot scrolls the page; buttons zoom
  const config = {
    displaylogo: false,
    displayModeBar: touch ? true : "hover",
    modeBarButtons: touch ? [["zoomIn2d", "zoomOut2d", "resetScale2d"]] : [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  };

  const theme = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const paint = (colour) => theme(`on-${colour.slice(1)}`) || colour; // some are lighter on a dark page
  const dash = (lengths) => (lengths.length ? lengths.map((one) => `${one * WIDTH}px`).join(",") : "solid");
  // Names are text, while plotly reads some HTML in them.
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const faded = (colour, alpha) => {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    return `rgba(${r},${g},${b},${alpha})`;
  };

  function axis(title, log, more) {
    return {
      title: { text: title, standoff: 8 },
      type: log ? "log" : "linear",
      gridcolor: theme("grid"),
      linecolor: theme("line"),
      zeroline: false,
      showline: true,
      automargin: true,
      nticks: 7,
      tickformat: ",~g",
      ...more,
    };
  }

  function layout(x, y, more) {
    return {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: theme("ink") },
      margin: { l: 50, r: 12, t: 12, b: 44 },
      showlegend: false,
      hovermode: "closest",
      dragmode: touch ? false : "zoom",
      hoverlabel: { bgcolor: theme("card"), bordercolor: theme("muted"), font: { color: theme("ink"), size: 13 }, align: "left" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: theme("muted"), activecolor: theme("accent") },
      xaxis: x,
      yaxis: y,
      ...more,
    };
  }

  // Label 1, 2 and 5 of each power of ten on a logarithmic axis, or the powers alone where it is long.
  function withTicks(shape, traces) {
    for (const [name, axis] of [["x", shape.xaxis], ["y", shape.yaxis]]) {
      if (axis.type !== "log") continue;
      const values = traces.flatMap((trace) => trace[name] || []).filter((value) => value > 0);
      if (!values.length) continue;
      const decades = Math.log10(values.reduce((a, b) => Math.max(a, b), 0) / values.reduce((a, b) => Math.min(a, b), Infinity));
      axis.dtick = decades < 2.2 ? "D2" : 1;
    }
    return shape;
  }

  function line(at, horizontal, style) {
    const along = horizontal
      ? { xref: "paper", x0: 0, x1: 1, yref: "y", y0: at, y1: at }
      : { yref: "paper", y0: 0, y1: 1, xref: "x", x0: at, x1: at };
    return { type: "line", ...along, line: { color: theme("muted"), width: 1.3, dash: style } };
  }

  function drawPanel(data, panel, state) {
    const traces = [];
    const hover = `<b>%{fullData.name}</b><br>${panel.x}: %{x:,.4~g}<br>${panel.y}: %{y:.4~g}<extra></extra>`;
    panel.curves.forEach((curve, place) => {
      const group = data.groups[place];
      if (!state.shown[place]) return;
      const colour = paint(group.colour);
      if (curve.band[0].length && !state.seeds)
        traces.push({
          x: curve.band[0], y: curve.band[1], mode: "lines", line: { width: 0 }, fill: "toself",
          fillcolor: faded(colour, 0.18), hoverinfo: "skip", name: "",
        });
      if (state.seeds)
        for (const one of curve.seeds)
          traces.push({
            x: one.points[0], y: one.points[1], mode: "lines", line: { width: 1, color: faded(colour, 0.55) },
            name: `${plain(group.name)}, seed ${one.seed}`, hovertemplate: hover,
          });
      traces.push({
        x: curve.mean[0], y: curve.mean[1], mode: "lines", line: { width: WIDTH, color: colour, dash: dash(group.dashes) },
        name: plain(group.name), hovertemplate: hover,
      });
    });
    const shapes = panel.target === null ? [] : [line(panel.target, true, "dash")];
    const x = axis(panel.x, state.log.x, state.log.x ? {} : { rangemode: "tozero" });
    const y = axis(panel.y, state.log.y, panel.range && !state.log.y ? { range: panel.range } : {});
    return [traces, layout(x, y, { shapes })];
  }

  function drawFleet(data, name, state) {
    const fleet = data.fleet;
    const about = fleet.client.map((client, i) => [
      client, fleet.samples[i], fleet.compute[i], fleet.upload[i], fleet.norm[i], fleet.importance[i],
    ]);
    const traces = [];
    fleet.groups.forEach((group, place) => {
      if (!state.shown[place]) return;
      const colour = paint(data.groups[place].colour);
      traces.push({
        x: fleet[name], y: group.share, mode: "markers", name: plain(data.groups[place].name),
        customdata: about.map((one, i) => [...one, group.draws[i]]),
        marker: { color: faded(colour, 0.65), size: 7, symbol: data.groups[place].marker, line: { width: 0.6, color: colour } },
        hovertemplate:
          `<b>client %{customdata[0]}</b>, %{fullData.name}<br>${group.noted ? "q" : "share of draws"}: %{y:.3~g}` +
          "<br>drawn %{customdata[6]:,} times in training<br>%{customdata[1]:,} samples" +
          "<br>compute %{customdata[2]:.3~g} s, upload %{customdata[3]:.3~g} s" +
          "<br>gradient norm %{customdata[4]:.3~g}, importance %{customdata[5]:.3~g}<extra></extra>",
      });
    });
    const title = name === "seconds" ? "compute + upload time (s)" : "data share × gradient norm";
    const shapes = [line(fleet.uniform, true, "dot")];
    return [traces, layout(axis(title, state.log.x), axis("share of draws", state.log.y), { shapes })];
  }

  function drawRounds(data, state) {
    const traces = [];
    data.rounds.forEach((times, place) => {
      if (!state.shown[place] || !times.rounds) return;
      const group = data.groups[place];
      const colour = paint(group.colour);
      const [low, q1, median, q3, high] = times.quantiles.map((one) => [one]);
      const name = plain(group.name);
      traces.push({
        type: "box", orientation: "h", y: [name], name, lowerfence: low, q1, median, q3, upperfence: high,
        mean: [times.mean], boxmean: true, line: { color: colour, width: 1.8 }, fillcolor: faded(colour, 0.25), width: 0.55,
        hoverinfo: "skip", // eight labels on top of each other; the next trace says it in one
      });
      traces.push({
        x: median, y: [name], name, mode: "markers", marker: { size: 36, opacity: 0 }, customdata: [[...times.quantiles, times.mean, times.rounds]],
        hovertemplate:
          "<b>%{fullData.name}</b>, %{customdata[6]:,} rounds<br>median %{customdata[2]:.3~g} s, mean %{customdata[5]:.3~g} s" +
          "<br>middle half %{customdata[1]:.3~g} to %{customdata[3]:.3~g} s" +
          "<br>5 % to 95 %: %{customdata[0]:.3~g} to %{customdata[4]:.3~g} s<extra></extra>",
      });
    });
    const x = axis("seconds of a round", state.log.x, state.log.x ? {} : { rangemode: "tozero" });
    const y = axis("", false, { type: "category", autorange: "reversed", showline: false });
    return [traces, layout(x, y)];
  }

  // What is shown of one experiment; its buttons change it and draw again.
  class Section {
    constructor(element) {
      this.element = element;
      this.data = numbers[Number(element.dataset.number)];
      this.shown = this.data.groups.map(() => true);
      this.seeds = false;
      this.plots = [...element.querySelectorAll("[data-plot]")].map((place) => this.plot(place));
      for (const button of element.querySelectorAll("[data-group]"))
        button.addEventListener("click", () => {
          this.shown[Number(button.dataset.group)] = this.toggle(button);
          this.draw();
        });
      for (const button of element.querySelectorAll("[data-seeds]"))
        button.addEventListener("click", () => {
          this.seeds = this.toggle(button);
          this.draw();
        });
    }

    plot(place) {
      const name = place.dataset.plot;
      const number = name.startsWith("panel-") ? Number(name.slice(6)) : null;
      const panel = number === null ? null : this.data.panels[number];
      const log = { x: false, y: false };
      if (panel) Object.assign(log, { x: panel.log_x, y: panel.log_y });
      else if (name !== "rounds") Object.assign(log, { x: this.data.fleet.log[name], y: this.data.fleet.log.share });
      for (const button of place.closest("figure").querySelectorAll("[data-log]")) {
        button.setAttribute("aria-pressed", log[button.dataset.log]);
        button.addEventListener("click", () => {
          log[button.dataset.log] = this.toggle(button);
          this.drawOne(made);
        });
      }
      const made = { place, name, panel, log };
      // A plot has the width that it was drawn with; the page may become narrower or wider.
      new ResizeObserver(() => {
        if (place.querySelector(".main-svg")) Plotly.Plots.resize(place);
      }).observe(place);
      return made;
    }

    toggle(button) {
      const pressed = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", pressed);
      return pressed;
    }

    drawOne(plot) {
      const state = { shown: this.shown, seeds: this.seeds, log: plot.log };
      const [traces, shape] = plot.panel
        ? drawPanel(this.data, plot.panel, state)
        : plot.name === "rounds"
          ? drawRounds(this.data, state)
          : drawFleet(this.data, plot.name, state);
      if (plot.name === "rounds") plot.place.style.height = `${90 + 22 * Math.max(2, traces.length)}px`;
      return Plotly.react(plot.place, traces, withTicks(shape, traces), config);
    }

    draw() {
      return Promise.all(this.plots.map((plot) => this.drawOne(plot)));
    }
  }

  async function main() {
    const sections = [...document.querySelectorAll("section[data-number]")].map((element) => new Section(element));
    const drawAll = () => Promise.all(sections.map((section) => section.draw()));
    for (const section of sections) await section.draw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
    root.dataset.traces = document.querySelectorAll(".plot .trace").length;
    root.dataset.width = window.innerWidth;
    root.dataset.overflow = Math.max(0, root.scrollWidth - window.innerWidth);
    root.dataset.ready = "true";
  }
  main();
})();
