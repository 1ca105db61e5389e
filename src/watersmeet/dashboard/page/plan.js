// The plan as a picture: streams, operators, the result; with the numbers of the selected batch.

import { bytes, count, draw, seconds, short } from "./format.js";

const LINE = 19, PAD = 12, GAP = 16, ARROW = 56;
const pen = document.createElement("canvas").getContext("2d");

const wide = (text, head) => {
  pen.font = head ? "620 14px ui-sans-serif, system-ui" : "13px ui-sans-serif, system-ui";
  return pen.measureText(text).width;
};

export function drawPlan(into, facts, batch) {
  const tree = resultOf(facts, batch);
  measure(tree);
  const room = into.clientWidth || 600;
  into.replaceChildren(width(tree) <= room ? across(tree) : down(tree, room));
}

function resultOf(facts, batch) {
  const rate = batch ? `${short(batch.rows_out / batch.interval)} rows/s` : "nothing yet";
  return { lines: [facts.groups ? "groups" : "results", rate], children: [joinOf(facts, batch, facts.inner ?? [], true)] };
}

function joinOf(facts, batch, inner, last) {
  const lines = [facts.algorithm, `${facts.how} join on ${facts.on.join(", ")}`];
  if (facts.groups) lines.push(`groups by ${facts.groups.by.join(", ")}`);
  lines.push(`${facts.shards} shard${facts.shards === 1 ? "" : "s"}`);
  if (batch && last) lines.push(`${count(batch.state.tuples)} tuples, ${bytes(batch.state.bytes)}`);
  const children = facts.streams.map((stream) => {
    const before = inner.find((j) => j.streams.map((s) => s.name).join("_") === stream.name);
    const counters = batch?.streams.find((s) => s.name === stream.name);
    return before ? joinOf(before, batch, inner, false) : streamOf(stream, counters, batch);
  });
  return { lines, children, join: true };
}

function streamOf(stream, counters, batch) {
  const lines = [stream.name, stream.window ? `window ${stream.window}` : "no window"];
  if (stream.delay && !stream.delay.startsWith("0 ")) lines[1] += `, delay ${stream.delay}`;
  if (stream.punctuations.length) lines.push(`punctuations: ${stream.punctuations.join(", ")}`);
  if (counters) {
    lines.push(`${short(counters.rows_in / batch.interval)} rows/s in, ${count(counters.stored)} kept`);
    if (counters.lag) lines.push(`${seconds(counters.lag)} behind`);
  }
  return { lines, children: [] };
}

function measure(node) {
  node.width = 2 * PAD + Math.max(...node.lines.map((line, i) => wide(line, i === 0)));
  node.height = 2 * PAD + LINE * node.lines.length - 6;
  node.children.forEach(measure);
}

const depth = (node) => 1 + Math.max(0, ...node.children.map(depth));
const atDepth = (node, d) => (d === 0 ? [node] : node.children.flatMap((child) => atDepth(child, d - 1)));

function width(tree) {
  let sum = 2;
  for (let d = 0; d < depth(tree); d++) sum += Math.max(...atDepth(tree, d).map((n) => n.width)) + (d ? ARROW : 0);
  return sum;
}

function across(tree) {
  const columns = depth(tree), rights = [];
  let x = width(tree) - 1;
  for (let d = 0; d < columns; d++) {
    rights.push(x);
    x -= Math.max(...atDepth(tree, d).map((n) => n.width)) + ARROW;
  }
  let below = 1;
  const place = (node, d) => {
    const inner = Math.max(...atDepth(tree, d).map((n) => n.width));
    node.x = rights[d] - inner;
    node.width = inner;
    node.children.forEach((child) => place(child, d + 1));
    if (node.children.length) {
      const first = node.children[0], last = node.children.at(-1);
      node.y = Math.max(1, (first.y + last.y + last.height) / 2 - node.height / 2);
      below = Math.max(below, node.y + node.height + GAP);
    } else {
      node.y = below;
      below += node.height + GAP;
    }
  };
  place(tree, 0);
  return picture(tree, width(tree), below - GAP + 1, (child, node) => {
    const [x1, y1, x2, y2] = [child.x + child.width, child.y + child.height / 2, node.x - 6, node.y + node.height / 2];
    const half = (x1 + x2) / 2;
    return [`M${x1} ${y1}C${half} ${y1} ${half} ${y2} ${x2} ${y2}`, `M${node.x} ${y2}l-8 -4v8z`];
  });
}

// On a narrow page: one box below the other, arrows along the left edge.
function down(tree, room) {
  let below = 1;
  const place = (node, d) => {
    node.children.forEach((child) => place(child, d + 1));
    node.x = 1 + 20 * (d + 1);
    node.width = Math.max(120, room - node.x - 1);
    node.y = below;
    below += node.height + GAP;
  };
  place(tree, -1);
  return picture(tree, room, below - GAP + 1, (child, node) => {
    const x = child.x - 8, y1 = child.y + child.height / 2, y2 = node.y + node.height / 2;
    if (!node.join) return [`M${child.x + 20} ${child.y + child.height}V${node.y - 6}`, `M${child.x + 20} ${node.y}l-4 -8h8z`];
    return [`M${child.x} ${y1}H${x}V${y2 > y1 ? node.y - 6 : y2}`, `M${x} ${node.y}l-4 -8h8z`];
  });
}

function picture(tree, width, height, flow) {
  const svg = draw("svg", { role: "img", width: Math.ceil(width), height: Math.ceil(height), viewBox: `0 0 ${Math.ceil(width)} ${Math.ceil(height)}` });
  const labels = [];
  const paint = (node) => {
    for (const child of node.children) {
      const [line, tip] = flow(child, node);
      svg.append(draw("path", { d: line }), draw("path", { class: "tip", d: tip }));
      paint(child);
    }
    svg.append(draw("rect", { x: node.x, y: node.y, width: node.width, height: node.height, rx: 8, class: node.join ? "join" : "stream" }));
    node.lines.forEach((line, i) => {
      svg.append(draw("text", { class: i ? "" : "head", x: node.x + PAD, y: node.y + PAD + LINE * i + 11 }, line));
    });
    labels.push(node.lines.join("; "));
  };
  paint(tree);
  svg.setAttribute("aria-label", `From the sources to the result: ${labels.join(". ")}`);
  return svg;
}
