"use strict";
// Estimates against the truth: a small plot for each method, and one large one to point at.

const ALL = "all methods";

function findCell() {
  const model = DATA.models.indexOf(state.model), inputs = DATA.inputs.indexOf(state.inputs);
  return DATA.cells.find((cell) => cell.model === model && cell.inputs === inputs);
}

// One target under one method: logarithms of base ten; an estimate of zero has y = null.
function pointsOf(cell, label) {
  const found = cell && cell.methods[label];
  if (!found) return [];
  const targets = new Map(cell.targets.map((t) => [t[1], t]));
  return found.token.map((token, i) => {
    const [shown, , p, error] = targets.get(token);
    const ends = [found.low[i], found.high[i]];
    return {
      label, shown, token, p, error, x: p > 0 ? Math.log10(p) : null,
      y: state.fitted ? found.fit[i] : found.q[i], q: found.q[i], fit: found.fit[i], ends,
      why: found.why[i] === null ? null : DATA.texts[found.why[i]], loss: found.loss[i], hits: found.hits[i],
      macs: found.macs[i], seconds: found.s[i], witness: found.witness[i] === null ? null : DATA.texts[found.witness[i]],
    };
  }).filter((point) => point.x !== null);
}

// Both axes of a cell; a few far outliers are drawn at the edge.
function bounds(points) {
  const xs = points.map((p) => p.x), across = [Math.min(...xs) - 0.2, Math.max(...xs) + 0.2];
  const ys = points.map((p) => p.y).filter((y) => y !== null).sort((a, b) => a - b);
  const low = ys.length ? ys[Math.floor(ys.length * 0.02)] : across[0];
  const high = ys.length ? ys[ys.length - 1] : across[1];
  return { across, up: [Math.max(Math.min(low, across[0]) - 0.25, across[0] - 4.5), Math.min(Math.max(high, across[1]) + 0.25, 0.15)] };
}

function place({ across, up }, box, floor) {
  const x = scale(across, [box.left, box.right]), y = scale(up, [box.bottom - floor, box.top]);
  const clamp = (v) => Math.min(Math.max(v, up[0]), up[1]);
  return { x: (v) => x(Math.min(Math.max(v, across[0]), across[1])), y: (v) => (v === null ? box.bottom - floor / 2 : y(clamp(v))) };
}

function diagonal(drawing, at, { across, up }) {
  const from = Math.max(across[0], up[0]), to = Math.min(across[1], up[1]);
  if (from < to) drawing.append(line(at.x(from), at.y(from), at.x(to), at.y(to), { class: "same" }));
}

function thumbs(cell, limits) {
  const box = byId("thumbs");
  box.replaceChildren();
  for (const label of DATA.labels.slice(1)) {
    const points = pointsOf(cell, label), drawing = svg("svg", { viewBox: "0 0 120 84", "aria-hidden": "true" });
    if (limits) {
      const at = place(limits, { left: 3, right: 117, top: 3, bottom: 82 }, 9);
      drawing.append(line(0, 73, 120, 73, { class: "rule" }));
      diagonal(drawing, at, limits);
      for (const p of points) drawing.append(mark(label, at.x(p.x), at.y(p.y), 1.9, { opacity: 0.75 }));
    }
    const loss = DATA.losses[state.loss].cells[state.model][label][DATA.inputs.indexOf(state.inputs)];
    const button = el("button", { type: "button", "data-method": label, "aria-pressed": String(state.method === label) },
      el("b", { style: `color:${colour(label)}` }, label), drawing, el("small", {}, loss === null || loss === undefined ? "not judged" : `loss ${loss.toFixed(2)}`));
    button.addEventListener("click", () => change({ method: state.method === label ? ALL : label }));
    box.append(button);
  }
}

let shownPoints = [], pinned = null;

