// Pictures on a canvas: the payoff heat map, shares over steps, the timeline; and the arrows between versions and rounds.
"use strict";

/** A canvas that is sharp on this screen: its context, and its size in CSS pixels. */
function sharp(canvas, height) {
  const width = Math.max(120, canvas.closest(".card").clientWidth - 24), scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.setProperty("height", `${height}px`);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.font = '11px system-ui, "DejaVu Sans", sans-serif';
  return { context, width, height };
}

const channels = text => (text.match(/[\d.]+/g) || [0, 0, 0]).slice(0, 3).map(Number);
/** Between two colours, `share` of the way. */
function between(one, other, share) {
  const [from, to] = [channels(one), channels(other)];
  return `rgb(${from.map((value, at) => Math.round(value + (to[at] - value) * share)).join(",")})`;
}

class HeatMap {
  /** Solver versions upwards, proposer versions to the right; a cell is how often the solver was right. */
  constructor() {
    this.canvas = h("canvas", { tabindex: "0", role: "img" });
    this.readout = h("p.readout", { "aria-live": "polite" });
    this.scale = h("span.legend");
    this.mark = h("i", { hidden: true });
    this.root = h("figure.card", {}, h("figcaption", {}, h("h2", {}, "Who is right against whom"), this.scale), h("div.map", {}, this.canvas, this.mark), this.readout);
    this.cell = null;
    this.canvas.addEventListener("pointermove", event => this.point(event));
    this.canvas.addEventListener("keydown", event => this.key(event));
  }

  draw(league) {
    this.league = league;
    const { solvers, proposers, cells } = league;
    this.met = new Map(cells.map(cell => [`${cell[0]} ${cell[1]}`, cell]));
    const room = Math.min(372, Math.max(120, this.root.clientWidth - 80));
    const size = this.size = Math.max(1, Math.min(40, room / Math.max(solvers.length, proposers.length, 1)));
    const { context, height } = sharp(this.canvas, size * solvers.length + 30);
    const tones = ["proposer", "mid", "solver"].map(colour);
    const tone = rate => rate < .5 ? between(tones[0], tones[1], rate * 2) : between(tones[1], tones[2], rate * 2 - 1);
    this.left = 44;
    this.bottom = height - 24;
    context.fillStyle = colour("bg");
    context.fillRect(this.left, this.bottom - size * solvers.length, size * proposers.length, size * solvers.length);
    const column = new Map(proposers.map((version, at) => [version, at])), row = new Map(solvers.map((version, at) => [version, at]));
    const gap = size > 5 ? 1 : 0;
    for (const [solver, proposer, , attempts, right] of cells) {
      context.fillStyle = tone(right / attempts);
      context.fillRect(this.left + column.get(proposer) * size, this.bottom - (row.get(solver) + 1) * size, Math.max(1, size - gap), Math.max(1, size - gap));
    }
    context.fillStyle = colour("dim");
    const every = Math.max(1, Math.ceil(Math.max(solvers.length, proposers.length) / 10));
    context.textAlign = "right";
    solvers.forEach((version, at) => { if (at % every === 0) context.fillText(`v${version}`, this.left - 6, this.bottom - at * size - size / 2 + 4); });
    context.textAlign = "center";
    proposers.forEach((version, at) => { if (at % every === 0) context.fillText(`v${version}`, this.left + at * size + size / 2, this.bottom + 14); });
    const [low, , high] = tones;
    this.scale.replaceChildren(h("span", {}, "solver version ↑, proposer version →"), h("span", {}, h("i", { style: { background: low } }), "0 %"),
      h("span", {}, h("i", { style: { background: tones[1] } }), "50 %"), h("span", {}, h("i", { style: { background: high } }), "100 % right"));
    this.canvas.setAttribute("aria-label", `How often each solver version was right on the questions of each proposer version: ${cells.length} of ${
      solvers.length * proposers.length} pairs met. Arrow keys read it.`);
    this.read(this.cell);
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    this.read([Math.floor((this.bottom - (event.clientY - box.top)) / this.size), Math.floor((event.clientX - box.left - this.left) / this.size)]);
  }

