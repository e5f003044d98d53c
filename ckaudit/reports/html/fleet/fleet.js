// The overview of a fleet: filters and order of the list, the strips of vital checks, and losses over each other.
document.documentElement.classList.add("live");
// What stands above runs before anything is drawn.

"use strict";
const root = document.documentElement;
const data = JSON.parse(document.getElementById("d-fleet").textContent);
const byId = (name) => document.getElementById(name);
const list = byId("list");
const lines = data.runs.map((run, at) => list.rows[at]); // the others are made when they are looked at
const texts = []; // made when somebody looks for a word
const STATES = { 0: "sev0", 1: "sev1", 2: "sev2", n: "note", w: "well", "?": "open", "-": "none", "!": "failed" };
const WORDS = { 0: "sev0", 1: "sev1", 2: "sev2", n: "note", w: "well", "?": "not judged", "-": "does not apply", "!": "not audited" };
const SHORT = { "?": "open", "-": "-", "!": "-" };
const GRAVEST = "012!?nw-";
const COLOURS = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5"];
const MAX_DRAWN = 400;
const MORE = 200;
const opened = new Map();
let order = data.runs.map((_, at) => at);
let shown = order;
let only = null;
let sorted = { key: "severity", down: false };
let near = [];
let room = MORE;
let later = 0;

const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const made = (name, words, kind) => { const node = document.createElement(name); if (words !== undefined) node.textContent = words; if (kind) node.className = kind; return node; };
const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const brief = (value) => (value === 0 || (Math.abs(value) >= 0.001 && Math.abs(value) < 1e5) ? String(Number(value.toPrecision(3))) : value.toExponential(1));

// The list: which runs are shown, in which order, and what is known of one.
function textOf(at) {
  const run = data.runs[at];
  const found = run.findings.flatMap(([, code, , message]) => [code, message]);
  const facts = Object.keys(data.facts).map((name) => `${name}=${data.facts[name][at]}`);
  return [run.name, run.severity, run.what, run.verdict, ...found, ...facts].join(" ").toLowerCase();
}

function fits(at, words, grave) {
  const own = data.runs[at].severity;
  if (grave && own !== grave && !(grave === "ill" && /^sev/.test(own))) return false;
  return (!only || only.has(at)) && words.every((word) => (texts[at] ??= textOf(at)).includes(word));
}

function refresh() {
  const words = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  const grave = byId("severity").value;
  shown = order.filter((at) => fits(at, words, grave));
  layOut();
  draw();
}

function layOut() {
  list.replaceChildren(...shown.slice(0, room).flatMap((at) => [lineOf(at), ...(opened.has(at) ? [opened.get(at)] : [])]));
  const every = count(data.runs.length, "run");
  byId("counted").textContent = shown.length === data.runs.length ? every : `${shown.length.toLocaleString("en")} of ${every}`;
  byId("all").hidden = shown.length === data.runs.length;
  byId("further").hidden = shown.length <= room;
  byId("further").textContent = `Show ${Math.min(MORE, shown.length - room).toLocaleString("en")} more of ${count(shown.length, "run")}`;
}

function lineOf(at) {
  if (lines[at]) return lines[at];
  const run = data.runs[at];
  const line = made("tr");
  line.dataset.at = at;
  const grave = made("td");
  grave.append(made("span", run.severity, `badge ${data.badges[run.severity] || run.severity}`));
  const head = made("th");
  head.scope = "row";
  const more = made("button", "+", "more");
  more.type = "button";
  more.setAttribute("aria-expanded", "false");
  more.setAttribute("aria-label", `More on ${run.name}`);
  const name = made(run.link ? "a" : "span", run.name);
  if (run.link) name.setAttribute("href", run.link);
  head.append(more, " ", name);
  const since = run.since === null ? "" : run.since.toLocaleString("en");
  const own = data.columns.map((fact) => made("td", data.facts[fact][at]));
  const checks = [...run.states].map((state) => made("td", SHORT[state] || WORDS[state], `check v-${STATES[state]}`));
  line.append(grave, head, made("td", since, "number"), made("td", run.what, "because"), ...own, ...checks);
  lines[at] = line;
  return line;
}

