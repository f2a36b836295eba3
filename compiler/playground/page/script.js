// The page: its state is the function and what is chosen; the address holds all of it.
import { copyButton, find, html, make } from "./elements.js";
import { EXAMPLES } from "./examples.js";
import { start, work } from "./requests.js";
import { drawBlocks } from "./structure.js";

const STYLES = {
  math: "Mathematics", vec: "Vec", unicode: "Text", latex: "LaTeX", numpy: "NumPy", index: "Index",
};
const LABELS = { ...STYLES, "vec-latex": "Vec LaTeX", jax: "JAX", torch: "PyTorch" };
const STRUCTURES = ["", "symmetric", "spd", "lower", "upper", "diagonal", "orthogonal", "positive",
  "nonneg", "simplex", "invertible"];
const text = find("#text"), rows = find("#inputs tbody"), status = find("#status");
const state = { text: "", inputs: {}, names: [], wrt: null, style: "math", sizes: {} };
let known = null;  // what the server said of the function: sizes, scalar, wrt

// Inputs

function request(name, extra, receive) {
  const inputs = Object.fromEntries(state.names.map((input) => [input, declared(input)]));
  const wrt = state.names.filter((input) => state.wrt?.includes(input));
  const guessed = state.names.filter((input) => state.inputs[input].guessed);
  return start(name, { text: state.text, inputs, guessed, wrt, ...extra }, receive);
}

function declared(name) {
  const { sizes, structure } = state.inputs[name];
  return `${sizes} ${structure}`.trim();
}

function showInputs() {
  rows.replaceChildren(...state.names.map((name) => {
    const input = state.inputs[name];
    const sizes = make("input", { value: input.sizes, spellcheck: false, placeholder: "scalar", size: 8 });
    sizes.setAttribute("aria-label", `Sizes of ${name}`);
    sizes.autocapitalize = "off";
    sizes.oninput = () => { input.sizes = sizes.value; input.guessed = false; changed(); };
    const structure = make("select", {}, ...STRUCTURES.map((value) => new Option(value || "—", value)));
    structure.setAttribute("aria-label", `Structure of ${name}`);
    structure.value = input.structure;
    structure.onchange = () => {
      input.structure = structure.value;
      input.guessed &&= !structure.value;
      changed(0);
    };
    const wrt = make("input", { type: "checkbox", checked: state.wrt === null || state.wrt.includes(name) });
    wrt.setAttribute("aria-label", `Differentiate by ${name}`);
    wrt.onchange = () => {
      const chosen = new Set(state.wrt ?? state.names);
      if (wrt.checked) chosen.add(name); else chosen.delete(name);
      if (!state.names.some((candidate) => chosen.has(candidate))) { wrt.checked = true; return; }
      state.wrt = state.names.every((candidate) => chosen.has(candidate)) ? null : [...chosen];
      changed(0);
    };
    const head = make("th", { scope: "row" }, name);
    return make("tr", {}, head, ...[sizes, structure, wrt].map((cell) => make("td", {}, cell)));
  }));
}

function setInputs(names, sizes) {
  const before = state.names.map((name) => `${name}: ${declared(name)}`).join();
  for (const name of names) {
    state.inputs[name] ??= { sizes: "", structure: "", guessed: true };
    if (state.inputs[name].guessed) state.inputs[name].sizes = sizes[name] ?? "";
  }
  const isStale = state.names.some((name) => !names.includes(name));
  state.names = names;
  if (before === names.map((name) => `${name}: ${declared(name)}`).join()) return false;
  if (state.wrt && !names.some((name) => state.wrt.includes(name))) state.wrt = null;
  showInputs();
  save();
  return isStale;
}

// Formulas

let timer, shown;

function changed(wait = 120) {
  save();
  clearTimeout(timer);
  timer = setTimeout(derive, wait);
}

