// Small helpers for building the page: elements, numbers in words, the one shared tooltip.
// All text from files reaches the page through textContent only.

const SVG_NS = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "text") node.textContent = value;
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, String(value));
  }
  for (const child of children) if (child) node.append(child);
  return node;
}

function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG_NS, tag), attributes, children);
}

// Three significant digits, never in exponent notation unless the number is tiny.
function number(value, digits = 3) {
  if (value === null || value === undefined) return "not measured";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4) return value.toExponential(1);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(digits)));
}

// Rounded to the first digit of the standard error, as the command line does it.
function plusMinus(value, stderr) {
  if (stderr === null || value === null) return number(value);
  const decimals = Math.max(0, -Math.floor(Math.log10(stderr)));
  if (decimals > 6) return `${number(value)} \u00b1 ${stderr.toExponential(0)}`;
  return `${value.toFixed(decimals)} \u00b1 ${stderr.toFixed(decimals)}`;
}

function percent(value) {
  return value === null || value === undefined ? "n/a" : (100 * value).toFixed(1) + " %";
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "not recorded";
  if (seconds < 90) return number(seconds, 2) + " s";
  if (seconds < 5400) return (seconds / 60).toFixed(1) + " min";
  return (seconds / 3600).toFixed(1) + " h";
}

function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

// Cuts the middle, because both the prefix and the number at the end tell variables apart.
function shorten(text, limit) {
  if (text.length <= limit) return text;
  const tail = Math.floor((limit - 1) / 3);
  return text.slice(0, limit - 1 - tail) + "\u2026" + text.slice(text.length - tail);
}

function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function factList(entries, className = "facts") {
  const items = entries.map(([term, value]) => el("div", {}, el("dt", { text: term }), el("dd", { text: value })));
  return el("dl", { class: className }, ...items);
}

function table(headers, rows, className = "") {
  const head = el("tr", {}, ...headers.map((text) => el("th", { text, scope: "col" })));
  return el("table", { class: className }, el("thead", {}, head), el("tbody", {}, ...rows));
}

function showTooltip(lines, x, y) {
  const box = document.getElementById("tooltip");
  box.replaceChildren(...lines.map(([text, className]) => el("div", { text, class: className })));
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const left = x + 16 + width > window.innerWidth ? x - width - 14 : x + 16;
  const top = y + 18 + height > window.innerHeight ? y - height - 12 : y + 18;
  box.style.left = Math.max(4, left) + "px";
  box.style.top = Math.max(4, top) + "px";
}

function hideTooltip() {
  document.getElementById("tooltip").hidden = true;
}
