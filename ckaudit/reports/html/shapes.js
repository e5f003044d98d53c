// What each shape of chart becomes: traces and a layout for the charting library.
"use strict";

// The colours of the static pictures, which the style sheet defines; eyes that are blind to some colours tell them apart.
const COLOURS = [0, 1, 2, 3, 4, 5].map((place) => getComputedStyle(document.documentElement).getPropertyValue(`--c${place}`).trim());
const DASHES = ["solid", "dash", "dot", "dashdot"];
const SEVERITY = { sev0: "--bad", sev1: "--bad", sev2: "--watch", note: "--unknown" };
const ALARM = "--bad"; // no curve has it: what is not finite is never taken for a second curve, or for run B
const shade = (mark) => colour(SEVERITY[mark.severity] || "--dim");

// The library reads a few tags and formulas between dollars in names: a name is text.
const plain = (words) => String(words).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\$/g, "&#36;");
const short = (words, most = 34) => (words.length > most ? `${words.slice(0, most / 2)}…${words.slice(Math.ceil(most / 2) + 1 - most)}` : words);
// A long tensor's name keeps what tells it from others: its ending ".weight" goes, then parts from the left shrink to a letter.
function tensor(name, most) {
  if (name.length <= most) return name;
  const parts = name.replace(/\.weight$/, "").split(".");
  for (let place = 0; place < parts.length - 1 && parts.join(".").length > most; place += 1) if (/^[A-Za-z_]+$/.test(parts[place])) parts[place] = parts[place][0];
  return short(parts.join("."), most);
}
const begun = (words, most) => (words.length > most ? `${words.slice(0, most - 1)}…` : words);
const said = (unit) => (unit === "1" || !unit ? "" : plain(unit));
const finite = (value) => (typeof value === "number" ? value : null);

// Of two runs the colour says which and the dashes say what; of one, the colour says what.
function style(trace, place, chart) {
  const both = chart.subjects.length > 1 && chart.run === undefined;
  return { colour: COLOURS[both ? trace.run || 0 : place % COLOURS.length], dash: DASHES[(both ? place : Math.floor(place / COLOURS.length)) % DASHES.length] };
}

// Where the colour says which run it is, the legend says what the dashes mean.
const dashes = (chart, names) => names.map((name, place) => ({
  x: [null], y: [null], mode: "lines", name: plain(short(name)), line: { color: colour("--dim"), width: 1.6, dash: DASHES[place % DASHES.length] }, hoverinfo: "skip",
}));

const called = (trace, subjects) => (subjects.length > 1 ? `${short(trace.name, 24)} of ${"AB"[trace.run || 0]} ${short(subjects[trace.run || 0], 20)}` : short(trace.name));

function band(trace, x, colour) {
  if (!trace.low || !trace.low.length) return [];
  const edge = { x, mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false, legendgroup: plain(trace.name) };
  return [
    { ...edge, y: trace.low.map(finite) },
    { ...edge, y: trace.high.map(finite), fill: "tonexty", fillcolor: `${colour}33` },
  ];
}

function broken(trace, x) {
  const at = x.filter((_, i) => typeof trace.y[i] === "string");
  if (!at.length) return [];
  return [{
    x: at, y: at.map(() => 0.02), yaxis: "y3", mode: "markers", showlegend: false,
    marker: { symbol: "x", size: 7, color: colour(ALARM) },
    text: at.map(() => plain(`${trace.name}: recorded, but not finite`)), hoverinfo: "text+x",
  }];
}

function lines(chart, width) {
  const names = [...new Set(chart.traces.map((trace) => trace.name))];
  // A curve without a value has no line; its row in the table says so.
  const known = chart.traces.filter((trace) => trace.y.some((value) => value !== null));
  const both = chart.subjects.length > 1 && chart.run === undefined;
  const traces = known.flatMap((trace) => {
    const x = chart.axes[trace.x];
    const own = names.indexOf(trace.name);
    const { colour, dash } = style(trace, own, chart);
    const few = trace.y.filter((value) => typeof value === "number").length < 40;
    const line = {
      x, y: trace.y.map(finite), name: plain(called(trace, chart.subjects)), mode: few ? "lines+markers" : "lines", connectgaps: few,
      line: { color: colour, width: 1.6, dash }, marker: { size: 4, color: colour }, ...(trace.low && trace.low.length ? { legendgroup: plain(trace.name) } : {}),
      yaxis: trace.axis === "right" ? "y2" : "y", showlegend: !both,
      ...(chart.stacked ? { stackgroup: "all", fillcolor: `${colour}88` } : {}),
    };
    return [...band(trace, x, colour), line, ...broken(trace, x)];
  });
  return { traces: [...traces, ...(both ? dashes(chart, names) : []), ...happened(chart)], layout: { ...axes(chart), shapes: limits(chart), annotations: named(chart, width) } };
}