async function derive() {
  const began = performance.now();
  const kinds = [];
  let finished = false;
  document.body.classList.add("working");
  await request("derive", {}, (answer) => {
    if (answer.names?.length && setInputs(answer.names, answer.inputs)) {
      derive();  // again, without the inputs that the text no longer has
    } else if (answer.declared) {
      known = answer.declared;
      showError(null);
      showRemarks(answer.remarks);
      showPython(answer.python);
    } else if (answer.kind) {
      kinds.push(answer);
      showFormulas(kinds, false);
      if (kinds.length === 1) status.textContent = `f${known.signature}`;
    } else if (answer.steps) {
      showSteps(answer.steps);
    } else if (answer.done) {
      finished = true;
      showFormulas(kinds, true);
      status.textContent = `f${known.signature}, derived in ${Math.round(performance.now() - began)} ms`;
    } else if (answer.error) {
      finished = true;
      showError(answer);
      if (kinds.length) find("#results").classList.remove("stale");  // it broke off among its formulas
    }
  });
  if (!finished) return;
  document.body.classList.remove("working");
  refresh();
}

function showRemarks(remarks) {
  find("#remarks").replaceChildren(...remarks.map((remark) => make("li", {}, remark)));
}

function showError(error) {
  const place = find("#error"), before = find("#results");
  place.hidden = !error;
  text.setAttribute("aria-invalid", Boolean(error));
  before.classList.toggle("stale", Boolean(error));
  if (!error) return;
  status.textContent = "";
  showRemarks([]);
  const lines = error.text.split("\n");
  const caret = lines.length > 2 && /^ *\^+$/.test(lines.at(-1));
  place.replaceChildren(caret ? lines.slice(0, -2).join("\n") : error.text);
  if (!caret) return;
  const line = lines.at(-2).slice(4), [from, to] = [lines.at(-1).indexOf("^") - 4, lines.at(-1).length - 4];
  const mark = make("mark", {}, line.slice(from, to) || " ");
  place.append("\n\n", line.slice(0, from), mark, line.slice(to), "\n", " ".repeat(from),
    make("b", { ariaHidden: "true" }, "^".repeat(to - from)));
}

function showFormulas(kinds, complete) {
  shown = kinds;
  const cards = kinds.map((kind) => make("article", { className: "card formulas", id: `kind-${kind.kind}` },
    make("h3", {}, kind.title), ...kind.formulas.map((formula) => showFormula(formula))));
  const old = find("#formulas");
  if (!complete && old.children.length > cards.length)  // what is there stays until its like has come
    cards.push(...[...old.children].slice(cards.length));
  old.replaceChildren(...cards);
}

function showFormula(formula) {
  const name = formula.title;
  const body = formula[state.style] ? html("div", "math", formula[state.style])
    : make("pre", { className: "code" }, formula.texts[state.style]);
  body.tabIndex = 0;  // it scrolls
  body.setAttribute("role", "group");
  body.setAttribute("aria-label", name);
  const copies = Object.entries(formula.texts).map(([style, content]) =>
    copyButton(LABELS[style], content, `${name} as ${LABELS[style]}`));
  return make("div", { className: "formula" }, body,
    make("div", { className: "copies", role: "group", ariaLabel: `Copy ${name}` }, ...copies));
}

function showSteps(derivations) {
  find("#steps .body").replaceChildren(...derivations.map((derivation) => {
    const lines = derivation.lines.map((line) =>
      make("li", {}, html("div", "math", line.math), html("div", "reason", line.reason)));
    const title = `By ${derivation.by} `;
    const copy = copyButton("Copy as text", derivation.text, `Derivation by ${derivation.by} as text`);
    return make("div", {}, make("h3", {}, title, copy), make("ol", { className: "steps" }, ...lines));
  }));
}

function showCode(place, code, title) {
  const copies = make("div", { className: "copies one" }, copyButton("Copy", code.text, title));
  const shownCode = { className: "code", tabIndex: 0, ariaLabel: title };
  find(`${place} .body`).replaceChildren(copies, make("pre", shownCode, html("code", "", code.html)));
}