function key(at) {
  const run = data.runs[at];
  const of = { severity: at, run: run.name, since: run.since ?? Infinity, cause: run.what };
  if (sorted.key in of) return of[sorted.key];
  const [kind, place] = [sorted.key[0], Number(sorted.key.slice(1))];
  if (kind === "v") return GRAVEST.indexOf(run.states[place]);
  const words = data.facts[data.columns[place]][at];
  return words.trim() !== "" && Number.isFinite(Number(words)) ? Number(words) : words;
}

function compare(one, other) {
  const empty = (value) => value === "" || value === Infinity;
  if (empty(one) !== empty(other)) return empty(one) ? 1 : -1;
  const sign = sorted.down ? -1 : 1;
  if (typeof one === "number" && typeof other === "number") return one === other ? 0 : sign * (one < other ? -1 : 1);
  return sign * String(one).localeCompare(String(other), "en", { numeric: true });
}

function sort(name) {
  sorted = { key: name, down: sorted.key === name && !sorted.down };
  const keys = data.runs.map((_, at) => key(at));
  order = data.runs.map((_, at) => at).sort((one, other) => compare(keys[one], keys[other]) || one - other);
  for (const cell of list.parentElement.tHead.rows[0].cells) {
    if (cell.firstChild.dataset.sort === name) cell.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  }
  room = MORE;
  refresh();
}

function toggle(at) {
  if (!opened.delete(at)) opened.set(at, details(at));
  const button = lines[at].querySelector(".more");
  button.setAttribute("aria-expanded", String(opened.has(at)));
  button.textContent = opened.has(at) ? "\u2212" : "+";
  layOut();
  button.focus({ preventScroll: true });
}

function details(at) {
  const run = data.runs[at];
  const whole = made("td");
  whole.colSpan = lines[at].cells.length;
  const cell = made("div");
  cell.style.maxWidth = `${list.closest(".rows").clientWidth - 30}px`;
  whole.append(cell);
  cell.append(made("p", run.verdict));
  if (run.knob) cell.append(made("p", `Change first: ${run.knob}`));
  if (run.findings.length) {
    const found = made("ul");
    for (const [severity, code, step, message] of run.findings) {
      const item = made("li");
      item.append(made("span", severity, `badge ${severity}`), " ", made("code", code), ` ${message}${step === null ? "" : `, from step ${step.toLocaleString("en")}`}`);
      found.append(item);
    }
    if (run.more) found.append(made("li", `and ${run.more} more`));
    cell.append(found);
  }
  const checks = data.checks.map((check, at) => [check, run.states[at]]).filter(([, state]) => state !== "w" && state !== "-");
  if (run.severity !== "error" && run.severity !== "unreadable" && checks.length) cell.append(made("p", `Vital checks: ${checks.map(([check, state]) => `${check} ${WORDS[state]}`).join(", ")}; the others well`));
  const facts = Object.keys(data.facts).filter((name) => data.facts[name][at] !== "");
  if (facts.length) cell.append(made("p", facts.map((name) => `${name} ${data.facts[name][at]}`).join(", "), "dim"));
  const command = made("p", "Its report: ", "dim");
  command.append(made("code", run.command));
  cell.append(command);
  const row = made("tr", undefined, "opened");
  row.append(whole);
  return row;
}

function jump(at) {
  while (shown.indexOf(at) >= room) room += MORE;
  if (shown.includes(at)) layOut();
  else { only = null; byId("find").value = ""; byId("severity").value = ""; refresh(); }
  for (const line of list.querySelectorAll(".found")) line.classList.remove("found");
  lines[at].classList.add("found");
  lines[at].scrollIntoView({ block: "center" });
  lines[at].querySelector(".more").focus({ preventScroll: true });
}

// Pictures: as many dots as the screen has, in the colours of the page.
function canvasOf(canvas) {
  const box = canvas.getBoundingClientRect();
  const scale = devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(box.width * scale));
  canvas.height = Math.max(1, Math.round(box.height * scale));
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  return { pen, width: box.width, height: box.height };
}