// A finding is told once on the page; what a mark says of it stands there.
function told(mark) {
  const item = mark.finding === undefined ? null : document.querySelector(`#f-${mark.finding} .what`);
  return plain(short([mark.code, item ? item.textContent : mark.text].filter(Boolean).join(" "), 90));
}

function happened(chart) {
  if (!chart.marks) return [];
  return [{
    x: chart.marks.map((mark) => mark.step), y: chart.marks.map(() => 0.97), yaxis: "y3", mode: "markers", showlegend: false,
    marker: {
      size: 9, color: chart.marks.map(shade),
      symbol: chart.marks.map((mark) => ({ finding: "triangle-down", spike: "square" })[mark.kind] || "diamond"),
    },
    text: chart.marks.map(told), hoverinfo: "text+x",
  }];
}

function limits(chart) {
  const flat = (chart.lines || []).map(([, value]) => ({
    type: "line", xref: "paper", x0: 0, x1: 1, y0: value, y1: value, line: { width: 1, dash: "dot", color: "#888888" },
  }));
  // Where a finding begins; how long it lasts stands in the list: bands over bands would hide the curves.
  const spans = [...new Set((chart.marks || []).filter((mark) => mark.severity && mark.severity !== "note").map((mark) => mark.step))].map((step) => ({
    type: "line", yref: "paper", y0: 0, y1: 1, x0: step, x1: step, layer: "below", line: { width: 1, color: colour("--dim") }, opacity: 0.5,
  }));
  return [...flat.filter((line) => typeof line.y0 === "number"), ...spans];
}

// Names of lines stand at their right and left ends in turn, so that two that lie close can be read.
function named(chart, width) {
  const lines = (chart.lines || []).filter(([, value]) => typeof value === "number" && (!chart.log || value > 0));
  return lines.sort(([, one], [, other]) => one - other).map(([name, value], place) => ({
    text: plain(begun(name, width / 9)), xref: "paper", y: chart.log ? Math.log10(value) : value, yanchor: "bottom", showarrow: false,
    ...(place % 2 ? { x: 0.005, xanchor: "left" } : { x: 0.995, xanchor: "right" }), font: { size: 10 },
  }));
}

// Within few decades the library writes 2 and 5 without their power of ten: here they are whole numbers. Over many it writes each decade alone.
function fine(chart) {
  const values = chart.traces.filter((trace) => trace.axis !== "right").flatMap((trace) => trace.y).filter((value) => typeof value === "number" && value > 0);
  const [low, high] = [Math.log10(Math.min(...values)), Math.log10(Math.max(...values))];
  if (!values.length) return {};
  if (high - low > 2.5) return { dtick: Math.ceil((high - low) / 8) };
  const ticks = rounds(low, high);
  return { tickmode: "array", tickvals: ticks, ticktext: ticks.map(String) };
}

// Once, twice and five times each power of ten between two powers.
function rounds(low, high) {
  const powers = Array.from({ length: Math.ceil(high) - Math.floor(low) + 1 }, (_, place) => Math.floor(low) + place);
  return powers.flatMap((power) => [1, 2, 5].map((part) => Number(`${part}e${power}`)));
}

// Linear ticks as short as they can be: 400k, 0.005, 2e-6. A power of ten behind each would be cut at the edge.
function digits(values) {
  const largest = Math.max(0, ...values.filter((value) => typeof value === "number").map(Math.abs));
  return largest >= 1e15 ? { tickformat: ".2~e" } : largest >= 1e4 ? { tickformat: "~s" } : largest && largest < 1e-3 ? { tickformat: ".3~e" } : { exponentformat: "power" };
}