  key(event) {
    const move = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!move) return;
    event.preventDefault();
    const [row, column] = this.cell || [-1, -1];
    this.read([Math.max(0, Math.min(this.league.solvers.length - 1, row + move[0])), Math.max(0, Math.min(this.league.proposers.length - 1, column + move[1]))]);
  }

  read(cell) {
    const { solvers, proposers, cells } = this.league;
    const [solver, proposer] = cell ? [solvers[cell[0]], proposers[cell[1]]] : [];
    this.mark.hidden = solver === undefined || proposer === undefined;
    if (this.mark.hidden) {
      this.readout.replaceChildren(`${cells.length} of ${solvers.length * proposers.length} pairs met; an empty cell is a pair that never did.`);
      return;
    }
    this.cell = cell;
    for (const [name, value] of Object.entries({ left: this.left + cell[1] * this.size, top: this.bottom - (cell[0] + 1) * this.size, width: this.size, height: this.size }))
      this.mark.style.setProperty(name, `${value}px`);
    const found = this.met.get(`${solver} ${proposer}`);
    const names = [h("b.solver", {}, `solver v${solver}`), " on questions of ", h("b.proposer", {}, `proposer v${proposer}`), ": "];
    if (!found) this.readout.replaceChildren(...names, "never met");
    else this.readout.replaceChildren(...names, h("b", {}, percent(found[4] / found[3])), ` right (95 %: ${percent(found[5])} to ${percent(found[6])}), ${
      found[4]} of ${counted(found[3], "attempt")} at ${counted(found[2], "question")}`);
  }
}

class Strips {
  /** A row of cells over the steps for each name: shares between 0 and 1. */
  constructor(title, note) {
    this.canvas = h("canvas", { tabindex: "0", role: "img" });
    this.readout = h("p.readout", { "aria-live": "polite" });
    this.note = h("p.note", {}, note);
    this.root = h("figure.card", {}, h("figcaption", {}, h("h2", {}, title)), this.canvas, this.readout, this.note);
    Object.assign(this, { title, at: null, rows: [] });
    this.canvas.addEventListener("pointermove", event => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.read(null));
    this.canvas.addEventListener("keydown", event => {
      if (!["ArrowLeft", "ArrowRight"].includes(event.key) || !this.xs.length) return;
      event.preventDefault();
      this.read(Math.max(0, Math.min(this.xs.length - 1, (this.at === null ? this.xs.length : this.at) + (event.key === "ArrowLeft" ? -1 : 1))));
    });
  }

  draw(rows, empty) {
    this.rows = rows.map(row => ({ ...row, map: new Map(row.points) }));
    this.xs = [...new Set(rows.flatMap(row => row.points.map(point => point[0])))].sort((one, other) => one - other);
    const none = bare(this, !rows.length, empty);
    this.canvas.setAttribute("aria-label", `${this.title}. ${rows.map(row =>
      `${row.name}: mean ${percent(row.points.reduce((sum, point) => sum + point[1], 0) / row.points.length)}`).join("; ")}`);
    if (none) return;
    const { context, width } = sharp(this.canvas, rows.length * 19 + 18);
    this.left = 112;
    const cell = this.cell = (width - this.left - 54) / this.xs.length;
    const dim = colour("dim"), ink = colour("ink"), faint = colour("faint");
    this.rows.forEach((row, at) => {
      const tone = colour(row.colour), mean = row.points.reduce((sum, point) => sum + point[1], 0) / row.points.length;
      context.fillStyle = dim;
      context.textAlign = "right";
      context.fillText(row.name, this.left - 8, at * 19 + 13);
      this.xs.forEach((x, place) => {
        if (!row.map.has(x)) return;
        context.fillStyle = between(faint, tone, Math.min(1, row.map.get(x)));
        context.fillRect(this.left + place * cell, at * 19 + 2, Math.max(1, cell - (cell > 4 ? 1 : 0)), 15);
      });
      context.fillStyle = ink;
      context.fillText(percent(mean), width - 2, at * 19 + 13);
    });
    context.fillStyle = dim;
    context.textAlign = "left";
    context.fillText(`step ${this.xs[0]}`, this.left, rows.length * 19 + 13);
    context.textAlign = "right";
    if (this.xs.length > 1) context.fillText(`${this.xs[this.xs.length - 1]}`, width - 54, rows.length * 19 + 13);
    this.read(this.at);
  }

  point(event) {
    const at = Math.floor((event.clientX - this.canvas.getBoundingClientRect().left - this.left) / this.cell);
    this.read(at >= 0 && at < this.xs.length ? at : null);
  }

