// The page of `gipo watch`. Once a second it asks for what has changed since, and draws anew what is on the screen.
"use strict";

const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8f7dd6", "#8a8a8a", "#a6761d", "#66a61e"];
const DARK = ["#4aa8e0", "#ff8c42", "#2cc295", "#e39ac4", "#f2c14e", "#9ad5f5", "#b3a5f0", "#b0b0b0", "#d1a24a", "#97d34f"];
const MOST_SHOWN = 8; // runs that are overlaid before anybody has chosen
const AGES = 8, SIZES = 8;
const SIZE_NAMES = ["0", "≤0.001", "≤0.01", "≤0.1", "≤0.3", "≤1", "≤3", ">3"];
const SIDE = [0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 3, 5, 10];
const EDGES = [...SIDE.map(e => -e).reverse(), 0, ...SIDE];
const SWITCH_ON = "This run was trained without histograms. Switch them on with log.histograms = true in its config, or --set log.histograms=true.";
const FIGURES = {
  share_old: "share of the gradient from old samples", old_frac: "fraction of old samples", d95: "95% of |log ratio| (d95)",
  trust_d95: "95% of |log ratio| about the centre", kl: "KL from the data", entropy: "entropy (nats)", dead_frac: "DeadFrac",
  near_zero_frac: "NearZeroFrac", suppressed_frac: "SuppressedFrac", ess_norm: "ESS, normalised", ess_old_norm: "ESS of old samples, normalised",
  clip_frac: "ClipFrac", gap_mean: "mean gap (updates)", explained_variance: "explained variance", policy_loss: "policy loss",
  value_loss: "value loss", policy_grad_norm: "policy gradient norm", advantage_std: "deviation of advantages",
  replay_size: "transitions in the replay", success_rate: "success rate",
};

const dark = matchMedia("(prefers-color-scheme: dark)");
const colours = () => dark.matches ? DARK : LIGHT;
const $ = id => document.getElementById(id);
const page = {
  version: 0, kind: "", suite: null, columns: null, standings: {}, tracks: {}, multipliers: {},
  behind: false, shown: null, focus: "", regime: "", cell: null, x: "env_steps", figure: "share_old", speed: "steps", map: "share", moment: null,
};

// Numbers in words

function words(value, digits = 3) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(1);
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(digits)));
}
function percent(value) { return value === null || value === undefined ? "–" : `${Math.floor(100 * value)}%`; }
function inTime(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.ceil(seconds), m = Math.floor(s / 60), h = Math.floor(m / 60);
  return h >= 48 ? `${Math.floor(h / 24)} d ${h % 24} h` : h ? `${h} h ${m % 60} min` : m ? `${m} min ${s % 60} s` : `${s} s`;
}
function node(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) key === "style" ? made.style.cssText = value : made.setAttribute(key, value);
  made.append(...children);
  return made;
}
function bar(fraction) { return node("div", { class: "bar" }, node("i", { style: `width:${100 * (fraction || 0)}%` })); }
function mean(values) {
  const known = values.filter(v => v !== null && v !== undefined);
  return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
}

// What has come