function drawStrip(canvas, shades) {
  const { pen, width, height } = canvasOf(canvas);
  const check = Number(canvas.dataset.check);
  const wide = width / Math.max(1, shown.length);
  pen.fillStyle = shades.none;
  pen.fillRect(0, 0, width, height);
  const columns = Math.min(shown.length, Math.floor(width));
  for (let column = 0; column < columns; column += 1) {
    const state = data.runs[gravest(column, columns, check)].states[check];
    const left = (column * width) / columns;
    pen.fillStyle = shades[STATES[state]];
    pen.fillRect(left, 0, width / columns - (wide > 6 ? 1 : 0) + (wide > 6 ? 0 : 0.5), height);
    if (state === "?" && wide > 6) hatch(pen, left, Math.min(wide - 1, width), height, shades.ink);
  }
}

// Where a column stands for several runs it is that of the gravest, and so is what is said of it.
function gravest(column, columns, check) {
  const from = Math.floor((column * shown.length) / columns);
  const to = Math.max(from + 1, Math.floor(((column + 1) * shown.length) / columns));
  const rank = (at) => GRAVEST.indexOf(data.runs[at].states[check]);
  return shown.slice(from, to).reduce((best, at) => (rank(at) < rank(best) ? at : best));
}

function hatch(pen, left, width, height, ink) {
  pen.save();
  pen.beginPath();
  pen.rect(left, 0, width, height);
  pen.clip();
  pen.strokeStyle = ink;
  pen.globalAlpha = 0.35;
  pen.beginPath();
  for (let at = -height; at < width; at += 6) { pen.moveTo(left + at, height); pen.lineTo(left + at + height, 0); }
  pen.stroke();
  pen.restore();
}

function pointedAt(event) {
  const box = event.target.getBoundingClientRect();
  const columns = Math.min(shown.length, Math.floor(box.width));
  const column = Math.floor(((event.clientX - box.left) / box.width) * columns);
  return gravest(Math.min(columns - 1, Math.max(0, column)), columns, Number(event.target.dataset.check));
}

// Losses: those of one group in front, the others behind.
function grouped() {
  const name = byId("by").value;
  const of = name === "" ? data.runs.map((run) => run.severity) : data.facts[name].map((value) => value || "not recorded");
  const sizes = new Map();
  for (const at of shown) if (data.runs[at].loss) sizes.set(of[at], (sizes.get(of[at]) || 0) + 1);
  const numbers = [...sizes.keys()].every((word) => Number.isFinite(Number(word)));
  const gravity = (word) => ["sev0", "sev1", "sev2", "note", "limited", "open", "well"].indexOf(word);
  const names = [...sizes.keys()].sort((one, other) => (name === "" ? gravity(one) - gravity(other) : numbers ? one - other : 0) || sizes.get(other) - sizes.get(one) || String(one).localeCompare(String(other), "en", { numeric: true }));
  return { of, names, sizes };
}

function colourOf(name, place) {
  const grave = { sev0: "--v-sev0", sev1: "--v-sev1", sev2: "--watch", note: "--c0" };
  if (byId("by").value === "") return colour(grave[name] || "--dim");
  return colour(COLOURS[place] || "--dim");
}

function fill(select, options, chosen) {
  select.replaceChildren(...options.map(([value, words]) => { const option = made("option", words); option.value = value; option.selected = value === chosen; return option; }));
}

function drawCurves() {
  const canvas = byId("curves");
  if (!canvas) return;
  canvas.dataset.drawn = "yes";
  const { of, names, sizes } = grouped();
  fill(byId("group"), [["", "every group"], ...names.map((name) => [name, `${name} (${sizes.get(name)})`])], byId("group").value);
  const front = byId("group").value;
  const runs = shown.filter((at) => data.runs[at].loss);
  const every = Math.max(1, Math.ceil(runs.length / MAX_DRAWN));
  const first = runs.filter((at) => (front ? of[at] === front : /^sev/.test(data.runs[at].severity)));
  const always = new Set(first.length <= MAX_DRAWN ? first : []);
  const drawn = runs.filter((at, place) => place % every === 0 || always.has(at));
  const { pen, width, height } = canvasOf(canvas);
  const values = drawn.flatMap((at) => data.runs[at].loss[1]).filter((value) => value !== null);
  const steps = drawn.flatMap((at) => data.runs[at].loss[0]);
  near = [];
  pen.font = "12px system-ui, sans-serif";
  pen.fillStyle = colour("--dim");
  if (!values.length) { pen.fillText("No loss of these runs was recorded.", 10, 24); legend(of, names, front, runs, every, always); return; }
  const scale = scales(steps, values, width, height);
  axes(pen, scale, width, height);
  const shades = { dim: colour("--dim") };
  for (const [place, name] of names.entries()) shades[name] = colourOf(name, place);
  const rank = (at) => (front ? Number(of[at] === front) : -names.indexOf(of[at]));
  for (const at of [...drawn].sort((one, other) => rank(one) - rank(other))) {
    const place = names.indexOf(of[at]);
    const behind = front && of[at] !== front;
    pen.strokeStyle = behind ? shades.dim : shades[of[at]];
    const pale = behind || (byId("by").value === "" && shades[of[at]] === shades.dim && drawn.length > 60);
    pen.globalAlpha = pale ? 0.2 : drawn.length > 60 ? 0.6 : 0.9;
    pen.lineWidth = behind ? 1 : 1.4;
    curve(pen, at, scale);
  }
  pen.globalAlpha = 1;
  legend(of, names, front, runs, every, always);
}