function axes(chart) {
  const of = (side) => chart.traces.filter((trace) => (trace.axis === "right") === (side === "right")).flatMap((trace) => trace.y);
  const words = [said(chart.unit), chart.log ? "log" : ""].filter(Boolean).join(", ");
  const left = { title: { text: words }, type: chart.log ? "log" : "linear", ...(chart.log ? { exponentformat: "power", ...fine(chart) } : digits(of("left"))) };
  const second = chart.traces.some((trace) => trace.axis === "right");
  return {
    xaxis: { title: { text: plain(chart.x || "step"), standoff: 14 } }, yaxis: left, hovermode: "x unified",
    ...(second ? { yaxis2: { title: { text: said(chart.right_unit) }, overlaying: "y", side: "right", tickmode: "auto", nticks: 6, showgrid: false, ...digits(of("right")) } } : {}),
    yaxis3: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
  };
}

function bars(chart, width) {
  const rows = Math.max(...chart.traces.map((trace) => trace.y.length), 1);
  const both = chart.subjects.length > 1;
  const compared = both && chart.run === undefined && chart.traces.length === 1; // of both runs at once: no run's colour
  const traces = chart.traces.map((trace, place) => ({
    type: "bar", orientation: "h", y: chart.axes[trace.x].map((name) => plain(tensor(String(name), width < 360 ? 20 : 30))), x: trace.y.map(finite), name: plain(short(trace.name)),
    marker: { color: compared ? colour("--dim") : COLOURS[both ? trace.run || 0 : place % COLOURS.length] }, hovertext: chart.axes[trace.x].map(plain), hoverinfo: "text+x",
  }));
  const odd = chart.traces.flatMap((trace) => chart.axes[trace.x].filter((_, place) => typeof trace.y[place] === "string"));
  const broken = [...new Set(odd)].map((name) => ({
    x: 0, xref: "paper", xanchor: "left", y: plain(tensor(String(name), width < 360 ? 20 : 30)), text: "not finite", showarrow: false, font: { color: colour(ALARM), size: 11 },
  }));
  const lines = (chart.lines || []).filter(([, value]) => typeof value === "number").map(([, value]) => ({
    type: "line", yref: "paper", y0: 0, y1: 1, x0: value, x1: value, line: { width: 1, dash: "dot", color: "#888888" },
  }));
  return { traces, height: Math.max(180, 80 + 22 * rows * traces.length), layout: {
    xaxis: { title: { text: [said(chart.unit), chart.log ? "log" : ""].filter(Boolean).join(", ") }, type: chart.log ? "log" : "linear", ...(chart.log ? { exponentformat: "power" } : digits(chart.traces.flatMap((trace) => trace.y))), nticks: width < 360 ? 4 : 6 },
    yaxis: { autorange: "reversed", automargin: true, type: "category" }, shapes: lines, annotations: broken,
  } };
}

const SCALE = "Viridis"; // Nunez et al. 2018: even steps of lightness, for colour-blind eyes too

function cells(values, rows, columns, log, ends) {
  const scaled = (value) => (typeof value !== "number" ? null : log ? (value > 0 ? Math.log10(value) : null) : value);
  const told = (value) => (value === null || value === undefined ? "not recorded" : typeof value === "number" ? value.toPrecision(4) : value);
  const z = values.map((row) => row.map(scaled));
  const text = values.map((row, r) => row.map((value, c) => plain(`${rows[r] ?? r}, ${columns[c] ?? c}: ${told(value)}`)));
  const odd = values.map((row) => row.map((value) => (typeof value === "string" || (log && value === 0) ? 1 : null)));
  const y = rows.map((_, place) => place);
  const x = columns.map((_, place) => place);
  const base = { type: "heatmap", x, y, text, hoverinfo: "text", xgap: columns.length < 40 ? 1 : 0, ygap: rows.length < 40 ? 1 : 0 };
  const traces = [{ ...base, z, colorscale: SCALE, colorbar: { thickness: 12, len: 0.95, ...(log ? decades(ends ? ends.map(scaled) : z.flat()) : {}) } }];
  if (ends) Object.assign(traces[0], { zmin: scaled(ends[0]), zmax: scaled(ends[1]) });
  if (odd.some((row) => row.includes(1))) traces.push({ ...base, z: odd, colorscale: [[0, colour(ALARM)], [1, colour(ALARM)]], showscale: false });
  return traces;
}

function decades(exponents) {
  const known = exponents.filter((value) => value !== null);
  if (!known.length) return {};
  const [low, high] = [known.reduce((a, b) => Math.min(a, b)), known.reduce((a, b) => Math.max(a, b))];
  if (high - low >= 2) return { tickprefix: "10<sup>", ticksuffix: "</sup>", dtick: Math.ceil((high - low) / 8) };
  const whole = rounds(low, high).filter((value) => Math.log10(value) >= low && Math.log10(value) <= high);
  const shown = whole.length > 1 ? whole : [low, high].map((end) => Number((10 ** end).toPrecision(3)));
  return { tickmode: "array", tickvals: shown.map(Math.log10), ticktext: shown.map(String) };
}