function column(name, track, key) {
  const held = page.tracks[name]?.[track];
  return held ? held.columns[page.columns[track].indexOf(key)] : [];
}
function take(name, key, delta) {
  const tracks = page.tracks[name] ||= {};
  const held = tracks[key];
  if (!held || delta.start === 0) {
    tracks[key] = delta;
    return;
  }
  held.columns.forEach((values, i) => { values.length = delta.start; for (const v of delta.columns[i]) values.push(v); });
  Object.assign(held, { generation: delta.generation, whole: delta.whole, pending: delta.pending });
}
function has(name, key) {
  const held = page.tracks[name]?.[key];
  return held ? [held.generation, held.whole, held.pending] : [0, 0, 0];
}
function request() {
  const runs = {};
  for (const name of page.shown || []) {
    runs[name] = Object.fromEntries(["curve", "evaluations", "times"].map(key => [key, has(name, key)]));
    if (name === page.focus) for (const key of ["ages", "episodes"]) runs[name][key] = has(name, key);
  }
  return { version: page.version, runs };
}
async function post(path, body) {
  const answer = await fetch(path, { method: "POST", body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}
function receive(answer) {
  if (answer.all) {
    Object.assign(page, { kind: answer.kind, suite: answer.suite, columns: answer.columns, standings: {}, tracks: {} });
    $("path").textContent = `gipo watch ${answer.path}`;
    page.regime ||= answer.suite?.regimes[0] ?? "";
  }
  page.version = answer.version;
  const changed = Object.keys(answer.standings);
  for (const name of changed) {
    if (Object.keys(answer.standings[name]).length) {
      if (page.standings[name]?.state !== answer.standings[name].state) page.behind = true; // what a run ends with is drawn at once
      page.standings[name] = answer.standings[name];
    } else { // vanished
      delete page.standings[name];
      delete page.tracks[name];
    }
  }
  for (const [name, tracks] of Object.entries(answer.tracks)) {
    for (const [key, delta] of Object.entries(tracks)) take(name, key, delta);
    if (Object.keys(tracks).length) changed.push(name);
  }
  trouble(answer.late > 5 ? `These figures are ${Math.round(answer.late)} seconds old: the files are slow to read, or this machine is busy.` : "");
  return changed;
}
function trouble(text) {
  $("trouble").textContent = text;
  $("trouble").hidden = !text;
}

// Which runs are on the page

function cellRuns() {
  const [regime, task, method] = page.cell;
  return page.suite.runs.filter(r => r.regime === regime && r.task === task && r.method === method).map(r => r.name);
}
function candidates() {
  if (page.kind === "suite") return page.cell ? cellRuns() : [];
  return Object.keys(page.standings).sort();
}
function choose() {
  const all = candidates();
  if (page.shown === null) {
    const begun = all.filter(n => page.standings[n] && page.standings[n].state !== "waiting");
    const running = begun.filter(n => page.standings[n].state === "running");
    page.shown = [...running, ...begun.filter(n => !running.includes(n))].slice(0, MOST_SHOWN);
    if (!page.shown.length) page.shown = null;
  }
  const shown = page.shown?.filter(n => all.includes(n)) ?? [];
  if (page.shown) page.shown = shown;
  if (!shown.includes(page.focus)) page.focus = shown[0] ?? "";
  for (const name of Object.keys(page.tracks)) { // a run that is no longer shown takes no memory
    if (!shown.includes(name)) delete page.tracks[name];
    else if (name !== page.focus) { delete page.tracks[name].ages; delete page.tracks[name].episodes; }
  }
}
function colourOf(name) { return colours()[Math.max(0, candidates().indexOf(name)) % LIGHT.length]; }
function shortName(name) {
  const run = page.suite?.runs.find(r => r.name === name);
  return run ? `seed ${run.seed}` : name;
}
function readHash() {
  let cell = null;
  try {
    cell = location.hash.length > 1 ? JSON.parse(decodeURIComponent(location.hash.slice(1))) : null;
  } catch { /* another page's */ }
  page.cell = Array.isArray(cell) && cell.length === 3 ? cell : null;
  page.shown = null;
  page.moment = null;
}

// Head, tiles, tables

function showState(element, standing) {
  element.hidden = !standing;
  if (!standing) return;
  element.className = `state ${standing.state}`;
  element.textContent = standing.state;
  element.title = standing.why;
}
function showHead() {
  const one = page.shown?.length === 1 && candidates().length === 1 ? page.standings[page.focus] : null;
  const part = page.kind !== "suite" ? Object.keys(page.standings) : page.cell ? cellRuns() : page.suite.runs.map(r => r.name);
  const all = part.map(name => page.standings[name] ?? { state: "waiting" });
  const done = all.filter(s => s.state === "finished" || s.state === "solved").length;
  const running = all.filter(s => s.state === "running").length;
  const failed = all.filter(s => s.state === "failed" || s.state === "killed").length;
  const many = `${all.length} runs: ${done} finished, ${running} running${failed ? `, ${failed} failed or killed` : ""}`;
  $("back").hidden = !page.cell;
  showState($("state"), one);
  $("progress").hidden = !one && page.kind !== "suite";
  let fraction = one?.fraction;
  if (one) {
    $("title").textContent = one.name;
    $("about").textContent = [one.env, one.surrogate, one.mode, one.seed === null ? null : `seed ${one.seed}`, one.why].filter(Boolean).join(" · ");
  } else if (page.kind === "suite") {
    $("title").textContent = page.cell ? `${page.cell[1]}, ${page.cell[2]}` : page.suite.name;
    fraction = all.length ? all.reduce((sum, s) => sum + (s.fraction || 0), 0) / all.length : 0;
    const left = page.cell ? null : timeLeft(fraction);
    $("about").textContent = `${page.cell && page.cell[0] !== "-" ? `${page.cell[0]} · ` : ""}${many}${left === null || !running ? "" : ` · about ${inTime(left)} left`}`;
  } else {
    $("title").textContent = "Runs";
    $("about").textContent = many;
  }
  $("progress").firstElementChild.style.width = `${100 * (fraction || 0)}%`;
  $("progress").setAttribute("aria-valuenow", Math.round(100 * (fraction || 0)));
  document.title = `${fraction === undefined || fraction === null ? "" : `${percent(fraction)} `}${$("title").textContent} · gipo watch`;
}
const progressSeen = []; // of the whole suite: time and fraction, of the last minutes
function timeLeft(fraction) {
  const now = performance.now() / 1000;
  if (progressSeen.at(-1)?.[1] !== fraction) progressSeen.push([now, fraction]);
  while (progressSeen.length > 2 && now - progressSeen[0][0] > 300) progressSeen.shift();
  const [then, before] = progressSeen[0];
  return now - then > 5 && fraction > before ? (1 - fraction) * (now - then) / (fraction - before) : null;
}
function showTiles() {
  const s = page.standings[page.focus];
  $("tiles").hidden = !s || candidates().length > 1; // the list says it of several
  if ($("tiles").hidden) return;
  const over = s.state !== "running";
  const tiles = [
    ["training return", words(s.train)], ["greedy return", words(s.greedy)], ["success rate", s.success === null ? null : percent(s.success)],
    ["env steps", words(s.env_steps)], [`of ${words(s.updates)} updates`, words(s.update)], ["env steps/s", words(s.steps_rate)],
    ["updates/s", words(s.updates_rate)], over ? ["seconds in all", words(s.seconds)] : ["time left", inTime(s.left)], ["episodes", words(s.episodes)],
  ].filter(([, value]) => value !== null);
  $("tiles").replaceChildren(...tiles.map(([name, value]) => node("div", {}, node("b", {}, value), node("span", {}, name))));
}
function showList() {
  const all = candidates();
  $("list").hidden = all.length < 2;
  if (all.length < 2) return;
  const head = ["run", "state", "progress", "training return", "greedy return", "env steps/s", "time left"];
  const rows = all.map(name => {
    const s = page.standings[name] || { state: "waiting" };
    const box = node("input", { type: "checkbox", "aria-label": `show ${name}` });
    box.checked = page.shown?.includes(name) ?? false;
    box.onchange = () => {
      page.shown = box.checked ? [...(page.shown || []), name] : page.shown.filter(n => n !== name);
      page.focus = box.checked ? name : page.focus;
      redraw();
      poll();
    };
    const label = node("label", {}, box, node("span", { class: "dot", style: `background:${colourOf(name)}` }), shortName(name));
    const state = node("span");
    showState(state, s);
    return node("tr", {}, node("td", {}, label), node("td", {}, state), node("td", {}, bar(s.fraction)), node("td", {}, words(s.train)),
      node("td", {}, words(s.greedy)), node("td", {}, words(s.steps_rate)), node("td", {}, s.state === "running" ? inTime(s.left) : ""));
  });
  const focused = document.activeElement?.getAttribute("aria-label");
  $("list").replaceChildren(node("table", {}, node("thead", {}, node("tr", {}, ...head.map(h => node("th", {}, h)))), node("tbody", {}, ...rows)));
  if (focused) $("list").querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
}
function cellOf(task, method, range) {
  const names = page.suite.runs.filter(r => r.regime === page.regime && r.task === task && r.method === method).map(r => r.name);
  const runs = names.map(n => page.standings[n]).filter(Boolean);
  const count = state => runs.filter(s => s.state === state).length;
  const done = count("finished") + count("solved"), bad = count("failed") + count("killed");
  const value = mean(runs.map(s => s.train));
  const fraction = names.length ? runs.reduce((sum, s) => sum + (s.fraction || 0), 0) / names.length : 0;
  const place = value === null || !(range[1] > range[0]) ? 0 : (value - range[0]) / (range[1] - range[0]);
  const text = bad ? `${bad} failed or killed` : count("running") ? `${count("running")} running` : done ? `${done} of ${names.length} done` : "waiting";
  const link = node("a", {
    href: `#${encodeURIComponent(JSON.stringify([page.regime, task, method]))}`, class: bad ? "bad" : "",
    style: `background:color-mix(in srgb, var(--accent) ${Math.round(28 * place)}%, transparent)`, title: `${task}, ${method}: mean training return of its runs`,
  }, node("b", {}, words(value)), bar(fraction), node("small", {}, text));
  return node("td", {}, link);
}
function showGrid() {
  const open = page.kind === "suite" && !page.cell;
  $("grid").hidden = !open;
  if (!open) return;
  const { tasks, methods, regimes } = page.suite;
  const value = (task, method) => mean(page.suite.runs.filter(r => r.regime === page.regime && r.task === task && r.method === method).map(r => page.standings[r.name]?.train));
  const rows = tasks.map(task => {
    const values = methods.map(m => value(task, m)).filter(v => v !== null);
    const range = [Math.min(...values), Math.max(...values)];
    return node("tr", {}, node("th", {}, task), ...methods.map(m => cellOf(task, m, range)));
  });
  const tabs = regimes.length < 2 ? [] : [node("div", { class: "tabs" }, ...regimes.map(r => {
    const tab = node("button", { "aria-pressed": r === page.regime }, r);
    tab.onclick = () => { page.regime = r; showGrid(); };
    return tab;
  }))];
  const focused = document.activeElement?.getAttribute("href");
  $("grid").replaceChildren(...tabs, node("table", { class: "cells" }, node("thead", {}, node("tr", {}, node("th"), ...methods.map(m => node("th", {}, m)))), node("tbody", {}, ...rows)),
    node("p", { class: "quiet" }, "Mean training return of the runs of each cell; the stronger the colour, the better within a task. Open a cell for its curves."));
  if (focused?.startsWith("#")) $("grid").querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
}
function showFaults() {
  const items = [];
  for (const name of page.shown || []) {
    for (const fault of page.standings[name]?.faults || []) items.push(page.shown.length > 1 ? `${shortName(name)}: ${fault}` : fault);
  }
  $("faults").hidden = !items.length;
  $("faults").lastElementChild.replaceChildren(...items.slice(0, 100).map(text => node("li", {}, text)));
}
function showChoices() {
  const names = page.shown || [];
  $("choices").hidden = !names.length;
  $("focus_label").hidden = names.length < 2;
  const key = names.join("\n");
  if ($("focus").dataset.names !== key) {
    $("focus").dataset.names = key;
    $("focus").replaceChildren(...names.map(n => node("option", { value: n }, shortName(n))));
  }
  $("focus").value = page.focus;
  $("panels").hidden = !names.length;
}

// Curves

function interpolate(x, xs, ys) {
  if (!xs.length || x === null) return null;
  let low = 0, high = xs.length - 1;
  if (x <= xs[0]) return ys[0];
  if (x >= xs[high]) return ys[high];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    xs[middle] <= x ? low = middle : high = middle;
  }
  return ys[low] + (ys[high] - ys[low]) * (x - xs[low]) / (xs[high] - xs[low] || 1);
}
// Updates as what the x axis shows.
function xFromUpdates(name, updates) {
  if (page.x === "update") return updates;
  const from = page.x === "minutes" ? "times" : "curve", to = page.x === "minutes" ? "seconds" : "env_steps";
  const xs = column(name, from, "update"), ys = column(name, from, to);
  const first = page.x === "minutes" ? ys[0] : 0, unit = page.x === "minutes" ? 60 : 1;
  return updates.map(u => { const y = interpolate(u, xs, ys); return y === null ? null : (y - first) / unit; });
}
function xFromSteps(name, steps) {
  if (page.x === "env_steps") return steps;
  const xs = column(name, "curve", "env_steps"), ys = column(name, "curve", "update");
  return xFromUpdates(name, steps.map(s => interpolate(s, xs, ys)));
}
function legendName(name) { return shortName(name).length > 34 ? `…${shortName(name).slice(-33)}` : shortName(name); }

function returns() {
  const traces = [], several = page.shown.length > 1;
  for (const name of page.shown) {
    const colour = colourOf(name);
    if (!several) {
      traces.push({ x: xFromSteps(name, column(name, "episodes", "env_steps")), y: column(name, "episodes", "return"), name: "episodes", mode: "markers",
        type: "scatter", marker: { color: colour, size: 4, opacity: 0.4 }, hoverinfo: "skip" });
    }
    traces.push({ x: xFromUpdates(name, column(name, "curve", "update")), y: column(name, "curve", "return_mean"), name: several ? legendName(name) : "training",
      legendgroup: name, mode: "lines", line: { color: colour, width: 2 } });
    const evaluated = column(name, "evaluations", "update");
    if (evaluated.length) {
      traces.push({ x: xFromUpdates(name, evaluated), y: column(name, "evaluations", "mean"), name: several ? `${legendName(name)}, greedy` : "greedy",
        legendgroup: name, showlegend: !several, mode: "lines+markers", line: { color: several ? colour : colours()[1], width: 1, dash: "dot" },
        marker: { size: 7, symbol: "diamond", color: several ? colour : colours()[1] },
        error_y: { type: "data", array: column(name, "evaluations", "std"), visible: !several, thickness: 1, width: 2 } });
    }
  }
  return { traces, note: `line: mean of the last 100 training episodes; diamonds: greedy evaluations${several ? "" : ", ± deviation over episodes"}`, layout: { yaxis: { title: "return" } } };
}
function throughput() {
  const traces = [];
  for (const name of page.shown) {
    const updates = column(name, "times", "update"), seconds = column(name, "times", "seconds");
    const step = Math.max(1, Math.round(updates.length / 80)), at = [], speed = [];
    const steps = updates.map(u => interpolate(u, column(name, "curve", "update"), column(name, "curve", "env_steps")));
    for (let i = step; i < updates.length; i += step) {
      const time = seconds[i] - seconds[i - step], done = page.speed === "steps" ? steps[i] - steps[i - step] : updates[i] - updates[i - step];
      if (!(time > 0) || done < 0) continue;
      at.push(updates[i]);
      speed.push(done / time);
    }
    traces.push({ x: xFromUpdates(name, at), y: speed, name: legendName(name), mode: "lines", line: { color: colourOf(name), width: 2 }, showlegend: page.shown.length > 1 });
  }
  const empty = traces.every(t => !t.x.length);
  return { traces, note: empty ? "nothing yet: times come from the event file (log.tensorboard), or from now on while the run goes on" : "from the times of logged updates",
    layout: { yaxis: { title: page.speed === "steps" ? "env steps / s" : "updates / s", rangemode: "tozero" } } };
}
// Means over a fortieth of the points: single batches differ much.
function smooth(values) {
  const half = Math.floor(values.length / 80);
  return values.map((v, i) => v === null ? null : mean(values.slice(Math.max(0, i - half), i + half + 1)));
}
function figureOverTime() {
  const traces = [];
  for (const name of page.shown) {
    const x = xFromUpdates(name, column(name, "curve", "update")), y = column(name, "curve", page.figure), colour = colourOf(name);
    if (page.shown.length === 1) traces.push({ x, y, mode: "lines", line: { color: colour, width: 1 }, opacity: 0.3, showlegend: false, hoverinfo: "skip" });
    traces.push({ x, y: smooth(y), name: legendName(name), mode: "lines", line: { color: colour, width: 2 }, showlegend: page.shown.length > 1 });
  }
  const empty = traces.every(t => t.y.every(v => v === null));
  return { traces, note: empty ? "this run does not have it" : "means over a fortieth of the run", layout: { yaxis: { title: FIGURES[page.figure] } } };
}

// Ages and log ratios

function ageNames() {
  const window = page.standings[page.focus]?.window, short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 2 });
  const name = i => !window ? `${i}/8` : innerWidth < 560 ? short.format(i * window / AGES) : words(i * window / AGES);
  return Array.from({ length: AGES }, (_, i) => i === AGES - 1 ? `≥ ${name(i)}` : name(i));
}
function ageTitle() { return page.standings[page.focus]?.window ? "age in updates, from" : "age / window, from"; }
function entriesOf(row) { // of each age
  return row ? Array.from({ length: AGES }, (_, i) => row.slice(i * SIZES, (i + 1) * SIZES).reduce((a, b) => a + (b || 0), 0)) : null;
}
// The rows of the moment: the last twentieth of those up to it, because a single batch holds few ages.
function momentRows() {
  const count = column(page.focus, "ages", "update").length;
  const end = page.moment === null ? count : Math.min(count, Math.max(1, Math.round(page.moment * count)));
  return [Math.max(0, end - Math.max(1, Math.round(count / 20))), end];
}
function momentText() {
  const [begin, end] = momentRows(), updates = column(page.focus, "ages", "update");
  return updates.length ? `mean about updates ${words(Math.round(updates[begin]))} to ${words(Math.round(updates[end - 1]))}${page.moment === null ? " (newest)" : ""}` : "nothing logged yet";
}
// Means over the moment's rows of one of their parts; `weights` of the same shape, where given.
function momentMean(key, weights = null) {
  const [begin, end] = momentRows(), values = column(page.focus, "ages", key).slice(begin, end), by = weights && column(page.focus, "ages", weights).slice(begin, end);
  const width = values.find(Boolean)?.length;
  if (!width) return null;
  return Array.from({ length: width }, (_, k) => {
    let sum = 0, all = 0;
    values.forEach((row, r) => {
      const w = by ? by[r]?.[k] ?? 0 : 1;
      if (row && row[k] !== null && w > 0) { sum += w * row[k]; all += w; }
    });
    return all ? sum / all : by ? null : 0;
  });
}
// Neighbours together, as means, until there are at most so many: a single batch holds few ages.
function coarse(values, most) {
  const step = Math.ceil(values.length / most);
  return step < 2 ? values : Array.from({ length: Math.ceil(values.length / step) }, (_, i) => mean(values.slice(i * step, (i + 1) * step)));
}
function shareMap() {
  const shares = column(page.focus, "ages", "share_by_age"), sizes = column(page.focus, "ages", "sizes");
  if (!shares.some(Boolean)) return { missing: shares.length ? SWITCH_ON : "Nothing logged yet." };
  const relative = page.map === "worth", columns = innerWidth < 560 ? 40 : 80;
  const z = Array.from({ length: AGES }, () => []), counts = z.map(() => []);
  shares.forEach((row, r) => {
    const entries = entriesOf(sizes[r]), total = entries?.reduce((a, b) => a + b, 0);
    for (let i = 0; i < AGES; i++) {
      const there = row && entries && (relative ? entries[i] > 0 : total > 0);
      counts[i].push(entries?.[i] ?? 0);
      z[i].push(!there ? null : relative ? Math.log2(Math.max(1 / 16, Math.min(16, row[i] * total / entries[i]))) : row[i]);
    }
  });
  const x = coarse(xFromUpdates(page.focus, column(page.focus, "ages", "update")), columns), samples = counts.map(row => coarse(row, columns));
  const cells = z.map((row, i) => coarse(row, columns).map((v, k) => samples[i][k] > 0 ? v : null));
  // What is above is as bright: at the beginning all of the gradient comes from one age.
  const known = cells.flat().filter(v => v > 0).sort((a, b) => a - b), top = Math.max(0.1, known[Math.floor(0.95 * (known.length - 1))] ?? 1);
  const trace = { type: "heatmap", x, y: ageNames(), z: cells, hoverongaps: false, zmin: relative ? -3 : 0, zmax: relative ? 3 : top, colorscale: relative ? "RdBu" : "Viridis", reversescale: relative,
    colorbar: { thickness: 10, outlinewidth: 0, len: 1, ...(relative ? { tickvals: [-3, -2, -1, 0, 1, 2, 3], ticktext: ["1/8", "1/4", "1/2", "1", "2", "4", "8"] } : { tickformat: ".0%" }) },
    hovertemplate: `%{x}<br>age from %{y}<br>${relative ? "2^%{z:.2f} of the average" : "%{z:.1%} of the gradient"}<extra></extra>` };
  return { traces: [trace], layout: { yaxis: { title: ageTitle(), type: "category" } },
    note: relative ? "how much a sample of each age contributes, against the average sample of its batch" : "share of the gradient that comes from samples of each age" };
}
function sizeMap() {
  const rows = momentMean("sizes");
  if (!rows) return { missing: "Nothing logged yet." };
  const entries = entriesOf(rows);
  const z = entries.map((total, i) => rows.slice(i * SIZES, (i + 1) * SIZES).map(n => total ? n / total : null));
  return { traces: [{ type: "heatmap", x: SIZE_NAMES, y: ageNames(), z, colorscale: "Viridis", zmin: 0, hoverongaps: false, colorbar: { thickness: 10, outlinewidth: 0, tickformat: ".0%" },
    hovertemplate: "contribution %{x}<br>age from %{y}<br>%{z:.1%} of the samples of this age<extra></extra>" }],
    layout: { yaxis: { title: ageTitle(), type: "category" }, xaxis: { title: "contribution |m A| of a sample", type: "category" } }, note: `samples of each age by their contribution; ${momentText()}` };
}
function ageMap() { return page.map === "sizes" ? sizeMap() : shareMap(); }