  read(at) {
    this.at = at;
    if (!this.rows.length) return;
    if (at === null || at >= this.xs.length) { this.readout.replaceChildren("On the right: the mean over all steps."); return; }
    const x = this.xs[at];
    this.readout.replaceChildren(`step ${x}: `, ...this.rows.flatMap(row => [`${row.name} `, h("b", {}, percent(row.map.get(x))), "  "]));
  }
}

const WORKS = [["propose", "proposer"], ["proposer play", "proposer"], ["solve", "solver"], ["solver play", "solver"], ["verify", "c1"],
  ["grade", "c1"], ["judge", "c1"], ["learn", "c2"], ["evaluate", "grey"], ["wait", "wait"]];

class Timeline {
  /** Who did what when, a line an actor. */
  constructor() {
    this.canvas = h("canvas", { tabindex: "0", role: "img" });
    this.readout = h("p.readout", { "aria-live": "polite" });
    const button = (text, label, act) => h("button", { "aria-label": label, title: label, disabled: true, onclick: act }, text);
    this.root = h("figure.card.wide", {}, h("figcaption", {}, h("h2", {}, "Timeline"), h("span.legend", {},
      ...[["proposer", "proposes"], ["solver", "solves"], ["c1", "verifies, judges"], ["c2", "learns"], ["grey", "evaluates, saves, syncs"], ["wait", "waits"]]
        .map(([tone, text]) => h("span", {}, h(tone === "wait" ? "i.thin" : "i", { style: { background: `var(--${tone})` } }), text))),
      h("span.controls", {}, button("←", "earlier", () => this.move(-.5)), button("→", "later", () => this.move(.5)),
        button("−", "further away", () => this.zoom(2)), button("+", "closer", () => this.zoom(.5)), button("all", "everything", () => this.turn(() => [0, this.end])))),
    this.canvas, this.readout);
    this.window = null;
    this.canvas.addEventListener("pointermove", event => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.read(null));
    this.canvas.addEventListener("keydown", event => {
      const act = { ArrowLeft: () => this.move(-.25), ArrowRight: () => this.move(.25), "+": () => this.zoom(.5), "=": () => this.zoom(.5), "-": () => this.zoom(2) }[event.key];
      if (act) { event.preventDefault(); act(); }
    });
  }

  draw(data) {
    this.data = data;
    this.tracks = data ? [...new Set(data.spans.map(span => span[0]))].sort() : [];
    this.canvas.hidden = !this.tracks.length;
    for (const button of this.root.querySelectorAll("button")) button.disabled = !this.tracks.length;
    if (!this.tracks.length) { this.readout.replaceChildren("no timeline was written"); return; }
    this.end = Math.max(...data.spans.map(span => span[2] + span[3]));
    if (!this.window) this.window = [Math.max(0, this.end - Math.max(20, this.end / 8)), this.end];
    this.paint();
  }

  /** Shows what `other` makes of the window; a run without a timeline has none. */
  turn(other) {
    if (!this.window) return;
    this.window = other(...this.window);
    this.paint();
  }

  move(share) { this.turn((from, to) => [from + (to - from) * share, to + (to - from) * share]); }
  zoom(factor) { this.turn((from, to) => [-1, 1].map(side => (from + to) / 2 + side * (to - from) / 2 * factor)); }

