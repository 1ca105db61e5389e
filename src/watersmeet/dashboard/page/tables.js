// The tables of one batch: tiles, shards, hot keys, streams; and the last batches as text.

import { bytes, clock, colour, count, make, millis, percent, seconds, short, stamp } from "./format.js";

export const ROWS = 50;

const sum = (values) => values.reduce((a, b) => a + b, 0);

export function tiles(batches, i) {
  const b = batches[i], so_far = batches.slice(0, i + 1);
  const total = (of) => sum(so_far.map(of));
  const predicted = b.streams.every((s) => s.predicted != null) ? sum(b.streams.map((s) => s.predicted)) : null;
  const each = b.state.tuples ? `${count(b.state.bytes / b.state.tuples)} bytes a tuple` : "empty";
  const unjoined = total((x) => x.late + x.violations);
  return [
    tile("rows-in", "Rows in", short(b.rows_in / b.interval), "/s", `${count(total((x) => x.rows_in))} so far`),
    tile("rows-out", "Rows out", short(b.rows_out / b.interval), "/s", `${count(total((x) => x.rows_out))} so far`),
    tile("tuples", "Tuples in state", count(b.state.tuples), "", predicted == null ? "not predicted" : `${count(predicted)} predicted`),
    tile("bytes", "State", ...bytes(b.state.bytes).split(" "), each),
    tile("seconds", "Batch time", ...millis(b.seconds * 1000).split(" "), `${short(b.rows_in / b.seconds)} rows/s in it`),
    tile("unjoined", "Late, violating", count(b.late + b.violations), "", `${count(unjoined)} so far`),
  ];
}

function tile(id, name, value, unit, more) {
  const shown = make("div", { class: "value" }, value, make("span", { class: "unit" }, unit && !unit.startsWith("/") ? ` ${unit}` : unit));
  return make("div", { class: "tile", id: `tile-${id}` }, make("div", { class: "name" }, name), shown, make("div", { class: "more" }, more));
}

export function shards(batch) {
  const most = Math.max(1, ...batch.shards.map((s) => s.rows_in));
  const rows = batch.shards.flatMap((s) => [
    make("span", { class: "key" }, `${s.shard}`),
    bar(s.rows_in / most, "var(--s0)"),
    make("span", { class: "amount" }, `${count(s.rows_in)} rows · ${count(s.tuples)} tuples · ${millis(s.ms)}`),
  ]);
  const others = batch.shard_count - batch.shards.length;
  if (others > 0) rows.push(make("span", { class: "whole" }, `the slowest; and ${count(others)} others`));
  return make("div", { class: "bars" }, ...rows);
}

export function hot(batch) {
  const most = Math.max(0.0001, ...batch.streams.flatMap((s) => s.hot.map((h) => h.share)));
  const rows = batch.streams.flatMap((s, i) => [
    make("span", { class: "whole" }, s.hot.length ? s.name : `${s.name}: no key came twice`),
    ...s.hot.flatMap((h) => [
      make("span", { class: "key", title: h.key }, h.key),
      bar(h.share / most, colour(i)),
      make("span", { class: "amount" }, `${count(h.rows)} rows · ${percent(h.share)}${(s.split ?? []).includes(h.key) ? " · split" : ""}`),
    ]),
  ]);
  return make("div", { class: "bars" }, ...rows);
}

function bar(share, fill) {
  const element = make("span", { class: "bar" });
  element.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  element.style.background = fill;
  return element;
}

export function streams(batch) {
  const columns = {
    Stream: (s) => s.name, "Rows in": (s) => count(s.rows_in), "In state": (s) => count(s.stored),
    Predicted: (s) => count(s.predicted), Size: (s) => bytes(s.bytes), Keys: (s) => count(s.keys),
    "Keys closed": (s) => count(s.closed), Late: (s) => count(s.late), Violating: (s) => count(s.violations),
    Behind: (s) => seconds(s.lag), Scrambling: (s) => count(s.scrambling), "Newest event (UTC)": (s) => stamp(s.newest),
  };
  if (batch.streams.every((s) => s.scrambling == null)) delete columns.Scrambling;
  return table(columns, batch.streams);
}

export function lastBatches(batches, chosen) {
  const columns = {
    Batch: (b) => b.batch, At: (b) => clock(b.at), Time: (b) => millis(b.seconds * 1000), "Rows in": (b) => count(b.rows_in),
    "Rows out": (b) => count(b.rows_out), Tuples: (b) => count(b.state.tuples), State: (b) => bytes(b.state.bytes),
    Expired: (b) => count(b.left.window), Purged: (b) => count(b.left.punctuation), "Dead key": (b) => count(b.left.dead),
    Late: (b) => count(b.late), Violating: (b) => count(b.violations), Skew: (b) => (b.skew == null ? "–" : b.skew.toFixed(2)),
  };
  return table(columns, batches.slice(-ROWS).reverse(), (b) => b === chosen);
}

function table(columns, rows, current = () => false) {
  const head = make("thead", {}, make("tr", {}, ...Object.keys(columns).map((name) => make("th", { scope: "col" }, name))));
  const body = rows.map((row) => {
    const cells = Object.values(columns).map((of, i) => make(i ? "td" : "th", i ? {} : { scope: "row" }, of(row)));
    return make("tr", current(row) ? { "aria-current": "true" } : {}, ...cells);
  });
  return [head, make("tbody", {}, ...body)];
}