// Where a log ratio lies on an axis on which every bin is as wide.
function place(logRatio) {
  const x = Math.max(-20, Math.min(20, logRatio)), all = [-20, ...EDGES, 20];
  let k = 1;
  while (k < all.length - 1 && x > all[k]) k++;
  return k - 1.5 + (x - all[k - 1]) / (all[k] - all[k - 1]);
}
function distribution() {
  const centred = column(page.focus, "ages", "trust_counts").some(Boolean);
  const judged = momentMean(centred ? "trust_counts" : "log_ratio_counts"), measured = momentMean("multiplier_mean", centred ? "trust_counts" : "log_ratio_counts");
  if (!judged) return { missing: column(page.focus, "ages", "update").length ? SWITCH_ON : "Nothing logged yet." };
  const positions = judged.map((_, k) => k), share = counts => { const all = counts.reduce((a, b) => a + b, 0); return counts.map(n => all ? n / all : 0); };
  const bins = positions.map(k => k === 0 ? `≤ ${EDGES[0]}` : k === EDGES.length ? `> ${EDGES.at(-1)}` : `${EDGES[k - 1]} to ${EDGES[k]}`);
  const traces = [{ type: "bar", x: positions, y: share(judged), name: "samples", customdata: bins, marker: { color: ink().bars }, width: 1,
    hovertemplate: "log ratio %{customdata}<br>%{y:.1%}<extra></extra>" }];
  const whole = centred ? momentMean("log_ratio_counts") : null;
  if (whole) {
    traces.push({ x: positions, y: share(whole), name: "to the data", mode: "lines", line: { shape: "hvh", color: ink().quiet, width: 1.5 }, hoverinfo: "skip" });
  }
  traces.push({ x: positions.filter(k => measured[k] !== null), y: measured.filter(m => m !== null), name: "measured m", yaxis: "y2", mode: "markers", marker: { color: colours()[1], size: 6 },
    hovertemplate: "mean multiplier %{y:.3g}<extra></extra>" });
  const exact = page.multipliers[page.focus];
  let top = Math.max(1.2, ...measured.filter(m => m !== null)) * 1.08;
  if (exact?.x) {
    const x = exact.x.map(place), same = exact.positive.every((m, i) => m === exact.negative[i]);
    const line = (y, name, dash) => ({ x, y, name, yaxis: "y2", mode: "lines", line: { color: colours()[1], width: 1.5, dash }, hoverinfo: "skip" });
    traces.push(...same ? [line(exact.positive, "m", "solid")] : [line(exact.positive, "m, A > 0", "solid"), line(exact.negative, "m, A < 0", "dash")]);
    top = Math.min(4, Math.max(top, 1.08 * Math.max(...exact.positive.slice(0, 400))));
  }
  const ticks = innerWidth < 560 ? [-10, -1, -0.1, 0, 0.1, 1, 10] : [-10, -3, -1, -0.3, -0.1, -0.03, 0, 0.03, 0.1, 0.3, 1, 3, 10];
  return { traces, note: `${centred ? "bars: log ratios about the centre, which the surrogate weighs; outline: those to the data · " : ""}${momentText()}`,
    layout: { bargap: 0, hovermode: "closest", xaxis: { title: "log ratio", tickvals: ticks.map(place), ticktext: ticks.map(String), range: [-0.5, EDGES.length + 0.5] },
      yaxis: { title: "share of samples", tickformat: ".0%", rangemode: "tozero" },
      yaxis2: { title: "multiplier", overlaying: "y", side: "right", range: [0, top], tickmode: "linear", tick0: 0, dtick: top > 2 ? 1 : 0.5, showgrid: false, zeroline: false } } };
}
function byAge() {
  const sizes = momentMean("sizes");
  if (!sizes) return { missing: "Nothing logged yet." };
  const entries = entriesOf(sizes), all = entries.reduce((a, b) => a + b, 0), names = ageNames();
  const there = values => values?.map((v, i) => entries[i] > 0 ? v : null);
  const shares = momentMean("share_by_age"), weighted = key => { // rows without samples of an age say nothing of it
    const [begin, end] = momentRows(), values = column(page.focus, "ages", key).slice(begin, end), counts = column(page.focus, "ages", "sizes").slice(begin, end).map(entriesOf);
    if (!values.some(Boolean)) return null;
    return names.map((_, i) => { let sum = 0, n = 0; values.forEach((row, r) => { const w = counts[r]?.[i] ?? 0; if (row && w > 0 && row[i] !== null) { sum += w * row[i]; n += w; } }); return n ? sum / n : null; });
  };
  const ess = weighted("ess_by_age"), dead = weighted("dead_by_age");
  const traces = [{ type: "bar", x: names, y: entries.map(n => all ? n / all : 0), name: "batch", marker: { color: ink().bars } }];
  if (shares) traces.push({ type: "bar", x: names, y: there(shares), name: "gradient", marker: { color: colours()[0] } });
  if (ess) traces.push({ x: names, y: ess, name: "ESS", mode: "lines+markers", line: { color: colours()[2], width: 2 } });
  if (dead) traces.push({ x: names, y: dead, name: "DeadFrac", mode: "lines+markers", line: { color: colours()[1], width: 2 } });
  return { traces, note: ess ? `bars: shares of the batch and of the gradient; ESS / samples of each age · ${momentText()}` : SWITCH_ON, layout: { bargap: 0.25, xaxis: { title: ageTitle(), type: "category", tickangle: 0 }, yaxis: { range: [0, 1.02], tickformat: ".0%" } } };
}

