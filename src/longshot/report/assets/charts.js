"use strict";
// Losses by model, by cost and by distribution; tuning curves; the truth by rank.

function frame(id, height) {
  const box = byId(id);
  const width = Math.max(box.clientWidth, 240);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
  box.replaceChildren(drawing);
  return [drawing, width];
}

// A series that is pointed at stands out of the others.
function series(drawing, label, ...children) {
  const group = svg("g", { class: "series", "data-method": label }, ...children);
  group.addEventListener("pointerenter", () => { drawing.classList.add("focus"); group.classList.add("on"); });
  group.addEventListener("pointerleave", () => { drawing.classList.remove("focus"); group.classList.remove("on"); hideTip(); });
  return group;
}

function telling(node, title, rows) {
  node.addEventListener("pointermove", (event) =>
    showTip(event.clientX, event.clientY, el("div", { class: "token" }, title), pairs(rows)));
  node.addEventListener("pointerleave", hideTip);
  return node;
}

// The top of an axis: above every mean and nearly every single value, but not far above what
// the best constant loses; what lies higher is drawn hollow on the edge.
function roof(means, values) {
  const known = values.filter((v) => v !== null).sort((a, b) => a - b);
  const wanted = Math.max(1.12 * Math.max(...means), known[Math.floor(known.length * 0.97)] || 0) * 1.03;
  const losses = DATA.losses[state.loss].cells;
  const base = Math.max(...DATA.models.flatMap((m) => losses[m].constant.filter((v) => v !== null)), 0);
  return Math.max(0.01, base ? Math.min(wanted, 2.5 * base) : wanted);
}

const hollow = (label, above) => (above ? { class: "zero", style: `stroke:${colour(label)}` } : {});

const plusMinus = (value, error) => value.toFixed(3) + (error === null ? "" : ` ± ${error.toFixed(2)}`);

function lossAxis(drawing, top, left, right, y) {
  for (const tick of linearTicks(top)) {
    drawing.append(line(left, y(tick), right, y(tick), { class: "rule" }), text(left - 7, y(tick) + 4, String(tick), { "text-anchor": "end" }));
  }
}

drawings.push(function byModel() {
  const height = 380, [drawing, width] = frame("by-model", height);
  const losses = DATA.losses[state.loss], models = DATA.models;
  const left = 34, right = width - 92, bottom = height - 28;
  const top = roof(models.flatMap((model) => DATA.labels.map((label) => losses.means[model][label]?.[0] || 0)),
    models.flatMap((model) => DATA.labels.flatMap((label) => losses.cells[model][label] || [])));
  const within = scale([0, top], [bottom, 12]), y = (value) => within(Math.min(value, top));
  const margin = Math.min(60, (right - left) / (models.length + 1));
  const x = models.length > 1 ? scale([0, models.length - 1], [left + margin, right - margin * 0.8]) : () => (left + right) / 2;
  lossAxis(drawing, top, left, right, y);
  models.forEach((model, i) => drawing.append(text(x(i), height - 6, model, { "text-anchor": "middle", class: "ink" })));
  const ends = [], shown = [];
  DATA.labels.forEach((label, place) => {
    const means = models.map((model, i) => [i, losses.means[model][label]]).filter((pair) => pair[1]);
    if (!means.length) return;
    const group = series(drawing, label);
    const edge = (sign) => means.map(([i, m]) => `${x(i)} ${y(Math.max(0, m[0] + sign * (m[1] || 0)))}`);
    if (means.length > 1) {
      group.append(svg("path", { class: "band", d: "M" + [...edge(1), ...edge(-1).reverse()].join("L") + "Z", style: `fill:${colour(label)}` }));
      const dash = label === "constant" ? "2 4" : "none";
      group.append(svg("path", { d: "M" + means.map(([i, m]) => `${x(i)} ${y(m[0])}`).join("L"), fill: "none", "stroke-width": 2.2, "stroke-dasharray": dash, style: `stroke:${colour(label)}` }));
    }
    const step = Math.min(9, (margin * 1.5) / DATA.labels.length), shift = (place - (DATA.labels.length - 1) / 2) * step;
    models.forEach((model, i) => (losses.cells[model][label] || []).forEach((loss, k) => {
      if (loss === null) return;
      const point = mark(label, x(i) + shift, y(loss), 3, { opacity: 0.5, ...hollow(label, loss > top) });
      group.append(telling(point, label, [["model", model], ["distribution", DATA.inputs[k]], ["loss", loss.toFixed(3)]]));
    }));
    for (const [i, m] of means) {
      if (means.length === 1 && m[1]) group.append(line(x(i) + shift, y(m[0] - m[1]), x(i) + shift, y(m[0] + m[1]), { "stroke-width": 2, style: `stroke:${colour(label)}` }));
      const point = mark(label, x(i) + (means.length === 1 ? shift : 0), y(m[0]), 5.2, hollow(label, m[0] > top));
      group.append(telling(point, label, [["model", models[i]], ["mean loss", plusMinus(m[0], m[1])], ["distributions", `${m[2]} of ${m[3]}`]]));
    }
    ends.push(y(means[means.length - 1][1][0]));
    shown.push([label, group]);
    drawing.append(group);
  });
  const placed = spread(ends, 16, 14, bottom - 2);
  shown.forEach(([label, group], i) =>
    group.append(line(right - margin * 0.55, ends[i], right + 2, placed[i], { style: `stroke:${colour(label)}`, opacity: 0.45 }),
      text(right + 7, placed[i] + 4, label, { class: "name", style: `fill:${colour(label)}` })));
});

