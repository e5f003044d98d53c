// Draws a chart into its figure when it is needed, in the colours of the page.
"use strict";

const parsed = new Map();
const chosen = new Map();

// The numbers of a tab are read when one of its charts is looked at.
function chartOf(figure) {
  const tab = figure.closest('[role="tabpanel"]').id.slice(2);
  if (!parsed.has(tab)) {
    const { subjects, charts } = JSON.parse(document.getElementById(`d-${tab}`).textContent);
    const known = new Map(charts.map((chart) => [chart.id, { ...chart, subjects }]));
    for (const [name, chart] of known) if (known.has(`${name}_b`)) { chart.twin = known.get(`${name}_b`); chart.twin.twin = chart; }
    parsed.set(tab, known);
  }
  return parsed.get(tab).get(figure.dataset.chart);
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function theme(layout) {
  const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--line"), tickcolor: colour("--line") };
  const themed = { ...layout };
  for (const name of ["xaxis", "yaxis", "yaxis2"]) if (layout[name]) themed[name] = { ...axis, ...layout[name] };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 12 },
    hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--ink") } }, ...themed,
  };
}

function drawn(figure, width) {
  const chart = chartOf(figure);
  const choice = chosen.get(chart.id) || first(chart);
  const { traces, layout, height = 300 } = SHAPES[chart.shape](chart, width, choice);
  const marked = choice.step === undefined ? [] : pointer(chart, layout, choice.step);
  const named = new Set((chart.traces || []).map((trace) => trace.name)).size;
  const legend = chart.shape === "lines" && named > 1; // which run has which colour stands above all tabs
  const rows = legend ? lined(traces.filter((trace) => trace.showlegend !== false), width - 62 - (layout.yaxis2 ? 56 : 18)) : 0; // it is as wide as the curves are
  return {
    traces, layout: theme({
      ...layout, width, height: height + 18 * rows, margin: { l: 62, r: layout.yaxis2 ? 56 : 18, t: 12, b: 52 + 18 * rows },
      showlegend: legend, legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0, tracegroupgap: 0 },
      shapes: [...(layout.shapes || []), ...marked],
    }),
  };
}

// How many lines a legend takes: 7 pixels a letter, and 50 for its sample.
function lined(traces, width) {
  const names = traces.map((trace) => trace.name).filter(Boolean);
  const widest = Math.max(...names.map((name) => 7 * name.length + 50));
  return Math.ceil(names.length / Math.max(1, Math.floor(width / widest)));
}

function first(chart) {
  const places = (chart.frames || chart.ridges || []).map((each) => each.where);
  const where = places[0];
  return { where, place: Math.max(0, places.filter((each) => each === where).length - 1) };
}

function pointer(chart, layout, step) {
  if (chart.shape === "bars" || chart.shape === "ridges" || chart.shape === "grids") return [];
  const columns = layout.columns ? layout.columns.map(Number) : null;
  const nearest = columns ? columns.reduce((best, value, place) => (Math.abs(value - step) < Math.abs(columns[best] - step) ? place : best), 0) : step;
  return [{ type: "line", yref: "paper", y0: 0, y1: 1, x0: nearest, x1: nearest, line: { width: 2, color: colour("--point") } }];
}

function draw(figure, width = 0, highest = Infinity) {
  library();
  const box = figure.querySelector(".plot");
  box.querySelectorAll(":scope > svg.still").forEach((still) => still.remove());
  const made = drawn(figure, width || Math.max(260, box.clientWidth));
  delete made.layout.columns;
  made.layout.height = Math.min(made.layout.height, highest);
  Plotly.react(box, made.traces, made.layout, { displayModeBar: false, responsive: false, scrollZoom: false });
  figure.dataset.drawn = "yes";
}

const waiting = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting || entry.target.dataset.drawn === "yes") continue;
    setTimeout(() => { if (seen(entry.target) && entry.target.dataset.drawn !== "yes") draw(entry.target); }); // what stands there already is painted first
  }
}, { rootMargin: "300px" });

const figures = () => [...document.querySelectorAll("figure[data-chart]")];
const seen = (figure) => figure.offsetParent !== null;

function redraw(width = 0) {
  for (const figure of figures()) if (figure.dataset.drawn === "yes" && (width || seen(figure))) draw(figure, width);
    else figure.dataset.drawn = "";
  for (const figure of figures()) { waiting.unobserve(figure); waiting.observe(figure); }
}

// On paper stand the first pictures of each question, and none is higher than it is wide.
function onPaper(width) {
  for (const figure of document.querySelectorAll(".question .charts > figure:nth-child(-n+2), .question .charts > .pair:nth-child(-n+2) figure")) draw(figure, width, width);
}
