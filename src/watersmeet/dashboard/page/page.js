// The live page: receives events, keeps them by run, shows one batch in numbers and all batches in charts.

import { Chart } from "./charts.js";
import { bytes, clock, colour, count, day, make, millis, seconds, short } from "./format.js";
import { drawPlan } from "./plan.js";
import { hot, lastBatches, shards, streams, tiles } from "./tables.js";

const at = (id) => document.getElementById(id);
const state = { plan: null, runs: new Map(), run: null, pinned: null, hover: null, seen: false };

// ---------------------------------------------------------------- charts

const perStream = (value, { predicted } = {}) => (batches) =>
  (batches[0]?.streams ?? []).flatMap((s, i) => {
    const own = { name: s.name, colour: colour(i), values: batches.map((b) => value(b.streams[i], b)) };
    if (!predicted) return [own];
    const values = batches.map((b) => predicted(b.streams[i]));
    return values.some((v) => v != null) ? [own, { name: "predicted", colour: colour(i), values, predicted: true }] : [own];
  });

const REASONS = [["window", "window passed", "var(--s0)"], ["punctuation", "punctuation", "var(--s2)"], ["dead", "dead key", "var(--s1)"],
  ["matched", "matched", "var(--s3)"], ["shed", "shed", "var(--s4)"]];
const reasons = (batches) => REASONS
  .map(([reason, name, colour]) => ({ name, colour, values: batches.map((b) => b.left[reason]) }))
  .filter((s, i) => i < 3 || s.values.some(Boolean));

const spark = (b, ...parts) => parts.reduce((sum, part) => sum + (b.spark_ms[part] ?? 0), 0);
const ours = (b) => Object.values(b.shard_ms).reduce((a, c) => a + c, 0);
const commits = (b) => spark(b, "walCommit", "commitOffsets", "commitBatch");
const SPLIT = [
  ["join", "var(--s0)", (b) => (b.shard_ms.join ?? 0) + (b.shard_ms.watch ?? 0)],
  ["read rows", "var(--s5)", (b) => b.shard_ms.decode ?? 0],
  ["load state", "var(--s3)", (b) => b.shard_ms.load ?? 0],
  ["save state", "var(--s2)", (b) => b.shard_ms.save ?? 0],
  ["hand out", "var(--s1)", (b) => b.shard_ms.emit ?? 0],
  ["Spark: tasks, shuffle, sink", "var(--g0)", (b) => Math.max(0, spark(b, "addBatch") - ours(b))],
  ["Spark: commits", "var(--g1)", commits],
  ["Spark: offsets, plan, rest", "var(--g2)", (b) => Math.max(0, spark(b, "triggerExecution") - Math.max(ours(b), spark(b, "addBatch")) - commits(b))],
];
const split = (batches) => SPLIT.map(([name, colour, of]) => ({ name, colour, values: batches.map(of) }));

const measured = (value) => (batches) => (batches.some((b) => b.streams.some((s) => value(s) != null)) ? perStream(value)(batches) : []);

const CHARTS = [
  { id: "tuples", title: "Tuples in state", hint: "Dashed: what the cost model expects at the rates measured.", format: short, label: count, series: perStream((s) => s.stored, { predicted: (s) => s.predicted }) },
  { id: "bytes", title: "Bytes in state", hint: "Rows, lists and closed keys, by stream.", format: bytes, series: perStream((s) => s.bytes, { predicted: (s) => s.predicted_bytes }) },
  { id: "in", title: "Rows in, per second", format: short, series: perStream((s, b) => s.rows_in / b.interval) },
  { id: "out", title: "Rows out, per second", format: short, series: (batches) => [{ name: "results", colour: "var(--s2)", values: batches.map((b) => b.rows_out / b.interval) }] },
  { id: "left", title: "What left the state, and why", hint: "Tuples in a batch. Tuples of dead keys came after the other stream closed the key and were not stored.", format: short, label: count, layers: true, series: reasons },
  { id: "unjoined", title: "Late and violating rows", hint: "Not joined: behind the watermark of their stream, or against its punctuations.", format: short, label: count, series: (batches) => [
    { name: "late", colour: "var(--s1)", values: batches.map((b) => b.late) }, { name: "violating", colour: "var(--s4)", values: batches.map((b) => b.violations) }] },
  { id: "lag", title: "Lag", hint: "Event time behind the foremost stream.", format: seconds, series: perStream((s) => s.lag) },
  { id: "time", title: "Where the time of a batch goes", hint: "Coloured: the slowest shard. Grey: Spark around it.", format: millis, layers: true, firstMayLeave: true, series: split },
  { id: "scrambling", title: "Scrambling factor", hint: "Rows that a stream may come behind its sorted place, as the join assumes.", format: short, label: count, series: measured((s) => s.scrambling) },
  { id: "skew", title: "Skew", plain: true, format: (v) => (v == null ? "–" : String(Number(v.toFixed(2)))), series: (batches) => [{ name: "skew", colour: "var(--s0)", values: batches.map((b) => b.skew) }] },
];

const charts = CHARTS.map((about) => new Chart(about, hover, pick));
at("charts").prepend(...charts.filter((chart) => chart.about.id !== "skew").map((chart) => chart.element));
at("shards-card").append(charts.find((chart) => chart.about.id === "skew").element);

// ---------------------------------------------------------------- what is shown

const current = () => state.runs.get(state.run);
const batches = () => current()?.batches ?? [];
const chosen = () => state.pinned ?? batches().length - 1;

function hover(i) {
  if (i === state.hover) return;
  state.hover = i;
  point();
}

