// The question gallery: a list of any length of which only what is in sight exists, filtered a piece at a time.
"use strict";

const ROW = 30, SLICE = 6; // pixels; milliseconds that a piece of work may take
const MANY = 2 ** 22; // more than there are questions, steps or games
/** What comes first has the smallest whole number; of equals those with a transcript, then the first that came, and where `newest` the last. */
const ORDERS = {
  newest: one => MANY - one.step, oldest: one => one.step, "most played": one => MANY - one.games,
  hardest: one => Math.round(1e6 * (one.hard === null ? 2 : 1 - one.hard)), easiest: one => Math.round(1e6 * (one.hard ?? 2)),
};

/** Whether there is no transcript to look at. */
const silent = one => !one.told || (SSP.saved && !document.getElementById(one.id));

/** Calls `each` for all of `list`, a few milliseconds at a time, while `wanted()`. */
async function slowly(list, each, wanted) {
  let since = performance.now();
  for (let at = 0; at < list.length; at++) {
    each(list[at], at);
    if (at % 50 || performance.now() - since < SLICE) continue;
    await pause();
    if (!wanted()) return false;
    since = performance.now();
  }
  await pause();
  return wanted();
}

class Gallery {
  constructor(root, open) {
    this.found = [];
    this.selected = 0;
    this.job = 0;
    this.pool = [];
    const again = () => this.filter();
    this.search = h("input", { type: "search", placeholder: "question or target", "aria-label": "Search", oninput: again });
    this.verdicts = Object.fromEntries(Object.keys(VERDICTS).map(name => [name, h("input", { type: "checkbox", checked: true, onchange: again })]));
    this.counts = Object.fromEntries(Object.keys(VERDICTS).map(name => [name, h("span.dim")]));
    this.rule = h("select", { "aria-label": "Rule", onchange: again });
    this.order = h("select", { "aria-label": "Order", onchange: again }, Object.keys(ORDERS).map(name => h("option", {}, name)));
    this.low = this.range(0, "Difficulty at least", again);
    this.high = this.range(1, "Difficulty at most", again);
    this.bounds = h("span.dim", {}, "0 to 1");
    this.bars = s("svg", { viewBox: "0 0 132 30", "aria-hidden": "true" });
    this.count = h("span.count", { role: "status" });
    this.space = h("div", { role: "presentation" });
    this.rows = h("div.rows", { tabindex: "0", role: "listbox", "aria-label": "Questions", onscroll: () => this.soon(), onkeydown: event => this.key(event) }, this.space);
    this.nothing = h("p.empty", { hidden: true });
    this.open = open;
    const list = this.list = h("div.card", {}, h("div.filters", {}, this.search,
      ...Object.entries(VERDICTS).map(([name, word]) => h("label", {}, this.verdicts[name], h(`span.${{ valid: "referee", rejected: "wrong", void: "void" }[name]}`, {}, word), this.counts[name])),
      this.rule, h("label", {}, "difficulty", this.bars), h("label", {}, this.low, this.high, this.bounds), h("label", {}, "order", this.order), this.count),
    h("div.head", { "aria-hidden": "true" }, h("span", {}, "hard"), h("span", {}, "question"), h("span", {}, "target"), h("span", {}, "verdict"), h("span.n", {}, "asked"), h("span.n", {}, "games")), this.nothing, this.rows);
    this.side = h("div.card.side");
    this.duel = new Duel(this.side, true);
    put(root, list, this.side);
  }

  range(value, label, again) {
    const made = h("input", { type: "range", min: "0", max: "1", step: "0.05", "aria-label": label, oninput: () => {
      if (Number(this.low.value) > Number(this.high.value)) (made === this.low ? this.high : this.low).value = made.value;
      this.bounds.textContent = `${Number(this.low.value)} to ${Number(this.high.value)}`;
      again();
    } });
    made.value = String(value);
    return made;
  }

  /** New rows have come. */
  async draw() {
    const all = SSP.questions, counts = { valid: 0, rejected: 0, void: 0 }, bins = new Array(11).fill(0), rules = new Map();
    const turn = this.turn = (this.turn || 0) + 1;
    if (!await slowly(all, one => {
      counts[one.verdict] += 1;
      if (one.hard !== null) bins[Math.min(10, Math.floor(one.hard * 10 + 1e-9))] += 1;
      if (one.verdict !== "valid") rules.set(one.rule, (rules.get(one.rule) || 0) + 1);
    }, () => turn === this.turn)) return;
    const longest = Math.max(8, ...[...rules.keys()].map(name => (name || "").length)); // so that no reason is cut while there is room
    this.list.style.setProperty("--verdict", `${Math.ceil(7.2 * longest) + 8}px`);
    for (const [name, number] of Object.entries(counts)) this.counts[name].textContent = whole(number);
    const most = Math.max(1, ...bins);
    this.bars.replaceChildren(...bins.map((number, at) => s("rect", { x: at * 12, width: 11, y: 30 - 29 * number / most - 1, height: 29 * number / most + 1, style: { fill: "var(--proposer)" }, "fill-opacity": .55 })));
    const chosen = this.rule.value;
    put(this.rule, h("option", { value: "" }, "any rule"), [...rules].sort((one, other) => other[1] - one[1]).map(([rule, number]) => h("option", { value: rule }, `${rule} (${whole(number)})`)));
    this.rule.value = rules.has(chosen) ? chosen : "";
    await this.filter(true);
  }

