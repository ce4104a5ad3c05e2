// The page's data, and how elements are made. Text of a run only ever becomes a text node: it cannot be markup.
"use strict";
const SSP = { seq: 0, run: {}, names: {}, figures: {}, rounds: new Map(), questions: [], place: new Map(), duels: [],
  league: null, accounts: null, timeline: null, yardstick: null, verdict: null, details: new Map(), saved: false, version: 0,
  others: [], axis: "step" };

/** An element: h("p.note", {title: "x", onclick: f}, "text", child). Attributes by name, handlers as on<event>. */
function h(name, attributes, ...children) {
  const [tag, ...classes] = name.split(".");
  const made = document.createElement(tag);
  if (classes.length) made.className = classes.join(" ");
  return fill(made, attributes, children);
}

/** The same for SVG. */
function s(name, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [name, how] of Object.entries(value)) made.style.setProperty(name, how);
    else if (key === "value" || key === "checked" || key === "disabled") made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
  return made;
}

/** In place of what an element holds, these. */
function put(parent, ...children) {
  parent.replaceChildren();
  return fill(parent, {}, children);
}

/** A custom property of the style sheet as a colour that a canvas takes, in the theme of now. */
function colour(name) {
  const probe = colour.probe || (colour.probe = document.body.appendChild(h("i", { hidden: true })));
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

/** "1 search", "2 searches". */
const counted = (number, one, more = `${one}s`) => `${whole(number)} ${number === 1 ? one : more}`;
const percent = value => value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`;
const fixed = digits => value => value === null || value === undefined ? "–" : value.toFixed(digits);
const whole = value => value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en");
function plain(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e6)) return value.toExponential(2);
  return size >= 1000 ? whole(value) : String(Number(value.toPrecision(3)));
}
/** Of an axis: short. */
function compact(value) {
  const size = Math.abs(value), [by, letter] = size >= 1e6 ? [1e6, "M"] : size >= 1e4 ? [1e3, "k"] : [1, ""];
  return by === 1 ? plain(value) : `${Number((value / by).toPrecision(3))}${letter}`;
}
function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1) return value ? `${Number((1000 * value).toPrecision(2))} ms` : "0 s";
  if (value < 60) return `${Number(value.toPrecision(2))} s`;
  const [whole, part, units] = value < 3570 ? [Math.floor(Math.round(value) / 60), Math.round(value) % 60, ["min", "s"]] : [Math.floor(Math.round(value / 60) / 60), Math.round(value / 60) % 60, ["h", "min"]];
  return `${whole} ${units[0]}${part ? ` ${String(part).padStart(2, "0")} ${units[1]}` : ""}`;
}

/** Points [step, value] of one figure of a role, of this run or of another one that lies over it. */
function series(role, name, of = SSP) {
  const at = (of.names[role] || []).indexOf(name);
  if (at < 0) return [];
  const found = [];
  for (const [step, row] of of.figures[role] || []) {
    const value = row[at + 2];
    if (value !== null && value !== undefined) found.push([step, value]);
  }
  return found.sort((one, other) => one[0] - other[0]);
}

/** Names of a role's figures that begin so, without that beginning. */
const figuresLike = (role, prefix) =>
  (SSP.names[role] || []).filter(name => name.startsWith(prefix)).map(name => name.slice(prefix.length));

/** Step → [hours since the run's first row, model tokens so far], by which a chart may be drawn. */
function clock(of) {
  if (of.clocked === SSP.version) return of.clock;
  const rows = Object.values(of.figures).flatMap(steps => [...steps.values()]), tokens = new Map(series("game", "game/tokens", of));
  const first = rows.reduce((least, row) => Math.min(least, row[1]), Infinity), ends = new Map();
  for (const [step, time] of rows) ends.set(step, Math.max(ends.get(step) || 0, time));
  let sum = 0;
  of.clock = new Map([...ends].sort((one, other) => one[0] - other[0]).map(([step, time]) => [step, [(time - first) / 3600, sum += tokens.get(step) || 0]]));
  of.clocked = SSP.version;
  return of.clock;
}

/** Where a step of a run lies on the axis that is chosen. */
function placed(step, of) {
  if (SSP.axis === "step") return step;
  const known = clock(of).get(step);
  return known ? known[SSP.axis === "hours" ? 0 : 1] : 0;
}

const last = points => points.length ? points[points.length - 1][1] : null;

/** The roles of the run's game, and the colour of one of them. */
const playing = () => SSP.run.roles || ["proposer", "solver"];
/** The role that asks, "" for nobody, and the one that answers. */
const asker = () => SSP.run.asks ?? "proposer", answerer = () => SSP.run.answers || "solver";
const tint = role => role === asker() ? "proposer" : role === answerer() ? "solver" : ["c1", "c2", "c3", "c4"][playing().indexOf(role) % 4] || "ink";
/** What the referee said, in words: accepted is not yet true. */
const VERDICTS = { valid: "accepted", rejected: "rejected", void: "void" };
const capital = text => text ? text[0].toUpperCase() + text.slice(1) : "";

const steps = () => Math.max(0, ...["game", ...playing()].flatMap(role => [...(SSP.figures[role] || new Map()).keys()]));

/** The steps that the game's figures tell of. */
const gameSteps = () => [...(SSP.figures.game || new Map()).keys()];

/** Lets the browser do what it has to do; between two of these no piece of work takes long. */
const pause = () => new Promise(done => {
  const channel = new MessageChannel();
  channel.port1.onmessage = () => done();
  channel.port2.postMessage(0);
});

/** Do these one after the other, without holding the page up; newer work of the same name ends older. Returns
 *  whether all was done. */
async function work(name, jobs) {
  const mine = work[name] = (work[name] || 0) + 1;
  let since = performance.now();
  for (const job of jobs) {
    job();
    if (performance.now() - since < 6) continue;
    await pause();
    if (work[name] !== mine) return false;
    since = performance.now();
  }
  return true;
}

/** A row of a run's figures, or the names of a role's figures. */
function known(of, kind, key, value) {
  if (kind === "names") { of.names[key] = value; return; }
  const [role, step] = key.split(":");
  (of.figures[role] || (of.figures[role] = new Map())).set(Number(step), value);
}

/** Take in rows of the document. */
function take(document_) {
  for (const [kind, key, value] of document_.rows) {
    if (kind === "other") { // of a run that lies over this one: its place, the kind, the key
      const [, place, what, name] = /^(\d+)\/(\w+)\/(.*)$/.exec(key), other = SSP.others[place - 1] || (SSP.others[place - 1] = { run: {}, names: {}, figures: {}, verdict: null });
      if (what === "figures" || what === "names") known(other, what, name, value);
      else other[what] = value;
    } else if (kind === "figures" || kind === "names") known(SSP, kind, key, value);
    else if (kind === "rounds") SSP.rounds.set(Number(key), value);
    else if (kind === "questions") {
      if (!SSP.place.has(key)) { SSP.place.set(key, SSP.questions.length); SSP.questions.push(null); }
      const [question, target, verdict, rule, version, step, games, scored, rate, told] = value;
      SSP.questions[SSP.place.get(key)] = { id: key, at: SSP.place.get(key), question, target: target || "", verdict, rule, version, step, games, scored, told,
        hard: rate === null ? null : 1 - rate, folded: null };
      SSP.details.delete(key);
    } else SSP[kind] = value;
  }
  SSP.seq = document_.seq;
  SSP.version += document_.rows.length;
}

/** A question with its transcripts: from the server, or from the block of the saved page that has it. Null: not here. */
async function detail(id) {
  if (SSP.details.has(id)) return SSP.details.get(id);
  if (SSP.saved) {
    const block = document.getElementById(id);
    if (!block) return null;
    SSP.details.set(id, JSON.parse(block.textContent));
  } else {
    const reply = await fetch(`question.json?id=${encodeURIComponent(id)}`);
    const found = await reply.json();
    if (!reply.ok) throw new Error(found.error || "this question is not known any more");
    SSP.details.set(id, found[id]);
  }
  return SSP.details.get(id);
}