function pick(i) {
  if (i == null) return;
  state.pinned = i === batches().length - 1 ? null : i;
  point();
}

let due = false;
function render() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => { due = false; show(); });
}

function show() {
  heading();
  if (!batches().length) return;
  const slider = at("batch");
  slider.disabled = at("latest").disabled = false;
  slider.max = batches().length - 1;
  for (const chart of charts) chart.show(batches());
  at("hot-card").classList.toggle("wide", charts.filter((chart) => !chart.element.hidden).length % 2 === 0);
  point();
}

function point() {
  if (!batches().length) return;
  const i = Math.min(state.hover ?? chosen(), batches().length - 1), b = batches()[i];
  for (const chart of charts) chart.point(i, state.hover != null || state.pinned != null);
  at("batch").value = i;
  at("batch").setAttribute("aria-valuetext", `batch ${b.batch} at ${clock(b.at)}`);
  at("batch-label").textContent = `${count(b.batch)} of ${count(batches().at(-1).batch)} · ${clock(b.at)}`;
  at("latest").setAttribute("aria-pressed", state.pinned == null);
  at("tiles").replaceChildren(...tiles(batches(), i));
  at("shards").replaceChildren(shards(b));
  at("hot").replaceChildren(hot(b));
  at("streams").replaceChildren(...streams(b));
  at("batches").replaceChildren(...lastBatches(batches(), b));
  if (state.plan) drawPlan(at("plan"), state.plan, b);
}

function heading() {
  const facts = state.plan, run = current();
  if (facts) {
    at("title").textContent = facts.streams.map((s) => s.name).join(" ⋈ ");
    at("subtitle").textContent = `${facts.algorithm}, ${facts.how} join on ${facts.on.join(", ")}${run?.started?.name ? ` · ${run.started.name}` : ""}`;
    document.title = `${at("title").textContent} · Watersmeet`;
    if (!batches().length) drawPlan(at("plan"), facts, null);
  }
  const choice = at("run");
  at("run-choice").hidden = state.runs.size < 2;
  if (choice.options.length !== state.runs.size) {
    choice.replaceChildren(...[...state.runs].map(([id, r]) => make("option", { value: id }, r.started ? `from ${clock(r.started.at)}` : id.slice(0, 8))));
  }
  choice.value = state.run ?? "";
  const ended = run?.ended, first = batches()[0], last = batches().at(-1);
  at("error").hidden = !ended?.error;
  at("error").textContent = ended?.error ?? "";
  if (ended) showStatus(ended.error ? "failed" : "finished", `${ended.error ? "failed" : "finished"} at ${clock(ended.at)}`);
  else if (last && stale(last)) showStatus("waiting", `no batch since ${clock(last.at)}`);
  else if (run) showStatus("running", last ? `running, last batch at ${clock(last.at)}` : "running");
  else showStatus("waiting", facts ? "waiting for the first batch" : "waiting for events");
  if (first) {
    const hidden = first.batch > 0 ? ` Batches before ${count(first.batch)} are not on this page.` : "";
    at("footer").textContent = `${count(batches().length)} batches, ${day(first.at)} ${clock(first.at)} to ${clock(last.at)} by your clock.${hidden}`;
  }
}

// Whether a run has no recent batch: it waits for rows, or it ended without an event.
const stale = (last) => Date.now() - Date.parse(last.at) > 1000 * Math.max(60, 5 * last.interval);

function showStatus(kind, text) {
  if (state.lost) [kind, text] = ["lost", "connection lost; trying again"];
  const status = at("status");
  if (status.textContent !== text) status.textContent = text;
  status.dataset.state = kind;
}

function details(facts) {
  const rows = facts.streams.flatMap((s) => [make("dt", {}, s.name), make("dd", {}, s.retention), make("dt", {}, ""), make("dd", {}, s.late)]);
  if (facts.order) rows.push(make("dt", {}, "order"), make("dd", {}, facts.order.text));
  if (facts.where) rows.push(make("dt", {}, "where"), make("dd", {}, facts.where));
  if (facts.groups) rows.push(make("dt", {}, "groups"), make("dd", {}, `come out ${facts.groups.come}`));
  rows.push(make("dt", {}, "shards"), make("dd", {}, `${facts.shards}, ${facts.divided}`));
  return rows;
}

// ---------------------------------------------------------------- events

function take(event) {
  if (event.kind === "plan") {
    state.plan = event.plan;
    at("plan-details").replaceChildren(...details(event.plan));
    return;
  }
  if (!state.runs.has(event.run)) {
    state.runs.set(event.run, { started: null, batches: [], ended: null });
    state.run = event.run;
    state.pinned = state.hover = null;
  }
  const run = state.runs.get(event.run);
  if (event.kind === "batch") run.batches.push(event);
  else run[event.kind] = event;
}

at("batch").addEventListener("input", (event) => { state.hover = null; pick(Number(event.target.value)); });
at("latest").addEventListener("click", () => { state.pinned = null; point(); });
at("scrubber").addEventListener("submit", (event) => event.preventDefault());
at("run").addEventListener("change", (event) => { state.run = event.target.value; state.pinned = state.hover = null; render(); });
setInterval(heading, 5000);
new ResizeObserver(render).observe(at("charts"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);

const source = new EventSource("events");
source.addEventListener("message", (message) => { take(JSON.parse(message.data)); render(); });
source.addEventListener("caught-up", () => { document.body.dataset.ready = "yes"; render(); });
source.addEventListener("open", () => { state.lost = false; render(); });
source.addEventListener("error", () => { state.lost = true; render(); });