  /** Find what is meant, a few milliseconds at a time; a newer search ends an older one. */
  async filter(keep) {
    const job = ++this.job, wanted = this.search.value.trim().toLowerCase(), rule = this.rule.value;
    const low = Number(this.low.value), high = Number(this.high.value), verdicts = Object.fromEntries(Object.entries(this.verdicts).map(([name, box]) => [name, box.checked]));
    const kept = keep && this.found[this.selected] ? this.found[this.selected].id : null, found = [];
    const mine = () => job === this.job;
    if (!await slowly(SSP.questions, one => {
      if (wanted && one.folded === null) one.folded = `${one.question}\n${one.target}`.toLowerCase();
      if (verdicts[one.verdict] && (!rule || one.rule === rule) && (one.hard === null ? low <= 0 && high >= 1 : one.hard >= low - 1e-9 && one.hard <= high + 1e-9)
        && (!wanted || one.folded.includes(wanted))) found.push(one);
    }, mine)) return;
    // Numbers are sorted twenty times faster than objects by a function; the rest of a number is the question's place.
    const keys = new Float64Array(found.length), order = this.order.value, last = order === "newest";
    if (!await slowly(found, (one, at) => { keys[at] = (2 * ORDERS[order](one) + silent(one)) * MANY + (last ? MANY - 1 - one.at : one.at); }, mine)) return;
    keys.sort();
    await pause();
    if (!mine()) return;
    this.found = Array.from(keys, key => SSP.questions[last ? MANY - 1 - key % MANY : key % MANY]);
    this.selected = Math.max(0, kept === null ? 0 : this.found.findIndex(one => one.id === kept));
    const all = SSP.questions.length, newest = all < SSP.run.questions ? "" : ", the newest of the run";
    this.count.textContent = `${whole(found.length)} of ${whole(all)}${newest}`;
    const nothing = found.length ? "" : SSP.questions.length ? "none fits the filters" : "no question yet";
    put(this.nothing, nothing);
    this.nothing.hidden = !nothing;
    if (nothing && this.duel.id === null) put(this.side, h("p.empty", {}, nothing));
    this.space.style.setProperty("height", `${found.length * ROW}px`);
    if (!keep) this.rows.scrollTop = 0;
    this.paint();
    if (found.length && !this.rows.closest("[hidden]")) this.show();
  }

  soon() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.paint(); });
  }

  paint() {
    const first = Math.max(0, Math.floor(this.rows.scrollTop / ROW) - 4), number = Math.ceil((this.rows.clientHeight || 600) / ROW) + 8;
    while (this.pool.length < number) this.pool.push(this.row());
    this.pool.forEach((row, at) => this.fillRow(row, first + at, at < number));
    this.rows.setAttribute("aria-activedescendant", this.found.length ? `q-${this.selected}` : "");
  }

  row() {
    const bar = h("i"), hard = h("span"), question = h("span"), target = h("span.proposer"), verdict = h("span"), asked = h("span.n"), games = h("span.n");
    const element = h("div.row", { role: "option", onclick: () => { this.select(Number(element.dataset.at)); }, ondblclick: () => this.enter() },
      h("span.hard", {}, bar, hard), question, target, verdict, asked, games);
    this.rows.append(element);
    return { element, bar, hard, question, target, verdict, asked, games };
  }

  fillRow(row, at, used) {
    const one = used ? this.found[at] : undefined;
    row.element.hidden = !one;
    if (!one) { row.element.removeAttribute("id"); return; }
    row.element.id = `q-${at}`;
    row.element.dataset.at = String(at);
    row.element.style.setProperty("top", `${at * ROW}px`);
    row.element.setAttribute("aria-selected", String(at === this.selected));
    row.element.setAttribute("aria-setsize", String(this.found.length));
    row.element.setAttribute("aria-posinset", String(at + 1));
    row.bar.style.setProperty("width", `${100 * (one.hard || 0)}%`);
    row.hard.textContent = one.hard === null ? "" : one.hard.toFixed(2);
    const mute = silent(one);
    row.question.textContent = mute ? `${one.question}  (no transcript)` : one.question;
    row.question.className = mute ? "silent" : "";
    row.question.title = one.question;
    row.target.textContent = one.target;
    row.verdict.textContent = one.verdict === "valid" ? VERDICTS.valid : one.rule || one.verdict;
    row.verdict.className = { valid: "referee", rejected: "dim", void: "void" }[one.verdict];
    row.asked.textContent = one.version === null ? "" : `v${one.version}`;
    row.games.textContent = String(one.games);
  }

  select(at) {
    if (!this.found.length) return;
    this.selected = Math.max(0, Math.min(this.found.length - 1, at));
    const top = this.selected * ROW, { scrollTop, clientHeight } = this.rows;
    if (top < scrollTop) this.rows.scrollTop = top;
    else if (top + ROW > scrollTop + clientHeight) this.rows.scrollTop = top + ROW - clientHeight;
    this.paint();
    clearTimeout(this.later);
    this.later = setTimeout(() => this.show(), 60); // not each one that an arrow key passes
  }

  show() {
    const one = this.found[this.selected];
    if (one) this.duel.show(one.id, !SSP.details.has(one.id));
  }

  enter() { if (this.found[this.selected]) this.open(this.found[this.selected].id); }

  key(event) {
    const page = Math.max(1, Math.floor(this.rows.clientHeight / ROW) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter") this.enter();
    else if (event.key in moves) this.select(this.selected + moves[event.key]);
    else return;
    event.preventDefault();
  }
}