function showPython(code) { showCode("#python", code, "Declaration in Python"); }

// What is derived on request, again when the function has changed while it is open

function refresh() {
  for (const place of ["#verify", "#measure", "#package"]) {
    work[place.slice(1)]?.abort();
    find(`${place} .outcome`).replaceChildren();
    find(`${place} .start`).textContent = { "#verify": "Verify", "#measure": "Measure", "#package": "Build" }[place];
  }
  if (!find("#error").hidden) return;
  showSizes();
  if (find("#structure").open) showStructure();
  find("#module .body").replaceChildren();
  if (find("#module").open) showModule();
}

function showSizes() {
  find("#structure .kind").textContent = known.scalar ? "Hessian" : "Jacobian";
  find("#sizes").replaceChildren(...known.sizes.map((name, number) => {
    state.sizes[name] ??= known.sizes.length > 2 ? 2 + (number % 3) : 5 - number;
    const output = make("output", {}, String(state.sizes[name]));
    const slider = make("input", { type: "range", min: 1, max: 16, value: state.sizes[name], id: `size-${name}` });
    slider.setAttribute("aria-label", `Size ${name}`);
    slider.oninput = () => {
      state.sizes[name] = slider.valueAsNumber;
      output.textContent = slider.value;
      save();
      showStructure();
    };
    return make("label", {}, `${name} = `, output, slider);
  }));
}

let waiting = false;

async function showStructure() {
  if (work.structure) { waiting = true; return; }
  const sizes = Object.fromEntries(known.sizes.map((name) => [name, state.sizes[name]]));
  await request("structure", { sizes }, (answer) => {
    if (answer.blocks) drawBlocks(find("#blocks"), answer.blocks);
    if (answer.error) find("#blocks").replaceChildren(make("p", { className: "bad" }, answer.text));
  });
  if (waiting) { waiting = false; showStructure(); }
}

async function showModule() {
  const body = find("#module .body");
  body.replaceChildren(make("p", { className: "note" }, "Generating …"));
  await request("module", {}, (answer) => {
    if (answer.module) showCode("#module", answer.module, "Generated module");
    if (answer.error) body.replaceChildren(make("p", { className: "bad" }, answer.text));
  });
}

function onRequest(name, label, receive) {
  const button = find(`#${name} .start`), outcome = find(`#${name} .outcome`);
  button.onclick = async () => {
    if (work[name]) {
      work[name].abort();
      button.textContent = label;
      outcome.replaceChildren();
      return;
    }
    const began = performance.now();
    const line = make("p", { className: "progress" }, "Starting …");
    const clock = make("span", { className: "clock", ariaHidden: "true" });
    const tick = setInterval(() => {
      clock.textContent = `${((performance.now() - began) / 1000).toFixed(0)} s`;
    }, 500);
    outcome.replaceChildren(make("div", { className: "running" }, line, clock));
    button.textContent = "Stop";
    await request(name, {}, (answer) => {
      if (answer.progress) line.textContent = answer.progress;
      else if (answer.error) outcome.replaceChildren(make("p", { className: "bad" }, answer.text));
      else if (!answer.done) receive(answer, outcome);
    });
    clearInterval(tick);
    if (!work[name]) { button.textContent = label; find(".running", outcome)?.remove(); }
  };
}

onRequest("verify", "Verify", (answer, outcome) => outcome.append(html("div", "report", answer.report)));
onRequest("measure", "Measure", (answer, outcome) => {
  find(".plot", outcome)?.remove();
  outcome.append(html("div", "plot", answer.plot));
});
onRequest("package", "Build", (answer, outcome) => {
  const bytes = Uint8Array.from(atob(answer.zip), (letter) => letter.charCodeAt(0));
  const href = URL.createObjectURL(new Blob([bytes], { type: "application/zip" }));
  const title = `derivatrix_f.zip (${Math.round(bytes.length / 1024)} kB)`;
  const link = make("a", { href, download: "derivatrix_f.zip" }, title);
  outcome.append(make("p", {}, answer.summary, " ", link));
  link.click();
});