// Panels: drawn where they are on the screen and something has changed

function select(value, options, change) {
  const made = node("select", { "aria-label": "what is shown" }, ...Object.entries(options).map(([key, text]) => node("option", { value: key }, text)));
  made.value = value;
  made.onchange = () => { change(made.value); redraw(); };
  return made;
}
const PANELS = [
  { id: "returns", title: "Returns", make: returns },
  { id: "map", title: "Age of samples and the gradient", make: ageMap, focus: true,
    control: () => select(page.map, { share: "share of the gradient", worth: "worth of a sample", sizes: "size of contributions" }, v => page.map = v) },
  { id: "ratios", title: "Log ratios and the multiplier", make: distribution, focus: true },
  { id: "ages", title: "ESS and DeadFrac by age", make: byAge, focus: true, moment: true },
  { id: "speed", title: "Throughput", make: throughput, control: () => select(page.speed, { steps: "env steps / s", updates: "updates / s" }, v => page.speed = v) },
  { id: "figure", title: "Diagnostics", make: figureOverTime, control: () => select(page.figure, FIGURES, v => page.figure = v) },
];
const seen = new IntersectionObserver(entries => {
  for (const entry of entries) PANELS.find(p => p.article === entry.target).visible = entry.isIntersecting;
  draw();
}, { rootMargin: "100px" });