drawings.push(function byCost() {
  const height = 380, [drawing, width] = frame("by-cost", height);
  const losses = DATA.losses[state.loss].means[state.model] || {}, spent = DATA.spent[state.model] || {};
  const found = DATA.labels.filter((label) => losses[label] && spent[label] && spent[label][state.cost] > 0)
    .map((label) => ({ label, loss: losses[label], cost: Math.log10(spent[label][state.cost]) }));
  if (!found.length) return;
  const base = losses.constant;
  const top = roof(found.map((f) => f.loss[0] + (f.loss[1] || 0)), []);
  const costs = found.map((f) => f.cost), span = [Math.min(...costs) - 0.35, Math.max(...costs) + 0.45];
  const left = 34, right = width - 6, bottom = height - 44;
  const within = scale([0, top], [bottom, 12]), y = (value) => within(Math.min(value, top)), x = scale(span, [left, right]);
  lossAxis(drawing, top, left, right, y);
  const fine = span[1] - span[0] < 2.2;
  for (let p = Math.floor(span[0]); p <= span[1]; p += 1) for (const m of fine ? [1, 2, 5] : [1]) {
    const at = p + Math.log10(m);
    if (at > span[1] || at < span[0]) continue;
    drawing.append(line(x(at), 8, x(at), bottom, { class: "rule" }), text(x(at), bottom + 17, m === 1 ? power(p) : `${m}×${power(p)}`, { "text-anchor": "middle" }));
  }
  const units = ["multiply-accumulates", "seconds"][state.cost % 2];
  drawing.append(text((left + right) / 2, height - 6, `${units} a target on ${state.model}`, { "text-anchor": "middle", class: "ink" }));
  if (base) {
    drawing.append(line(left, y(base[0]), right, y(base[0]), { style: `stroke:${colour("constant")}`, "stroke-dasharray": "2 4", "stroke-width": 1.6 }),
      text(left + 5, y(base[0]) - 6, "best constant", { class: "halo" }));
  }
  const placed = spread(found.map((f) => y(f.loss[0])), 15, 14, bottom - 4);
  found.forEach((f, i) => {
    const at = x(f.cost), group = series(drawing, f.label);
    if (f.loss[1]) group.append(line(at, y(Math.max(0, f.loss[0] - f.loss[1])), at, y(f.loss[0] + f.loss[1]), { class: "bar", style: `stroke:${colour(f.label)};stroke-width:1.6` }));
    const close = found.some((g) => g !== f && Math.abs(x(g.cost) - at) < 90 && Math.abs(y(g.loss[0]) - y(f.loss[0])) < 16);
    const onLeft = at > right - 80;
    group.append(telling(mark(f.label, at, y(f.loss[0]), 6, hollow(f.label, f.loss[0] > top)), f.label, [["mean loss", plusMinus(f.loss[0], f.loss[1])],
      ["asked alone", `${short(spent[f.label][0])} MACs, ${short(spent[f.label][1])} s`], ["samples shared", `${short(spent[f.label][2])} MACs, ${short(spent[f.label][3])} s`]]),
    text(at + (onLeft ? -10 : 10), (close ? placed[i] : y(f.loss[0])) + 4, f.label, { class: "name halo", "text-anchor": onLeft ? "end" : "start", style: `fill:${colour(f.label)}` }));
    drawing.append(group);
  });
});