function scales(steps, values, width, height) {
  const positive = values.filter((value) => value > 0);
  const log = byId("log").checked && positive.length > values.length / 2;
  const [low, high] = (log ? positive : values).reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity]);
  const [bottom, top] = log ? [Math.log10(low), Math.log10(high)] : [Math.min(low, high - 1e-9), high];
  const pad = (top - bottom || 1) * 0.05;
  const last = steps.reduce((most, step) => Math.max(most, step), 1);
  const [left, right, above, below] = [52, 12, 10, 26];
  return {
    log, low: bottom - pad, high: top + pad, last,
    x: (step) => left + (step / last) * (width - left - right),
    y: (value) => above + ((top + pad - (log ? Math.log10(Math.max(value, low)) : value)) / (top - bottom + 2 * pad)) * (height - above - below),
  };
}

function ticks(low, high, most) {
  const rough = (high - low) / most;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((times) => unit * times >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) found.push(Math.abs(at) < step * 1e-6 ? 0 : at);
  return found;
}

function powers(low, high) {
  const times = high - low > 2.5 ? [1] : high - low > 1.2 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 7];
  const every = Math.max(1, Math.ceil((high - low) / 6));
  const found = [];
  for (let power = Math.floor(low); power <= high; power += 1) {
    for (const time of times) {
      const at = power + Math.log10(time);
      if (at >= low && at <= high && power % every === 0) found.push(time * 10 ** power);
    }
  }
  return found;
}

function axes(pen, scale, width, height) {
  pen.strokeStyle = colour("--line");
  pen.lineWidth = 1;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const value of scale.log ? powers(scale.low, scale.high) : ticks(scale.low, scale.high, 5)) {
    const y = scale.y(value);
    pen.beginPath(); pen.moveTo(52, y); pen.lineTo(width - 12, y); pen.stroke();
    pen.fillText(brief(value), 47, y);
  }
  pen.textAlign = "center";
  pen.textBaseline = "alphabetic";
  const across = ticks(0, scale.last, width < 500 ? 3 : 6);
  for (const step of across) pen.fillText(step.toLocaleString("en"), Math.min(width - 22, Math.max(56, scale.x(step))), height - 8);
}

function curve(pen, at, scale) {
  const [steps, values] = data.runs[at].loss;
  pen.beginPath();
  let up = true;
  let last = null;
  for (let place = 0; place < steps.length; place += 1) {
    if (values[place] === null) { if (last && !up) cross(pen, last); up = true; continue; }
    last = [scale.x(steps[place]), scale.y(values[place])];
    near.push([...last, at]);
    if (up) pen.moveTo(...last); else pen.lineTo(...last);
    up = false;
  }
  pen.stroke();
}

function cross(pen, [x, y]) {
  pen.moveTo(x - 4, y - 4); pen.lineTo(x + 4, y + 4);
  pen.moveTo(x - 4, y + 4); pen.lineTo(x + 4, y - 4);
  pen.moveTo(x, y);
}