function ticks(names, most, letters = 30) {
  const every = Math.max(1, Math.ceil(names.length / most));
  const chosen = names.map((_, place) => place).filter((place) => place % every === 0);
  return { tickmode: "array", tickvals: chosen, ticktext: chosen.map((place) => plain(tensor(String(names[place]), letters))) };
}

function heatmap(chart, width) {
  const { rows, columns, values } = chart.matrix;
  return { traces: cells(values, rows, columns, chart.log, chart.ends), height: Math.max(220, 90 + 13 * rows.length), layout: {
    xaxis: { title: { text: plain(chart.x || "step") }, ...ticks(columns, (width - 220) / 45) },
    yaxis: { autorange: "reversed", automargin: true, ...ticks(rows, 60, width < 480 ? 22 : 30) }, columns,
  } };
}

function ridges(chart, width, chosen) {
  const shown = chart.ridges.filter((ridge) => ridge.where === chosen.where);
  const tallest = Math.max(...shown.flatMap((ridge) => ridge.shares.filter((share) => typeof share === "number")), 1e-12);
  const traces = shown.map((ridge, place) => ({ ridge, place })).reverse().flatMap(({ ridge, place }) => {
    const middles = ridge.shares.map((_, i) => (ridge.edges[i] + ridge.edges[i + 1]) / 2);
    const hue = `hsl(${260 - 200 * place / Math.max(1, shown.length - 1)}, 60%, 50%)`;
    const base = { x: [middles[0], middles.at(-1)], y: [place, place], mode: "lines", line: { width: 0 }, hoverinfo: "skip" };
    const curve = {
      x: middles, y: ridge.shares.map((share) => place + 2.2 * share / tallest), mode: "lines", fill: "tonexty", fillcolor: hue.replace("%)", "%, 0.45)").replace("hsl", "hsla"),
      line: { color: hue, width: 1.4 }, text: ridge.shares.map((share, i) => `step ${ridge.step}, ${middles[i].toPrecision(3)}: ${(100 * share).toPrecision(3)} %`), hoverinfo: "text",
    };
    return [base, curve];
  });
  return { traces, height: Math.max(240, 120 + 22 * shown.length), layout: {
    showlegend: false, xaxis: { title: { text: plain(chart.x || "value") }, exponentformat: "power" },
    yaxis: { title: { text: "step" }, ...ticks(shown.map((ridge) => ridge.step), 24) },
  } };
}

function unpacked(grid) {
  if (!grid.encoding) return grid;
  const bytes = Uint8Array.from(atob(grid.data), (letter) => letter.charCodeAt(0));
  const [height, width] = grid.shape.slice(-2);
  const scale = (grid.max - grid.min) / 255;
  return Array.from({ length: height }, (_, r) => Array.from({ length: width }, (_, c) => grid.min + scale * bytes[r * width + c]));
}

function grids(chart, width, chosen) {
  const of = chart.frames.filter((frame) => frame.where === chosen.where);
  const frame = of[Math.min(chosen.place, of.length - 1)];
  const values = unpacked(frame.cells);
  const rows = frame.rows && frame.rows.length ? frame.rows : values.map((_, place) => String(place));
  const columns = frame.columns && frame.columns.length ? frame.columns : values[0].map((_, place) => String(place));
  const traces = cells(values, rows, columns, chart.log);
  const numbers = [chart, ...(chart.twin ? [chart.twin] : [])].flatMap((each) => each.frames.filter((one) => one.where === chosen.where)).flatMap((each) => (each.cells.encoding ? [each.cells.min, each.cells.max] : each.cells.flat())).filter((value) => typeof value === "number");
  // One scale for all steps of a place, and for both runs: a slider that changed it would hide what changes.
  if (!chart.log && numbers.length) Object.assign(traces[0], { zmin: Math.min(...numbers), zmax: Math.max(...numbers) });
  return { traces, height: 420, layout: {
    xaxis: { title: { text: plain(chart.x || "") }, ...ticks(columns, (width - 150) / 45), constrain: "domain" },
    yaxis: { autorange: "reversed", automargin: true, ...ticks(rows, 24) },
  } };
}

const SHAPES = { lines, bars, heatmap, ridges, grids };