  paint() {
    const { context, width, height } = sharp(this.canvas, this.tracks.length * 20 + 22), [from, to] = this.window;
    this.left = 136;
    this.x = value => this.left + (value - from) / (to - from) * (width - this.left);
    const tones = new Map(["proposer", "solver", "c1", "c2", "grey", "line", "dim", "wait"].map(name => [name, colour(name)]));
    context.textAlign = "center";
    for (const tick of ticks(from, to, width / 120)) {
      context.fillStyle = tones.get("line");
      context.fillRect(Math.round(this.x(tick)), 0, 1, height - 18);
      context.fillStyle = tones.get("dim");
      context.fillText(`${plain(tick)} s`, Math.min(width - 22, Math.max(this.left + 18, this.x(tick))), height - 5);
    }
    const row = new Map(this.tracks.map((track, at) => [track, at]));
    for (const [track, name, start, length] of this.data.spans) {
      if (start + length < from || start > to) continue;
      const tone = (WORKS.find(([work]) => name.startsWith(work)) || [0, "grey"])[1];
      const x = Math.max(this.left, this.x(start)), w = Math.max(1, Math.min(width, this.x(start + length)) - x);
      const thin = tone === "wait";
      context.fillStyle = tones.get(tone);
      context.fillRect(x, row.get(track) * 20 + (thin ? 8 : 3), w > 3 ? w - .5 : w, thin ? 4 : 14);
    }
    context.fillStyle = tones.get("dim");
    context.textAlign = "right";
    this.tracks.forEach((track, at) => context.fillText(track.slice(0, 22), this.left - 8, at * 20 + 14));
    this.canvas.setAttribute("aria-label", `Timeline of ${this.tracks.length} actors, ${seconds(to - from)} of ${seconds(this.end)} shown. Arrow keys move, plus and minus zoom.`);
    this.read(null);
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect(), track = this.tracks[Math.floor((event.clientY - box.top) / 20)], at = event.clientX - box.left;
    this.read(this.data.spans.find(span => span[0] === track && this.x(span[2]) - 1 <= at && at <= Math.max(this.x(span[2] + span[3]), this.x(span[2]) + 2)) || null);
  }

  read(span) {
    const [from, to] = this.window;
    this.readout.replaceChildren(...(span ? [`${span[0]}: `, h("b", {}, span[1]), ` for ${plain(span[3])} s, from ${plain(span[2])} s`]
      : [`${seconds(to - from)} of the newest ${seconds(this.end)}; timeline.json has everything, for Perfetto.`]));
  }
}

class Arrows {
  /** Which version played which round: above the proposer's, below the solver's; a round's update publishes the next. */
  constructor() {
    this.svg = s("svg", { role: "img", tabindex: "0", height: 214, onkeydown: event => this.key(event) });
    this.slider = h("input", { type: "range", min: "1", value: "1", "aria-label": "Last round shown", oninput: () => { this.follow = this.slider.value === this.slider.max; this.paint(); } });
    this.league = h("span", { hidden: true }, " Dashed boxes are past versions of the league that a round met as opponents: nobody learns from what they play, so they are old and not stale.");
    this.root = h("figure.card.wide", {}, h("figcaption", {}, h("h2", {}, "Which version played which round"), h("span.controls", {}, h("span.dim", {}, "rounds"), this.slider)), this.svg,
      h("p.note", {}, "A box is a version, above its round of birth; a solid arrow leads to the rounds that it played for its learner, a dotted one from the round whose update published it. Long solid arrows are stale play.", this.league));
    this.follow = true;
  }

  draw() {
    const plain = Object.values(SSP.run.bounds || {}).every(bound => bound === 0), past = [...SSP.rounds.values()].some(round => round[7].length || round[8].length);
    this.root.hidden = plain && !past; // at bound 0 every round is played by the newest versions
    if (this.root.hidden) return;
    this.size = Math.max(6, Math.floor((this.root.clientWidth - 120) / 62));
    this.newest = Math.max(1, ...SSP.rounds.keys());
    this.slider.max = String(this.newest);
    this.slider.min = String(Math.min(this.newest, this.size));
    if (this.follow) this.slider.value = String(this.newest);
    this.paint();
  }

