"use strict";
// The report's table and time trees. Everything it shows is in the JSON of this page.

const report = JSON.parse(document.getElementById("report").textContent);
const shown = new Set(report.shown);
const LONG = 32; // characters; longer texts wrap in their cells
const state = { column: null, descending: false, text: "" };

const byId = (id) => document.getElementById(id);

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function cellText(value) {
  if (value === null || value === "") return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });
}

function rowsShown() {
  const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
  const places = report.rows.map((_, place) => place).filter((place) => {
    const cells = columnsShown().map((column) => report.rows[place][column]);
    const text = cells.map((value) => `${value} ${cellText(value)}`).join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  if (state.column === null) return places;
  const sign = state.descending ? -1 : 1;
  return places.sort((a, b) => sign * order(report.rows[a][state.column], report.rows[b][state.column]));
}

function order(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b));
}

const columnsShown = () => report.columns.map((_, place) => place).filter((place) => shown.has(place));

function kindOf(value) {
  if (typeof value === "number") return "number";
  return String(value ?? "").length > LONG ? "long" : "text";
}

function drawHead() {
  const row = element("tr");
  row.append(element("th", "time", { scope: "col" }));
  for (const place of columnsShown()) {
    const cell = element("th", undefined, { scope: "col" });
    const sorted = state.column === place;
    if (sorted) cell.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
    const mark = sorted ? (state.descending ? " ▼" : " ▲") : "";
    const button = element("button", report.columns[place] + mark, { type: "button" });
    button.addEventListener("click", () => sortBy(place));
    cell.append(button);
    row.append(cell);
  }
  byId("head").replaceChildren(row);
}

function drawBody() {
  const status = report.columns.indexOf("status");
  const rows = rowsShown().map((place) => {
    const row = element("tr", undefined, { class: report.rows[place][status] || "ok" });
    const button = element("button", "time", { type: "button", "aria-label": `Show the time tree of row ${place + 1}` });
    button.addEventListener("click", () => { drawTree(place, row); byId("tree").focus(); });
    const cell = element("td");
    cell.append(button);
    row.append(cell);
    for (const column of columnsShown()) {
      const value = report.rows[place][column];
      row.append(element("td", cellText(value), { class: kindOf(value) }));
    }
    return row;
  });
  byId("body").replaceChildren(...rows);
}

function sortBy(column) {
  state.descending = state.column === column && !state.descending;
  state.column = column;
  drawHead();
  drawBody();
  byId("head").querySelectorAll("button")[columnsShown().indexOf(column)].focus();
}

function drawColumns() {
  const boxes = report.columns.map((name, place) => {
    const label = element("label");
    const box = element("input", undefined, { type: "checkbox" });
    box.checked = shown.has(place);
    box.addEventListener("change", () => {
      if (box.checked) shown.add(place);
      else shown.delete(place);
      drawHead();
      drawBody();
    });
    label.append(box, ` ${name}`);
    return label;
  });
  byId("columns").replaceChildren(...boxes);
}

function drawTree(place, row) {
  for (const other of byId("body").children) other.removeAttribute("aria-current");
  row.setAttribute("aria-current", "true");
  const [tree, within] = report.places[place];
  const { spans, seconds } = report.trees[tree];
  const whole = seconds[0][within];
  const below = new Map();
  spans.forEach(([path], index) => {
    const parent = path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : path ? "" : null;
    if (!below.has(parent)) below.set(parent, []);
    below.get(parent).push(index);
  });
  const build = (index, depth) => {
    const [path, kind, resource, equation] = spans[index];
    const time = seconds[index][within];
    const share = whole ? time / whole : 0;
    const bar = element("span", undefined, { class: "bar" });
    const fill = element("i");
    fill.style.width = `${100 * Math.min(share, 1)}%`;
    const name = path ? path.slice(path.lastIndexOf("/") + 1) : "total";
    const about = [kind, resource, equation].filter(Boolean).join(", ");
    bar.append(fill, element("b", name), element("small", `${cellText(time)} s · ${(100 * share).toFixed(1)} % · ${about}`));
    const children = (below.get(path) || []).filter((child) => child !== index);
    const box = element(children.length ? "details" : "div", undefined, { class: "span" });
    if (!children.length) {
      box.append(bar);
      return box;
    }
    const summary = element("summary");
    summary.append(bar);
    box.append(summary, ...children.map((child) => build(child, depth + 1)));
    box.open = depth < 2;
    return box;
  };
  byId("tree-hint").textContent = `Row ${place + 1}: ${report.rows[place].slice(0, 3).join(", ")}`;
  byId("flame").replaceChildren(build(0, 0));
}

function quoted(value) {
  const text = value === null ? "" : String(value);
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function asCsv() {
  const columns = columnsShown();
  const rows = rowsShown().map((place) => columns.map((column) => quoted(report.rows[place][column])).join(","));
  return [columns.map((column) => report.columns[column]).join(","), ...rows].join("\n") + "\n";
}

function asLatex() {
  const columns = columnsShown();
  const escaped = (text) => String(text).replace(/[&%$#_{}]/g, "\\$&");
  const line = (cells) => cells.map(escaped).join(" & ") + " \\\\";
  const rows = rowsShown().map((place) => line(columns.map((column) => cellText(report.rows[place][column]))));
  const head = line(columns.map((column) => report.columns[column]));
  const shape = columns.map((column) => (typeof report.rows[0]?.[column] === "number" ? "r" : "l")).join("");
  return [`\\begin{tabular}{${shape}}`, "\\toprule", head, "\\midrule", ...rows, "\\bottomrule", "\\end{tabular}", ""].join("\n");
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const box = element("textarea");
    box.value = text;
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
  byId("message").textContent = `Copied ${rowsShown().length} rows as ${what}.`;
}

byId("filter").addEventListener("input", (event) => {
  state.text = event.target.value;
  drawBody();
  byId("message").textContent = `${rowsShown().length} of ${report.rows.length} rows.`;
});
byId("copy-csv").addEventListener("click", () => copy(asCsv(), "CSV"));
byId("copy-latex").addEventListener("click", () => copy(asLatex(), "LaTeX"));
drawHead();
drawBody();
drawColumns();
const first = report.rows.findIndex((row) => row[report.columns.indexOf("status")] === "ok");
if (first >= 0) drawTree(first, byId("body").children[first]);