drawings.push(function byInputs() {
  const halves = Object.entries(DATA.halves);
  const order = [...halves.flatMap((half) => half[1])];
  for (const name of DATA.inputs) if (!order.includes(name)) order.push(name);
  const lane = Math.max(40, 8 * DATA.labels.length + 4), rows = [];
  let at = 30;
  for (const name of order) {
    const half = halves.find((h) => h[1][0] === name);
    if (half) { rows.push({ heading: half[0], at: at + 12 }); at += 22; }
    rows.push({ name, at });
    at += lane;
  }
  const height = at + 26, [drawing, width] = frame("by-inputs", height);
  const cells = DATA.losses[state.loss].cells, left = 70, right = width - 8;
  const mean = (name, label) => {
    const found = DATA.models.map((m) => cells[m][label][DATA.inputs.indexOf(name)]).filter((v) => v !== null);
    return found.length ? { values: found, mean: found.reduce((a, b) => a + b) / found.length } : null;
  };
  const found = order.flatMap((name) => DATA.labels.map((label) => mean(name, label))).filter(Boolean);
  const top = roof(found.map((f) => f.mean), found.flatMap((f) => f.values));
  const within = scale([0, top], [left, right]), x = (value) => within(Math.min(value, top));
  for (const tick of linearTicks(top, width < 500 ? 4 : 8)) {
    drawing.append(line(x(tick), 24, x(tick), at, { class: "rule" }), text(x(tick), at + 18, String(tick), { "text-anchor": "middle" }));
  }
  for (const row of rows) {
    if (row.heading) drawing.append(text(0, row.at + 1, row.heading, { "font-style": "italic" }));
    else drawing.append(text(left - 12, row.at + lane / 2 + 4, row.name, { "text-anchor": "end", class: "ink" }), line(0, row.at + lane - 1, right, row.at + lane - 1, { class: "rule" }));
  }
  DATA.labels.forEach((label, place) => {
    const group = series(drawing, label);
    for (const row of rows) {
      const found = row.name && mean(row.name, label);
      if (!found) continue;
      const y = row.at + lane / 2 + (place - (DATA.labels.length - 1) / 2) * ((lane - 10) / DATA.labels.length);
      group.append(line(x(Math.min(...found.values)), y, x(Math.max(...found.values)), y, { class: "bar", style: `stroke:${colour(label)};stroke-width:1.4` }));
      group.append(telling(mark(label, x(found.mean), y, 4.6, hollow(label, found.mean > top)), label, [["distribution", row.name], ["mean loss", found.mean.toFixed(3)], ["by model", found.values.map((v) => v.toFixed(2)).join(", ")]]));
    }
    drawing.append(group);
  });
  byId("by-inputs").prepend(key(DATA.labels));
});

function key(labels) {
  const list = el("div", { class: "key" });
  for (const label of labels) {
    const drawing = svg("svg", { viewBox: "-7 -7 14 14", width: 14, height: 14 });
    drawing.append(mark(label, 0, 0, 4.6));
    list.append(el("span", {}, drawing, label));
  }
  return list;
}

function panel(title, box, height = 150) {
  const holder = el("div", { class: "panel" });
  box.append(holder);
  const width = Math.max(holder.clientWidth, 120);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, height });
  drawing.append(text(0, 12, title, { class: "ink name" }));
  holder.append(drawing);
  return [drawing, width, height];
}

