"use strict";
// Small parts that every chart uses: elements, numbers, scales, marks, the tooltip, the state.

const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const colour = (label) => `var(--m${DATA.known.indexOf(label)})`;

function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") node.style.cssText = value;
    else node.setAttribute(key, typeof value === "number" ? +value.toFixed(2) : value);
  }
  node.append(...children);
  return node;
}

const text = (x, y, content, attributes = {}) => svg("text", { x, y, ...attributes }, content);
const line = (x1, y1, x2, y2, attributes = {}) => svg("line", { x1, y1, x2, y2, ...attributes });

// Numbers -----------------------------------------------------------------------------------

const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
const power = (n) => "10" + [...String(n)].map((c) => RAISED[c]).join("");

function short(value, digits = 2) {
  if (value === null || value === undefined) return "unknown";
  if (value === 0) return "0";
  if (value >= 0.01 && value < 1e4) return String(+value.toPrecision(digits + 1));
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
  return `${mantissa}×${power(+exponent)}`;
}

// Control characters, line ends and halves of a pair would vanish or break a line: show codes.
const visible = (s) =>
  s.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]|\p{Cs}/gu, (c) =>
    c === "\n" ? "⏎" : c === "\t" ? "⇥" : `\\x${c.charCodeAt(0).toString(16).padStart(2, "0")}`);

// Scales ------------------------------------------------------------------------------------

const scale = ([a, b], [from, to]) => (value) => from + ((value - a) / (b - a || 1)) * (to - from);

function linearTicks(top, count = 5) {
  const rough = top / count || 1;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * unit).find((s) => s >= rough);
  const ticks = [];
  for (let t = 0; t <= top * 1.0001; t += step) ticks.push(+t.toPrecision(6));
  return ticks;
}

function powersIn([low, high], most = 6) {
  const first = Math.ceil(low - 1e-9), last = Math.floor(high + 1e-9);
  const step = Math.max(1, Math.ceil((last - first + 1) / most));
  const ticks = [];
  for (let t = first; t <= last; t += step) ticks.push(t);
  return ticks;
}

// Marks: the same shapes as in the printed figures -------------------------------------------

const polygon = (...points) => "M" + points.map((p) => p.join(" ")).join("L") + "Z";
const around = (n, turn, radius = () => 1) =>
  polygon(...Array.from({ length: n }, (_, i) => {
    const angle = turn + (2 * Math.PI * i) / n;
    return [(radius(i) * Math.cos(angle)).toFixed(3), (radius(i) * Math.sin(angle)).toFixed(3)];
  }));
const PLUS = [[-0.38, -1], [0.38, -1], [0.38, -0.38], [1, -0.38], [1, 0.38], [0.38, 0.38],
  [0.38, 1], [-0.38, 1], [-0.38, 0.38], [-1, 0.38], [-1, -0.38], [-0.38, -0.38]];
const SHAPES = {
  circle: "M-.9 0A.9.9 0 1 1 .9 0A.9.9 0 1 1 -.9 0Z",
  square: polygon([-0.8, -0.8], [0.8, -0.8], [0.8, 0.8], [-0.8, 0.8]),
  diamond: polygon([0, -1.15], [1, 0], [0, 1.15], [-1, 0]),
  up: polygon([0, -1.1], [1.02, 0.75], [-1.02, 0.75]),
  down: polygon([0, 1.1], [1.02, -0.75], [-1.02, -0.75]),
  left: polygon([-1.1, 0], [0.75, -1.02], [0.75, 1.02]),
  right: polygon([1.1, 0], [-0.75, -1.02], [-0.75, 1.02]),
  cross: polygon(...PLUS.map(([x, y]) => [((x - y) * 0.74).toFixed(3), ((x + y) * 0.74).toFixed(3)])),
  plus: polygon(...PLUS),
  hexagon: around(6, Math.PI / 6),
  star: around(10, -Math.PI / 2, (i) => (i % 2 ? 0.5 : 1.2)),
};

function mark(label, x, y, size, attributes = {}) {
  const shape = SHAPES[DATA.shapes[DATA.known.indexOf(label)]];
  const where = `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${size})`;
  return svg("path", { d: shape, transform: where, "vector-effect": "non-scaling-stroke", style: `fill:${colour(label)}`, ...attributes });
}

// Labels at the end of lines, moved apart where they would overlap; a stays with its colour.
function spread(heights, gap, low, high) {
  const order = heights.map((h, i) => [h, i]).sort((a, b) => a[0] - b[0]);
  for (let pass = 0; pass < 100; pass += 1) {
    let moved = false;
    for (let i = 0; i + 1 < order.length; i += 1) {
      const lack = gap - (order[i + 1][0] - order[i][0]);
      if (lack > 0.01) { order[i][0] -= lack / 2; order[i + 1][0] += lack / 2; moved = true; }
    }
    if (order.length) {
      const under = low - order[0][0], over = order[order.length - 1][0] - high;
      if (under > 0.01) { order[0][0] = low; moved = true; }
      if (over > 0.01) { order[order.length - 1][0] = high; moved = true; }
    }
    if (!moved) break;
  }
  const placed = [];
  for (const [h, i] of order) placed[i] = h;
  return placed;
}

// Tooltip -----------------------------------------------------------------------------------

const tip = byId("tip");

function showTip(x, y, ...children) {
  tip.replaceChildren(...children);
  tip.hidden = false;
  const wide = document.documentElement.clientWidth, box = tip.getBoundingClientRect();
  const left = x + 16 + box.width > wide - 8 ? x - 16 - box.width : x + 16;
  const above = y + 14 + box.height > window.innerHeight - 8 && y - 14 - box.height > 0;
  tip.style.left = `${window.scrollX + Math.min(Math.max(8, left), wide - 8 - box.width)}px`;
  tip.style.top = `${window.scrollY + (above ? y - 14 - box.height : y + 14)}px`;
}

const hideTip = () => { tip.hidden = true; };

function pairs(rows) {
  const list = el("dl");
  for (const [name, value] of rows) list.append(el("dt", {}, name), el("dd", {}, value));
  return list;
}

// State -------------------------------------------------------------------------------------

const state = {
  loss: "is", model: DATA.models[0], inputs: DATA.inputs[0], method: DATA.first,
  fitted: false, cost: 0, scatterModel: null,
};
const drawings = [];

function draw() {
  hideTip();
  for (const drawing of drawings) drawing();
}

function change(values) {
  Object.assign(state, values);
  draw();
}