function legend(of, names, front, runs, every, always) {
  const rows = names.slice(0, 12).map((name, place) => {
    const own = runs.filter((at) => of[at] === name);
    const ends = own.map((at) => data.runs[at].loss[1].findLast((value) => value !== null)).filter((value) => value !== undefined).sort((one, other) => one - other);
    const ill = own.filter((at) => /^sev/.test(data.runs[at].severity)).length;
    const row = made("tr");
    const head = made("th");
    head.scope = "row";
    const swatch = made("span", undefined, "swatch");
    swatch.style.background = front && front !== name ? colour("--dim") : colourOf(name, place);
    head.append(swatch, name);
    row.append(head, made("td", count(own.length, "run")), made("td", `${ill.toLocaleString("en")} ill`), made("td", lastLosses(ends)));
    return row;
  });
  const more = [];
  if (names.length > 12) more.push(`${names.length - 12} more groups`);
  if (every > 1) more.push(`${always.size ? "of the others " : ""}one run in ${every} is drawn`);
  if (more.length) { const row = made("tr"); const cell = made("td", more.join("; "), "dim"); cell.colSpan = 4; row.append(cell); rows.push(row); }
  byId("legend").replaceChildren(...rows);
}

function lastLosses(ends) {
  if (ends.length < 2) return ends.length ? `last loss ${brief(ends[0])}` : "";
  return `median last loss ${brief(ends[Math.floor(ends.length / 2)])} (${brief(ends[0])} to ${brief(ends[ends.length - 1])})`;
}

function nearest(event) {
  const box = event.target.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  let best = null;
  let least = 900;
  for (const [a, b, at] of near) { const far = (a - x) ** 2 + (b - y) ** 2; if (far < least) { least = far; best = at; } }
  return best;
}

function draw() {
  const shades = { ink: colour("--ink") };
  for (const name of Object.values(STATES)) shades[name] = colour(`--v-${name}`);
  for (const canvas of document.querySelectorAll("canvas.strip")) drawStrip(canvas, shades);
  clearTimeout(later);
  later = setTimeout(drawCurves, 20); // the rest of the page is read first
}

function coloured(dark) {
  root.dataset.theme = dark ? "dark" : "light";
  byId("theme").setAttribute("aria-pressed", String(dark));
}

function clicked(event) {
  const button = event.target.closest("button");
  if (event.target.matches("canvas.strip")) { if (shown.length) jump(pointedAt(event)); return; }
  if (event.target.id === "curves") { const at = nearest(event); if (at !== null) jump(at); return; }
  if (!button) return;
  if (button.matches(".more")) toggle(Number(button.closest("tr").dataset.at));
  else if (button.dataset.sort) sort(button.dataset.sort);
  else if (button.matches(".only")) { only = new Set(data.causes[Number(button.dataset.cause)]); refresh(); byId("runs").scrollIntoView(); byId("find").focus({ preventScroll: true }); }
  else if (button.id === "further") { room += MORE; layOut(); }
  else if (button.id === "all") { only = null; byId("find").value = ""; byId("severity").value = ""; refresh(); byId("find").focus(); }
  else if (button.id === "theme") { coloured(root.dataset.theme !== "dark"); draw(); }
}

function pointed(event) {
  if (event.target.matches && event.target.matches("canvas.strip") && shown.length) {
    const at = pointedAt(event);
    byId("pointed").textContent = `${data.runs[at].name}: ${data.checks[Number(event.target.dataset.check)]} ${WORDS[data.runs[at].states[Number(event.target.dataset.check)]]}`;
  } else if (event.target.id === "curves") {
    const at = nearest(event);
    byId("near").textContent = at === null ? "" : `${data.runs[at].name}, ${data.runs[at].severity}`;
  }
}

coloured(matchMedia("(prefers-color-scheme: dark)").matches);
if (byId("by")) fill(byId("by"), [["", "severity"], ...Object.keys(data.facts).map((name) => [name, name])], "");
document.addEventListener("click", clicked);
document.addEventListener("pointermove", pointed);
for (const name of ["find", "severity"]) byId(name).addEventListener("input", refresh);
for (const name of ["by", "group", "log"]) if (byId(name)) byId(name).addEventListener("input", () => { if (name === "by") byId("group").value = ""; drawCurves(); });
let wide = innerWidth;
addEventListener("resize", () => { if (innerWidth !== wide) { wide = innerWidth; draw(); } });
refresh();
root.dataset.ready = "yes";
