"use strict";
// Choosers, sortable tables, light and dark; then the first drawing.

function chooser(id, values, key, name = (v) => v) {
  const select = byId(id);
  for (const value of values) select.append(el("option", { value }, name(value)));
  select.addEventListener("change", () => change({ [key]: select.value }));
  drawings.push(() => { select.value = state[key]; });
  if (values.length < 2) select.closest("label")?.setAttribute("hidden", "");
}

function switcher(id, key, toValue) {
  const buttons = [...byId(id).querySelectorAll("button")];
  for (const button of buttons) button.addEventListener("click", () => change({ [key]: toValue(button.value) }));
  drawings.push(() => { for (const b of buttons) b.setAttribute("aria-pressed", String(toValue(b.value) === state[key])); });
}

for (const id of ["model", "cost-model", "table-model", "tuning-model"]) chooser(id, DATA.models, "model");
chooser("inputs", DATA.inputs, "inputs");
chooser("method", [ALL, ...DATA.labels.slice(1)], "method");
switcher("loss", "loss", (value) => value);
switcher("fitted", "fitted", (value) => value === "fit");
byId("cost").addEventListener("change", (event) => change({ cost: +event.target.value }));

// Tables: those of the chosen model and loss; a heading sorts, a second time the other way.

drawings.push(function tables() {
  for (const figure of document.querySelectorAll("figure.table")) {
    const { name, group } = figure.dataset;
    const loss = /^(?:summary|loss|halves)-(is|log)/.exec(name);
    figure.hidden = Boolean((loss && loss[1] !== state.loss) || (group && group !== state.model));
  }
});

const VALUE = (cell) => ("value" in cell.dataset ? +cell.dataset.value : null);

function sortBy(head, column) {
  const table = head.closest("table"), body = table.tBodies[0];
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const numeric = [...body.rows].some((row) => VALUE(row.cells[column]) !== null);
  const compare = (a, b) => {
    if (!numeric) return a.textContent.localeCompare(b.textContent, undefined, { numeric: true });
    const [x, y] = [VALUE(a), VALUE(b)];
    if (x === null || y === null) return (x === null) - (y === null); // without a number: last, both ways
    return x - y;
  };
  const rows = [...body.rows].sort((r, s) => {
    const [a, b] = [r.cells[column], s.cells[column]];
    const missing = numeric && (VALUE(a) === null || VALUE(b) === null);
    return compare(a, b) * (down && !missing ? -1 : 1);
  });
  body.append(...rows);
}

for (const table of document.querySelectorAll("figure.table table")) {
  [...table.tHead.rows[0].cells].forEach((head, column) =>
    head.firstElementChild.addEventListener("click", () => sortBy(head, column)));
}

// Light and dark: the system's choice until the button is used; a page on disk may not remember.

const root = document.documentElement;
const remembered = () => { try { return localStorage.getItem("longshot-theme"); } catch { return null; } };
if (remembered()) root.dataset.theme = remembered();
byId("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("longshot-theme", root.dataset.theme); } catch { /* a page on disk */ }
});

// ------------------------------------------------------------------------------------------

if (DATA.labels.length > 1 && DATA.cells.length) {
  draw();
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) { width = window.innerWidth; draw(); }
  });
} else {
  for (const id of ["overview", "scatter", "distributions", "tuning", "truth"]) byId(id).hidden = true;
  byId("tables").hidden = !document.querySelector("figure.table");
  if (DATA.cells.length) for (const drawing of drawings) if (drawing.name === "tables") drawing();
}
document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