drawings.push(function tuning() {
  const box = byId("curves"), curves = DATA.tuned.filter((t) => t[0] === state.model && t[4].length);
  byId("tuning").hidden = !DATA.tuned.some((t) => t[4].length);
  box.replaceChildren();
  if (!curves.length) return;
  const all = curves.flatMap((t) => t[4]), span = [Math.log10(Math.min(...all.map((p) => p[0]))), Math.log10(Math.max(...all.map((p) => p[0])))];
  const top = 1.05 * Math.max(0.01, ...all.map((p) => p[1] || 0));
  for (const name of DATA.inputs) {
    const here = curves.filter((t) => t[1] === name);
    if (!here.length) continue;
    const [drawing, width, height] = panel(name, box);
    const x = scale(span, [30, width - 10]), y = scale([0, top], [height - 20, 30]);
    for (const tick of linearTicks(top, 3)) drawing.append(line(26, y(tick), width, y(tick), { class: "rule" }), text(22, y(tick) + 4, String(tick), { "text-anchor": "end" }));
    for (const t of [0.2, 0.5, 1, 2, 5]) if (Math.log10(t) >= span[0] - 0.01 && Math.log10(t) <= span[1] + 0.01) drawing.append(text(x(Math.log10(t)), height - 3, String(t), { "text-anchor": "middle" }));
    for (const [, , label, chosen, curve] of here) {
      const points = curve.filter((p) => p[1] !== null).map(([t, loss]) => [x(Math.log10(t)), y(loss), t, loss]);
      const group = series(drawing, label, svg("path", { d: "M" + points.map((p) => `${p[0].toFixed(1)} ${p[1].toFixed(1)}`).join("L"), fill: "none", "stroke-width": 1.6, style: `stroke:${colour(label)}` }));
      for (const [px, py, t, loss] of points) {
        group.append(telling(mark(label, px, py, 3.2), label, [["temperature", String(t)], ["loss", loss.toFixed(3)]]));
        if (Math.abs(t - chosen) < 1e-3 * t) group.append(svg("circle", { cx: px, cy: py, r: 7, fill: "none", "stroke-width": 1.6, style: `stroke:${colour(label)}` }));
      }
      drawing.append(group);
    }
  }
  box.prepend(key([...new Set(curves.map((t) => t[2]))]));
});

drawings.push(function ranks() {
  const box = byId("ranks");
  box.replaceChildren();
  const all = DATA.cells.flatMap((cell) => cell.targets.map((t) => t[2])).filter((p) => p > 0).map(Math.log10);
  byId("truth").hidden = !all.length;
  if (!all.length) return;
  const span = [Math.min(...all) - 0.2, Math.max(...all) + 0.2];
  const most = Math.max(...DATA.cells.map((cell) => cell.targets.length));
  const legend = el("div", { class: "key" });
  DATA.models.forEach((model, n) => legend.append(el("span", { style: `color:var(--shade${n % 4})` }, "━ ", el("span", { style: "color:var(--ink)" }, model))));
  DATA.inputs.forEach((name, i) => {
    const [drawing, width, height] = panel(name, box);
    const x = scale([1, most], [34, width - 6]), y = scale(span, [height - 20, 22]);
    for (const p of powersIn(span, 4)) drawing.append(line(30, y(p), width, y(p), { class: "rule" }), text(26, y(p) + 4, power(p), { "text-anchor": "end" }));
    drawing.append(text(x(1), height - 3, "1"), text(x(most), height - 3, String(most), { "text-anchor": "end" }));
    for (const cell of DATA.cells.filter((c) => c.inputs === i)) {
      const found = cell.targets.filter((t) => t[2] > 0).sort((a, b) => b[2] - a[2]);
      if (!found.length) continue;
      const shade = `var(--shade${cell.model % 4})`, log = (v) => y(Math.max(span[0], Math.log10(Math.max(v, 1e-300))));
      const upper = found.map((t, k) => `${x(k + 1).toFixed(1)} ${log(t[2] + (t[3] || 0)).toFixed(1)}`);
      const lower = found.map((t, k) => `${x(k + 1).toFixed(1)} ${log(t[3] === null ? 0 : t[2] - t[3]).toFixed(1)}`);
      drawing.append(svg("path", { class: "band", d: "M" + [...upper, ...lower.reverse()].join("L") + "Z", style: `fill:${shade}` }),
        svg("path", { fill: "none", "stroke-width": 1.8, d: "M" + found.map((t, k) => `${x(k + 1).toFixed(1)} ${log(t[2]).toFixed(1)}`).join("L"), style: `stroke:${shade}` }));
    }
  });
  box.prepend(legend);
});
