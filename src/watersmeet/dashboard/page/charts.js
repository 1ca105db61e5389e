// Small charts over the batches of a run: curves from zero, or layers. All share one cursor; legends show its values.

import { clock, draw, make, seconds } from "./format.js";

const HEIGHT = 170, LEFT = 52, RIGHT = 10, TOP = 8, BOTTOM = 22;

export class Chart {
  // about: {id, title, hint, format (of the axis), label (of the legend), layers, firstMayLeave, series: (batches) => [{name, colour, values, predicted}]}
  constructor(about, onMove, onPick) {
    this.about = about;
    this.label = about.label ?? about.format;
    this.svg = draw("svg", { role: "img", height: HEIGHT });
    this.legend = make("ul", { class: "legend" });
    const head = about.plain ? [] : [make("h2", {}, about.title)];
    if (about.hint) head.push(make("p", { class: "hint" }, about.hint));
    const kind = about.plain ? ["div", "chart"] : ["section", "card chart"];
    this.element = make(kind[0], { class: kind[1], "data-chart": about.id }, ...head, this.legend, this.svg);
    this.svg.addEventListener("pointermove", (event) => onMove(this.nearest(event)));
    this.svg.addEventListener("pointerleave", () => onMove(null));
    this.svg.addEventListener("click", (event) => onPick(this.nearest(event)));
  }

  nearest(event) {
    if (!this.xs?.length) return null;
    const x = event.clientX - this.svg.getBoundingClientRect().left;
    let best = 0;
    this.xs.forEach((at, i) => { if (Math.abs(at - x) < Math.abs(this.xs[best] - x)) best = i; });
    return best;
  }

  show(batches) {
    this.batches = batches;
    this.series = this.about.series(batches);
    this.element.hidden = this.series.length === 0;
    const width = this.svg.clientWidth || 400;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren();
    if (!batches.length || this.element.hidden) return;
    const times = batches.map((b) => Date.parse(b.at) / 1000 - Date.parse(batches[0].at) / 1000);
    const span = times.at(-1) || 1, room = width - LEFT - RIGHT;
    this.xs = times.map((t) => (times.length === 1 ? LEFT + room / 2 : LEFT + (t / span) * room));
    this.stacked = this.about.layers ? stack(this.series) : this.series.map((s) => s.values);
    const { largest, drawn } = this.most(), top = nice(drawn);
    this.y = (v) => Math.max(TOP, TOP + (1 - v / top.max) * (HEIGHT - TOP - BOTTOM));
    this.axes(width, top, span);
    if (this.about.layers) this.layers(); else this.curves(room);
    if (drawn < largest) {
      const label = `↑ first batch ${this.about.format(largest)}`;
      this.svg.append(draw("text", { class: "tick over", x: this.xs[0] + 6, y: TOP + 14 }, label));
    }
    this.cursor = draw("g");
    this.svg.append(this.cursor);
  }

  // The largest value, and the top of the chart: a first batch far above all others may leave the chart.
  most() {
    const larger = (a, b) => Math.max(a, b ?? 0);
    const rest = this.stacked.map((values) => values.slice(1).reduce(larger, 0)).reduce(larger, 0);
    const all = this.stacked.map((values) => values[0]).reduce(larger, rest);
    const leaves = this.about.firstMayLeave && this.batches.length > 4 && all > 2 * rest;
    return { largest: all, drawn: leaves ? 1.2 * rest : all };
  }

  axes(width, top, span) {
    for (let v = 0; v <= top.max * 1.0001; v += top.step) {
      const y = this.y(v);
      this.svg.append(draw("line", { class: v ? "gridline" : "base", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }));
      this.svg.append(draw("text", { class: "tick", x: LEFT - 8, y: y + 4, "text-anchor": "end" }, this.about.format(v)));
    }
    const step = timeStep(span, Math.max(2, Math.floor(width / 110)));
    for (let t = 0; t <= span; t += step) {
      const x = this.xs.length === 1 ? this.xs[0] : LEFT + (t / span) * (width - LEFT - RIGHT);
      const anchor = t === 0 && this.xs.length > 1 ? "start" : x > width - 30 ? "end" : "middle";
      this.svg.append(draw("text", { class: "tick", x, y: HEIGHT - 5, "text-anchor": anchor }, seconds(t)));
    }
  }

