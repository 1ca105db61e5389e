// Numbers, times and sizes as text, and elements built without markup: no text of an event is parsed as HTML.

export const count = (n) => (n == null ? "–" : Math.round(n).toLocaleString("en"));

export const short = (n) => {
  if (n == null) return "–";
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(n) >= size) return `${trim(n / (unit === "k" ? 1e3 : size))}${unit}`;
  }
  return Math.abs(n) >= 100 || Number.isInteger(n) ? count(n) : trim(n);
};

const trim = (n) => Number(n.toPrecision(3)).toLocaleString("en");

export const bytes = (n) => {
  if (n == null) return "–";
  for (const [size, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (n >= size) return `${trim(n / size)} ${unit}`;
  }
  return `${count(n)} B`;
};

export const millis = (ms) => (ms == null ? "–" : ms >= 1000 ? `${trim(ms / 1000)} s` : `${trim(ms)} ms`);

export const seconds = (s) => {
  if (s == null) return "–";
  if (s >= 5400) return `${trim(s / 3600)} h`;
  return s >= 90 || s === 60 ? `${trim(s / 60)} min` : s >= 1 || s === 0 ? `${trim(s)} s` : `${trim(s * 1000)} ms`;
};

export const percent = (share) => `${(share * 100).toFixed(share >= 0.1 ? 0 : share >= 0.01 ? 1 : 2)} %`;

export const clock = (at) => new Date(at).toLocaleTimeString("en-GB");

export const day = (at) => new Date(at).toLocaleDateString("sv");

export const stamp = (micros) =>
  micros == null ? "–" : new Date(micros / 1000).toISOString().replace("T", " ").slice(0, 19);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

export function draw(tag, attributes = {}, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

export const colour = (i) => `var(--s${i % 8})`;
