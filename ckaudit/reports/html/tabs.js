// Tabs, links to a step, sliders, the colours of the page, and print.
"use strict";

const tabs = [...document.querySelectorAll('[role="tab"]')];
const panels = [...document.querySelectorAll('[role="tabpanel"]')];
const say = (words) => { document.getElementById("said").textContent = words; };

function open(name, focus = false) {
  const tab = document.getElementById(`tab-${name}`);
  if (!tab) return;
  for (const each of tabs) {
    each.setAttribute("aria-selected", String(each === tab));
    each.tabIndex = each === tab ? 0 : -1;
  }
  for (const panel of panels) panel.hidden = panel.id !== `t-${name}`;
  if (focus) tab.focus();
  const list = tab.closest("nav");
  if (list.scrollWidth > list.clientWidth) list.scrollLeft = tab.offsetLeft - list.clientWidth / 3;
}

function keys(event) {
  const at = tabs.indexOf(document.activeElement);
  if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
  const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
  if (event.key === " ") tabs[at].click();
  else if (to === undefined) return;
  else { const next = tabs[(to + tabs.length) % tabs.length]; next.focus(); go(next.getAttribute("href")); }
  event.preventDefault();
}

function go(hash, step, move = false) {
  const [target, at] = hash.slice(1).split("@");
  const place = document.getElementById(decodeURIComponent(target));
  const panel = place && place.closest('[role="tabpanel"]');
  if (!panel) return;
  open(panel.id.slice(2));
  const when = step ?? at;
  history.replaceState(null, "", `#${target}${when === undefined ? "" : `@${when}`}`);
  if (place.matches("figure")) show(place, when);
  else if (place !== panel) {
    for (let fold = place.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    place.scrollIntoView({ block: "center" }); place.focus({ preventScroll: true });
  } else if (move) panel.focus();
}

function show(figure, step) {
  if (step !== undefined && Number.isFinite(Number(step))) point(figure, Number(step));
  figure.scrollIntoView({ block: "start" });
  figure.focus({ preventScroll: true });
}

function point(figure, step) {
  const chart = chartOf(figure);
  const choice = { ...(chosen.get(chart.id) || first(chart)), step };
  if (chart.frames) {
    const steps = chart.frames.filter((frame) => frame.where === choice.where).map((frame) => frame.step);
    choice.place = steps.reduce((best, value, place) => (Math.abs(value - step) < Math.abs(steps[best] - step) ? place : best), 0);
  }
  chosen.set(chart.id, choice);
  controls(figure, chart, choice);
  draw(figure);
  say(`${figure.querySelector("h3").textContent}: step ${step} is marked.`);
}

function controls(figure, chart, choice) {
  const slider = figure.querySelector("input.step");
  if (!slider) return;
  const steps = chart.frames.filter((frame) => frame.where === choice.where).map((frame) => frame.step);
  slider.max = String(steps.length - 1);
  slider.value = String(choice.place);
  slider.setAttribute("aria-valuetext", `step ${steps[choice.place]}`);
  figure.querySelector("output").textContent = String(steps[choice.place]);
}

function turned(event) {
  const figure = event.target.closest("figure[data-chart]");
  if (!figure) return;
  const chart = chartOf(figure);
  const choice = { ...(chosen.get(chart.id) || first(chart)) };
  if (event.target.matches("select.where")) {
    choice.where = event.target.selectedOptions[0].textContent;
    const count = (chart.frames || []).filter((frame) => frame.where === choice.where).length;
    choice.place = Math.min(choice.place, Math.max(0, count - 1));
  } else choice.place = Number(event.target.value);
  chosen.set(chart.id, choice);
  controls(figure, chart, choice);
  draw(figure);
}

function clicked(event) {
  const mark = event.target.closest(".mark[data-finding]");
  if (mark) go(`#f-${mark.dataset.finding}`);
  const link = event.target.closest("a[href^='#'], button.to");
  if (!link) return;
  if (link.matches(".to")) { point(link.closest("figure"), Number(link.dataset.step)); return; }
  if (link.matches(".skip")) return;
  event.preventDefault();
  go(link.getAttribute("href"), link.dataset.step, !link.matches('[role="tab"]'));
}

function coloured(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  const button = document.getElementById("theme");
  button.setAttribute("aria-pressed", String(dark));
}

function printed() {
  document.documentElement.dataset.print = document.documentElement.dataset.theme;
  coloured(false);
  for (const panel of panels) panel.hidden = panel.matches(".dashboard");
  onPaper(330);
}

function after() {
  coloured(document.documentElement.dataset.print === "dark");
  open(document.querySelector('[aria-selected="true"]').id.slice(4));
  redraw();
}

function start() {
  document.documentElement.classList.add("live");
  coloured(matchMedia("(prefers-color-scheme: dark)").matches);
  document.addEventListener("click", clicked);
  document.addEventListener("keydown", keys);
  document.addEventListener("input", turned);
  document.getElementById("theme").addEventListener("click", () => { coloured(document.documentElement.dataset.theme !== "dark"); redraw(); });
  open("overview");
}

function ready() {
  for (const figure of figures()) waiting.observe(figure);
  if (location.hash.length > 1) go(location.hash);
  let last = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== last) { last = innerWidth; redraw(); } });
  addEventListener("hashchange", () => go(location.hash));
  addEventListener("beforeprint", printed);
  addEventListener("afterprint", after);
  document.documentElement.dataset.ready = "yes";
}