  curves(room) {
    this.series.forEach((s) => {
      const points = thin(this.xs.map((x, i) => [x, s.values[i]]), room);
      let path = "", pen = false;
      for (const [x, v] of points) {
        if (v != null) path += `${pen ? "L" : "M"}${x.toFixed(1)} ${this.y(v).toFixed(1)}`;
        pen = v != null;
      }
      const curve = draw("path", { class: s.predicted ? "curve predicted" : "curve", d: path });
      curve.style.stroke = s.colour;
      this.svg.append(curve);
      if (this.xs.length === 1 && s.values[0] != null) this.svg.append(dot(this.xs[0], this.y(s.values[0]), s.colour));
    });
  }

  layers() {
    const half = this.xs.length === 1 ? 20 : 0;
    for (let k = this.series.length - 1; k >= 0; k--) {
      const below = k ? this.stacked[k - 1] : this.stacked[k].map(() => 0);
      const there = this.xs.map((x, i) => [x, this.stacked[k][i], below[i]]);
      const ends = half ? [[this.xs[0] - half, ...there[0].slice(1)], [this.xs[0] + half, ...there[0].slice(1)]] : there;
      const up = ends.map(([x, v]) => `${x.toFixed(1)} ${this.y(v).toFixed(1)}`);
      const down = ends.map(([x, , v]) => `${x.toFixed(1)} ${this.y(v).toFixed(1)}`).reverse();
      const area = draw("path", { class: "area", d: `M${[...up, ...down].join("L")}Z` });
      area.style.fill = this.series[k].colour;
      this.svg.append(area);
    }
  }

  // Show the values of batch i in the legend, and the cursor's line through it if `visible`.
  point(i, visible) {
    if (this.element.hidden || !this.cursor) return;
    this.cursor.replaceChildren();
    if (visible) {
      this.cursor.append(draw("line", { class: "cursor", x1: this.xs[i], x2: this.xs[i], y1: TOP, y2: HEIGHT - BOTTOM }));
      this.stacked.forEach((values, k) => {
        if (values[i] != null && !this.about.layers) this.cursor.append(dot(this.xs[i], this.y(values[i]), this.series[k].colour));
      });
    }
    this.legend.replaceChildren(...this.series.map((s) => {
      const kind = this.about.layers ? "swatch block" : s.predicted ? "swatch predicted" : "swatch";
      const swatch = make("span", { class: kind });
      swatch.style[s.predicted ? "borderColor" : "background"] = s.colour;
      return make("li", {}, swatch, s.name, make("b", {}, this.label(s.values[i])));
    }));
    const values = this.series.map((s) => `${s.name} ${this.label(s.values[i])}`).join(", ");
    this.svg.setAttribute("aria-label", `${this.about.title}, batch ${this.batches[i].batch} at ${clock(this.batches[i].at)}: ${values}`);
  }
}

const dot = (cx, cy, fill) => {
  const circle = draw("circle", { class: "dot", cx, cy, r: 4 });
  circle.style.fill = fill;
  return circle;
};

function stack(series) {
  const sums = [];
  series.forEach((s, k) => sums.push(s.values.map((v, i) => (v ?? 0) + (k ? sums[k - 1][i] : 0))));
  return sums;
}

function nice(most) {
  if (!most) return { max: 1, step: 1 };
  const rough = most / 3, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough);
  return { step, max: Math.ceil(most / step - 1e-9) * step };
}

function timeStep(span, most) {
  const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400];
  return steps.find((s) => span / s <= most) ?? span;
}

// The lowest and the highest point of each column of pixels.
function thin(points, width) {
  if (points.length <= 2 * width) return points;
  const size = Math.ceil(points.length / width), kept = [];
  for (let i = 0; i < points.length; i += size) {
    const some = points.slice(i, i + size), known = some.filter((p) => p[1] != null).sort((a, b) => a[1] - b[1]);
    const ends = known.length ? new Set([known[0], known.at(-1)]) : new Set([some[0]]);
    kept.push(...[...ends].sort((a, b) => a[0] - b[0]));
  }
  return kept;
}