drawings.push(function scatter() {
  const cell = findCell(), labels = DATA.labels.slice(1);
  const everything = labels.flatMap((label) => pointsOf(cell, label));
  const limits = everything.length ? bounds(everything) : null;
  thumbs(cell, limits);
  const box = byId("plot"), width = Math.max(box.clientWidth, 260), height = Math.round(Math.min(470, Math.max(360, width * 0.6)));
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, height });
  box.replaceChildren(drawing);
  shownPoints = [];
  byId("plot-note").textContent = "";
  if (!limits) {
    drawing.append(text(width / 2, height / 2, `no estimate on ${state.model}, ${state.inputs}`, { "text-anchor": "middle" }));
    return;
  }
  const area = { left: 48, right: width - 6, top: 8, bottom: height - 44 }, floor = 22;
  const at = place(limits, area, floor), edge = area.bottom - floor;
  for (const p of powersIn(limits.across)) drawing.append(line(at.x(p), area.top, at.x(p), area.bottom, { class: "rule" }), text(at.x(p), area.bottom + 17, power(p), { "text-anchor": "middle" }));
  for (const p of powersIn(limits.up, 7)) drawing.append(line(area.left, at.y(p), area.right, at.y(p), { class: "rule" }), text(area.left - 7, at.y(p) + 4, power(p), { "text-anchor": "end" }));
  drawing.append(line(area.left, edge, area.right, edge, { class: "axis", "stroke-dasharray": "1 3" }), text(area.left - 7, area.bottom - 7, state.fitted ? "" : "no hit", { "text-anchor": "end" }));
  diagonal(drawing, at, limits);
  const corner = Math.min(limits.across[1], limits.up[1]), [cx, cy] = [at.x(corner), at.y(corner)];
  const slope = (Math.atan2(cy - at.y(corner - 1), cx - at.x(corner - 1)) * 180) / Math.PI;
  drawing.append(text(cx - 6, cy + 16, "estimate = truth", { "text-anchor": "end", class: "halo", transform: `rotate(${slope.toFixed(1)} ${cx.toFixed(1)} ${cy.toFixed(1)})` }));
  drawing.append(text((area.left + area.right) / 2, height - 6, "true probability", { "text-anchor": "middle", class: "ink" }));
  drawing.append(text(area.left + 6, area.top + 12, state.fitted ? "↑ estimate after the fit" : "↑ estimate", { class: "ink halo" }));
  const chosen = state.method === ALL ? labels : [state.method];
  const bars = svg("g"), marks = svg("g");
  for (const label of chosen) for (const p of pointsOf(cell, label)) {
    const px = at.x(p.x), py = at.y(p.y), stroke = `stroke:${colour(label)}`;
    const low = p.error === null || p.error >= p.p ? limits.across[0] : Math.log10(p.p - p.error);
    const high = p.error === null ? limits.across[1] : Math.log10(p.p + p.error);
    bars.append(line(at.x(low), py, at.x(high), py, { class: "bar", style: stroke }));
    if (!state.fitted && p.ends[0] !== null && p.q !== null) {
      const ends = p.ends.map((end) => (end > 0 ? at.y(Math.log10(end)) : area.bottom));
      bars.append(line(px, ends[0], px, ends[1], { class: "bar", style: stroke }));
    }
    const zero = p.y === null;
    marks.append(mark(label, px, py, 4.4, zero ? { class: "point zero", style: stroke } : { class: "point", opacity: 0.85 }));
    shownPoints.push({ ...p, px, py });
  }
  const ring = svg("circle", { class: "ring", r: 9, visibility: "hidden" });
  drawing.append(bars, marks, ring);
  shownPoints.sort((a, b) => a.x - b.x);
  note(cell, chosen);
  const select = (point) => {
    pinned = point;
    ring.setAttribute("visibility", point ? "visible" : "hidden");
    if (!point) { hideTip(); return; }
    ring.setAttribute("cx", point.px);
    ring.setAttribute("cy", point.py);
    const place = drawing.getBoundingClientRect(), zoom = place.width / width;
    describe(point, place.left + point.px * zoom, place.top + point.py * zoom);
  };
  const nearest = (event) => {
    const place = drawing.getBoundingClientRect(), zoom = width / place.width;
    const x = (event.clientX - place.left) * zoom, y = (event.clientY - place.top) * zoom;
    let best = null, least = 28 ** 2;
    for (const p of shownPoints) {
      const gap = (p.px - x) ** 2 + (p.py - y) ** 2;
      if (gap < least) { best = p; least = gap; }
    }
    select(best);
  };
  drawing.addEventListener("pointermove", nearest);
  drawing.addEventListener("pointerdown", nearest);
  drawing.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") select(null); });
  box.onblur = () => select(null);
  box.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !shownPoints.length) return;
    event.preventDefault();
    const here = shownPoints.indexOf(pinned);
    select(shownPoints[(here < 0 ? (step > 0 ? 0 : shownPoints.length - 1) : here + step + shownPoints.length) % shownPoints.length]);
  };
});

function note(cell, chosen) {
  const zeros = shownPoints.filter((p) => p.q === null).length;
  const unjudged = cell.targets.filter((t) => !(t[2] > 0)).length;
  const parts = [`${shownPoints.length} estimates by ${chosen.length > 1 ? `${chosen.length} methods` : chosen[0]}, ${zeros} without a hit.`, `Truth: ${cell.truth}.`];
  if (unjudged) parts.push(`${unjudged} of ${cell.targets.length} targets were never seen by the half of the truth that judges and are not shown.`);
  byId("plot-note").textContent = parts.join(" ");
}

function describe(point, x, y) {
  const interval = point.ends[0] === null ? "" : ` (95%: ${short(point.ends[0])} … ${short(point.ends[1])})`;
  const rows = [
    ["truth", `${short(point.p)} ± ${short(point.error)}`],
    [point.label, (point.q === null ? "no hit" : short(10 ** point.q)) + interval],
  ];
  if (point.why) rows.push(["interval", `none: ${point.why}`]);
  if (point.fit !== null) rows.push(["after the fit", short(10 ** point.fit)]);
  if (point.loss !== null) rows.push(["loss, left out", point.loss.toFixed(3)]);
  if (point.hits !== null) rows.push(["hits", String(point.hits)]);
  rows.push(["cost", `${short(point.seconds)} s, ${short(point.macs)} MACs`]);
  const parts = [el("div", { class: "token" }, visible(point.shown), el("small", {}, `  #${point.token}`)), pairs(rows)];
  if (point.witness !== null) parts.push(el("p", { class: "witness" }, visible(point.witness)));
  showTip(x, y, ...parts);
}