function build() {
  for (const panel of PANELS) {
    panel.plot = node("div", { class: "plot", id: `plot_${panel.id}` });
    panel.note = node("p");
    const head = node("div", { class: "head" }, node("h2", {}, panel.title), ...(panel.control ? [panel.control()] : []));
    panel.article = node("article", { id: `panel_${panel.id}` }, head, panel.plot, panel.note);
    if (panel.moment) panel.article.append(momentSlider());
    panel.dirty = panel.atOnce = true;
    $("panels").append(panel.article);
    seen.observe(panel.article);
  }
}
function momentSlider() {
  const slider = node("input", { type: "range", min: 0, max: 1000, value: 1000, "aria-label": "moment of the run" });
  slider.oninput = () => {
    page.moment = slider.value === "1000" ? null : slider.value / 1000;
    redraw();
  };
  return node("div", { class: "moment" }, node("span", {}, "begin"), slider, node("span", {}, "newest"));
}
function ink() {
  return dark.matches ? { text: "#e6e9ed", quiet: "#9aa5b1", line: "#333a42", bars: "#4a5662" } : { text: "#1b1f24", quiet: "#5b6570", line: "#e4e7eb", bars: "#c3ccd6" };
}
function layoutOf(panel, own) {
  const { text, quiet, line } = ink(), narrow = innerWidth < 560;
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, tickfont: { color: quiet } };
  const titled = a => a?.title ? { ...a, title: { text: a.title, standoff: 6, font: { size: 12, color: quiet } } } : a;
  const layout = { ...own, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: text, size: 11, family: "system-ui, sans-serif" },
    // Margins that plotly finds by itself cost it several passes of each drawing.
    margin: { l: own.yaxis?.type === "category" ? 86 : 58, r: own.yaxis2 ? 46 : 12, t: panel.legend ? narrow ? 56 : 44 : 10, b: 42 },
    hovermode: own.hovermode || "x unified", hoverlabel: { bgcolor: dark.matches ? "#262c33" : "#fff", bordercolor: line, font: { color: text, size: 11 } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, itemwidth: 30, font: { size: narrow ? 10 : 11 } }, uirevision: `${panel.id} ${page.x} ${page.map} ${page.focus}`,
    xaxis: { ...axis, ...titled({ title: { env_steps: "env steps", update: "updates", minutes: "minutes" }[page.x], ...own.xaxis }) }, yaxis: { ...axis, ...titled(own.yaxis) } };
  if (own.yaxis2) layout.yaxis2 = { ...axis, ...titled(own.yaxis2) };
  return layout;
}
// Drawing may take a small share of this machine's processors, so that a page beside the training does not slow it: what
// has not been earned yet waits, the panel that has waited longest comes first. At once: what was asked for by hand, what
// has never been drawn, and what has all come.
const SHARE = 0.006 * (navigator.hardwareConcurrency || 4);
const MOST = 60; // milliseconds that are saved up, or charged for one drawing on a busy machine
let credit = 0, credited = 0;
function draw() {
  if (!window.Plotly || !page.shown?.length) return;
  const now = performance.now();
  credit = Math.min(MOST, credit + SHARE * (now - credited));
  credited = now;
  const due = PANELS.filter(p => p.dirty && p.visible).sort((a, b) => (a.at ?? 0) - (b.at ?? 0));
  for (const panel of due) {
    if (!panel.atOnce && credit <= 0) continue;
    const began = performance.now();
    drawPanel(panel);
    panel.at = performance.now();
    if (!panel.atOnce) credit -= Math.min(MOST, 2 * (panel.at - began)); // painting takes as long again
    panel.dirty = panel.atOnce = false;
  }
}
function drawPanel(panel) {
  const { traces, layout, note, missing } = panel.make();
  panel.plot.hidden = Boolean(missing);
  panel.note.className = missing ? "missing" : "";
  panel.note.textContent = missing || note || "";
  if (missing) return;
  panel.legend = traces.filter(t => t.showlegend !== false).length > 1;
  if (panel.id === "map") layout.hovermode = "closest";
  Plotly.react(panel.plot, traces, layoutOf(panel, layout), { displaylogo: false, responsive: true, displayModeBar: false, doubleClick: "reset" });
  panel.drawn = (panel.drawn || 0) + 1;
}
function askMultiplier() {
  const name = page.focus;
  if (!name || name in page.multipliers || !column(name, "ages", "multiplier_mean").some(Boolean)) return;
  page.multipliers[name] = {};
  post("/multiplier", { run: name }).then(found => { page.multipliers[name] = found; redraw(); }).catch(() => delete page.multipliers[name]);
}
function show(changed) {
  choose();
  showHead();
  showTiles();
  showGrid();
  showList();
  showChoices();
  showFaults();
  askMultiplier();
  for (const panel of PANELS) {
    if (changed === null || changed.some(name => panel.focus ? name === page.focus : page.shown?.includes(name))) panel.dirty = true;
    if (changed === null) panel.atOnce = true;
  }
  draw();
}
function redraw() { show(null); }