// State in the address

function save() {
  const inputs = state.names.map((name) => `${name}: ${declared(name)}`.trim()).join("; ");
  const entries = { f: state.text, in: inputs };
  if (state.wrt) entries.wrt = state.names.filter((name) => state.wrt.includes(name)).join(",");
  if (state.style !== "math") entries.style = state.style;
  const sizes = (known?.sizes ?? []).filter((name) => state.sizes[name]);
  if (find("#structure").open) entries.sizes = sizes.map((name) => `${name}=${state.sizes[name]}`).join(",");
  const open = [...document.querySelectorAll("#results details[open]")].map((details) => details.id);
  if (open.length) entries.open = open.join(",");
  history.replaceState(null, "", `#${new URLSearchParams(entries)}`);
}

function restore() {
  const entries = new URLSearchParams(location.hash.slice(1));
  if (!entries.get("f")) return false;
  state.text = text.value = entries.get("f");
  state.inputs = {};
  for (const entry of (entries.get("in") ?? "").split(";")) {
    const [name, rest = ""] = entry.split(":").map((part) => part.trim());
    const words = rest.split(/\s+/).filter(Boolean);
    const structure = STRUCTURES.includes(words.at(-1)) ? words.pop() : "";
    if (name) state.inputs[name] = { sizes: words.join(" "), structure };
  }
  state.names = Object.keys(state.inputs);
  state.wrt = entries.get("wrt")?.split(",") ?? null;
  state.style = entries.get("style") in STYLES ? entries.get("style") : "math";
  for (const entry of (entries.get("sizes") ?? "").split(",")) {
    const [name, size] = entry.split("=");
    if (Number(size) >= 1 && Number(size) <= 16) state.sizes[name] = Math.round(Number(size));
  }
  const open = (entries.get("open") ?? "").split(",");
  for (const details of document.querySelectorAll("#results details"))
    details.open = open.includes(details.id);
  showInputs();
  showStyles();
  return true;
}

// Beginning

function showStyles() {
  const chosen = Object.entries(STYLES).map(([value, label]) => {
    const radio = make("input", { type: "radio", name: "style", value, checked: value === state.style });
    radio.onchange = () => { state.style = value; save(); if (shown) showFormulas(shown, true); };
    return make("label", {}, radio, make("span", {}, label));
  });
  find("#styles").replaceChildren(...chosen);
}

function load(example) {
  const entries = { f: example.f, in: example.in, ...(example.wrt && { wrt: example.wrt }) };
  if (state.style !== "math") entries.style = state.style;
  const open = [...document.querySelectorAll("#results details[open]")].map((details) => details.id);
  if (open.length) entries.open = open.join(",");
  history.pushState(null, "", `#${new URLSearchParams(entries)}`);  // the way back leads to what was there
  restore();
  derive();
}

find("#examples .chips").append(...EXAMPLES.map((example) => {
  const chip = make("button", { type: "button", className: "chip", title: example.f }, example.title);
  chip.onclick = () => load(example);
  return chip;
}));
find("#link").onclick = async () => {
  await navigator.clipboard.writeText(location.href);
  status.textContent = "Copied: a link that holds all of this page's state";
};
text.oninput = () => { state.text = text.value; changed(); };
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    find("#verify").open = true;
    if (!work.verify) find("#verify .start").click();
    find("#verify").scrollIntoView({ block: "nearest" });
  }
});
for (const details of document.querySelectorAll("#results details"))
  details.addEventListener("toggle", () => {
    save();
    if (!details.open || !known) return;
    if (details.id === "structure") showStructure();
    if (details.id === "module" && !find(".code", details)) showModule();
  });
addEventListener("hashchange", () => { if (restore()) derive(); });
if (matchMedia("(max-width: 700px)").matches) find("#examples").open = false;
showStyles();
if (restore()) derive(); else load(EXAMPLES[0]);
