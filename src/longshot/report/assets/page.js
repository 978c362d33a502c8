"use strict";
// Draws the charts of the page as they come into view; searches, sorts, chooses; light and dark.
const DATA = JSON.parse(document.getElementById("data").textContent);
const all = (css, within = document) => [...within.querySelectorAll(css)];
const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
const remembered = () => { try { return localStorage.getItem("longshot-theme"); } catch { return null; } };
if (remembered()) root.dataset.theme = remembered();
const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);

// A chart's colours on dark paper; its records are no part of what is searched for colours.
function dressed(name) {
  let text = JSON.stringify(DATA.specs[name]);
  if (dark()) for (const [day, night] of Object.entries(DATA.night)) text = text.replaceAll(`"${day}"`, `"${night}"`);
  const spec = JSON.parse(text);
  for (const data of Object.keys(spec.datasets)) spec.datasets[data] = DATA.datasets[data];
  return spec;
}

async function draw(figure) {
  const box = figure.querySelector(".chart"), spec = dressed(figure.dataset.chart);
  if (typeof spec.width === "number" && spec.layer) { // one panel takes the room there is
    spec.width = Math.max(box.clientWidth, 280);
    spec.autosize = { type: "fit-x", contains: "padding" };
  }
  const actions = { export: { svg: true, png: true }, source: false, compiled: false, editor: false };
  const options = { actions, renderer: "svg", ast: true, downloadFileName: figure.dataset.chart,
    tooltip: { theme: dark() ? "dark" : "light" } };
  await vegaEmbed(box, spec, options);
  figure.dataset.drawn = "yes";
}

const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) if (isIntersecting) { seen.unobserve(target); draw(target); }
}, { rootMargin: "400px" });
const redraw = () => { for (const figure of all("figure[data-chart]")) { seen.unobserve(figure); seen.observe(figure); } };

// Choosers: a figure shows when each of its keys is the chosen one.
function choose() {
  const chosen = Object.fromEntries(all("[data-key]").map((select) => [select.dataset.key, select.value]));
  for (const figure of all("figure")) {
    figure.hidden = Object.entries(chosen).some(([key, value]) => figure.dataset[key] && figure.dataset[key] !== value);
  }
}
for (const select of all("[data-key]")) select.addEventListener("change", choose);

// Tables: a heading sorts, a second time the other way; without a number comes last both ways.
function sortBy(head) {
  const table = head.closest("table"), body = table.tBodies[0], column = head.cellIndex;
  const down = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down < 0 ? "descending" : "ascending");
  const value = (row) => row.cells[column].dataset.value;
  const numeric = [...body.rows].some((row) => value(row) !== undefined);
  const compare = (r, s) => (numeric
    ? (value(r) === undefined) - (value(s) === undefined) || down * (value(r) - value(s)) || 0
    : down * r.cells[column].textContent.localeCompare(s.cells[column].textContent, undefined, { numeric: true }));
  body.append(...[...body.rows].sort(compare));
}
for (const button of all("thead button")) button.addEventListener("click", () => sortBy(button.parentElement));

const search = document.getElementById("search");
search?.addEventListener("input", () => {
  const wanted = search.value.toLowerCase();
  let shown = 0;
  for (const row of all("#targets tbody tr")) {
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
    shown += !row.hidden;
  }
  document.getElementById("found").textContent = `${shown.toLocaleString("en")} shown`;
});

document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = dark() ? "light" : "dark";
  try { localStorage.setItem("longshot-theme", root.dataset.theme); } catch { /* a page on disk */ }
  redraw();
});
system.addEventListener("change", redraw);
let width = window.innerWidth;
window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; redraw(); } });
choose();
redraw();