  key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -this.newest, End: this.newest }[event.key];
    if (!by) return;
    event.preventDefault();
    this.slider.value = String(Number(this.slider.value) + by); // within its bounds
    this.follow = this.slider.value === this.slider.max;
    this.paint();
  }

  paint() {
    const width = Math.max(300, this.root.clientWidth - 24), to = Number(this.slider.value), from = Math.max(1, to - this.size + 1), count = to - from + 1;
    const met = [...SSP.rounds.values()].some(round => round[7].length || round[8].length), height = met ? 264 : 214;
    this.league.hidden = !met;
    this.svg.setAttribute("height", height);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren();
    const gap = (width - 96) / Math.max(1, this.size), x = round => 82 + (round - from + .75) * gap, lanes = { proposer: 22, solver: 192 };
    this.svg.append(s("defs", {}, ...["proposer", "solver"].map(role => s("marker", { id: `tip-${role}`, viewBox: "0 0 6 6", refX: 5, refY: 3, markerWidth: 5, markerHeight: 5, orient: "auto" },
      s("path", { d: "M0 0L6 3L0 6Z", style: { fill: `var(--${role})` } })))));
    this.svg.append(s("text", { x: 0, y: 26 }, asker()), s("text", { x: 0, y: 111 }, "round"), s("text", { x: 0, y: 196 }, answerer()));
    for (const role of ["proposer", "solver"]) this.lane(role, lanes[role], from, to, x, gap);
    if (met) ["proposer", "solver"].forEach((role, at) => this.past(role, 228 + 24 * at, 7 + at, from, to, x, gap));
    for (let round = from; round <= to; round++) {
      const known = SSP.rounds.has(round);
      this.svg.append(s("rect", { x: x(round) - 15, y: 96, width: 30, height: 22, rx: 4, style: { fill: "var(--faint)", stroke: "var(--line)" } }),
        s("text", { x: x(round), y: 111, "text-anchor": "middle", style: { fill: known ? "var(--ink)" : "var(--dim)" } }, String(round)));
    }
    this.svg.setAttribute("aria-label", `Rounds ${from} to ${to}. ${[...SSP.rounds.values()].filter(round => round[0] >= from && round[0] <= to).sort((a, b) => a[0] - b[0])
      .map(([round, p0, p1, s0, s1, , , asked, tried]) => `round ${round}: proposer ${spread(p0, p1)}, solver ${spread(s0, s1)}${
        asked.length ? `, met past proposers ${named(asked)}` : ""}${tried.length ? `, met past solvers ${named(tried)}` : ""}`).join("; ")}. Arrow keys move.`);
  }

  /** Opponents out of the league, below their rounds: marks without arrows. */
  past(role, y, place, from, to, x, gap) {
    this.svg.append(s("text", { x: 0, y: y + 4 }, `past ${role}s`));
    for (let round = from; round <= to; round++) {
      const versions = (SSP.rounds.get(round) || [])[place] || [];
      if (!versions.length) continue;
      const room = 7 * named(versions).length + 8 < gap, text = room ? named(versions) : `${versions.length}×`, wide = Math.max(32, 7 * text.length + 8);
      this.svg.append(s("g", { class: "past" }, s("title", {}, `round ${round} met past ${role}s ${named(versions)}`),
        s("rect", { x: x(round) - wide / 2, y: y - 9, width: wide, height: 18, rx: 9, "stroke-dasharray": "3 2", style: { fill: "none", stroke: `var(--${role})` } }),
        s("text", { x: x(round), y: y + 4, "text-anchor": "middle", style: { fill: `var(--${role})` } }, text)));
    }
  }

  lane(role, y, from, to, x, gap) {
    const born = new Map(series(role === "proposer" ? asker() : answerer(), "version").map(([step, version]) => [version, step])), place = role === "proposer" ? 1 : 3, sign = role === "proposer" ? 1 : -1;
    const where = version => Math.max(from - 1, born.has(version) ? born.get(version) : 0), boxes = new Map();
    const arrow = (x1, y1, x2, y2, dotted) => this.svg.append(s("path", { d: `M${x1} ${y1}L${x2} ${y2}`, fill: "none", "stroke-width": 1.3, "marker-end": `url(#tip-${role})`,
      "stroke-dasharray": dotted ? "1.5 3" : null, "stroke-opacity": dotted ? .65 : .9, style: { stroke: `var(--${role})` } }));
    for (let round = from; round <= to; round++) {
      const played = SSP.rounds.get(round);
      if (!played || played[place] === null) continue;
      for (const version of new Set([played[place], played[place + 1]])) {
        const left = x(where(version)) + gap * .5;
        boxes.set(version, left);
        arrow(left, y + sign * 12, x(round) - (left < x(round) - 1 ? 4 : 0), 107 - sign * 14, false);
      }
    }
    for (const [version, step] of born) if (step >= from && step < to) {
      boxes.set(version, x(step) + gap * .5);
      arrow(x(step) + 6, 107 - sign * 14, x(step) + gap * .5 - 7, y + sign * 13, true);
    }
    for (const [version, left] of boxes) this.svg.append(s("rect", { x: left - 16, y: y - 10, width: 32, height: 20, rx: 4, style: { fill: "var(--card)", stroke: `var(--${role})` } }),
      s("text", { x: left, y: y + 4, "text-anchor": "middle", style: { fill: `var(--${role})` } }, `v${version}`));
  }
}

const named = versions => versions.map(version => `v${version}`).join(" ");
const spread = (low, high) => low === null ? "none" : low === high ? `v${low}` : `v${low} to v${high}`;