// Once a second

let timer = 0, asking = false;
async function poll() {
  clearTimeout(timer);
  if (asking) return; // its end sets the next
  asking = true;
  const began = performance.now();
  let wait = 1000;
  try {
    const answer = await post("/data", request());
    const before = page.shown?.length ?? 0, changed = receive(answer), ready = page.behind && !answer.more; // all that there was has come
    page.behind = answer.more;
    show(ready ? null : changed);
    const more = answer.more || (page.shown?.length ?? 0) > before; // curves of runs that are known only now
    wait = more ? 100 : Math.max(100, 1000 - (performance.now() - began));
    page.polls = (page.polls || 0) + 1;
  } catch (error) {
    trouble(error instanceof TypeError ? "gipo watch has ended: start it again to go on." : String(error));
    page.version = 0; // another server may answer next
    wait = 2000;
  }
  asking = false;
  if (!document.hidden) timer = setTimeout(poll, wait);
}
addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
addEventListener("hashchange", () => { readHash(); redraw(); poll(); });
dark.addEventListener("change", redraw);
document.querySelector("script[src='/plotly.js']").addEventListener("load", redraw);
$("x").onchange = () => { page.x = $("x").value; redraw(); };
$("focus").onchange = () => { page.focus = $("focus").value; page.moment = null; redraw(); poll(); };
build();
readHash();
poll();
