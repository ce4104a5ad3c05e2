// The views: what each shows of the data. A view is made once, and drawn again when there is news and it is in sight.
"use strict";

const view = id => document.getElementById(id);
const line = (name, colour, points, more) => ({ name, colour, points, ...more });
const HOPS = { 1: ["c1", null], 2: ["c2", "7 3"], 3: ["c5", "2 3"] }; // colour and pattern

/** A class of questions as a person reads it, its colour and pattern: the same wherever it is drawn. */
function classed(name, at) {
  const hop = /^\d+hop$/.test(name) ? parseInt(name, 10) : 0;
  return hop ? [counted(hop, "hop"), ...(HOPS[hop] || ["grey", null])] : [name.replace(".", ": "), TONES[at % TONES.length], null];
}

const REJECTED = "A rejected proposal is trained with proposer.invalid_reward; game.batch=resample drops it as surplus. solver_: an attempt, trained with solver.invalid_reward or dropped; "
  + "solver_no_answer is a dropped one, whose own cause is not on record. What was rejected and dropped is in both lists. Of evaluations only voids are counted.";
const TONES = ["c1", "c2", "c3", "c5", "c4", "grey"];

/** What the periodic evaluation asks, and where it searches. */
function evaluated() {
  const set = SSP.run.evaluation;
  if (!set) return "";
  return `Questions: ${set.name}, ${set.corpus === null ? "with nothing to search" : `searched in ${set.corpus}`}${set.elsewhere ? ", which training never searches" : ""}. `;
}

/** What the periodic evaluation's accuracy is called: held-out where its questions are not trained. */
function accuracy() {
  const set = SSP.run.evaluation;
  return !set ? "accuracy" : set.held ? "held-out accuracy" : `accuracy on ${set.name}`;
}

/** Wilson's interval of a share y around each point, where it is on record of how many questions it is. */
function band(points, name) {
  const asked = new Map(series("eval", name)), z = 1.96;
  return points.filter(([x]) => asked.get(x) > 0).map(([x, y]) => {
    const n = asked.get(x), square = z * z / n, half = z * Math.sqrt(y * (1 - y) / n + square / (4 * n));
    return [x, Math.max(0, (y + square / 2 - half) / (1 + square)), Math.min(1, (y + square / 2 + half) / (1 + square))];
  });
}

function ofTheirTime(cells) { // of each solver the cell against the proposer of the first round that it played for its learner
  const met = new Map();
  for (const round of [...SSP.rounds.values()].sort((a, b) => a[0] - b[0]))
    if (round[4] !== null && !met.has(round[4])) met.set(round[4], round[2]);
  return cells.filter(cell => met.get(cell[0]) === cell[1]);
}

class League {
  constructor() {
    this.said = h("p.note.plain", { hidden: true });
    this.ratings = new Chart("Ratings", { height: 372, classes: ".broad", note: "P(right) = 1 / (1 + 10^((proposer - solver) / 400)); 0 is the mean of all. Bands: 95 %, with what the games cannot tell." });
    this.pairs = new Chart("Each version against the opponent of its time", { classes: ".wide", height: 240, note: "The win rate, 95 % (attempts at one question resemble each other, and count for less)." });
    this.map = new HeatMap();
    this.arrows = new Arrows();
    this.summary = h("summary", {}, "Ratings and payoff of versions that nothing compares");
    this.fold = h("details", { ontoggle: () => draw(true) }, this.summary, h("div.grid", {}, this.ratings.root, this.map.root));
    put(view("league"), this.said, h("div.grid", {}, this.pairs.root, this.arrows.root), this.fold);
  }

  draw() {
    const league = { solvers: [], proposers: [], cells: [], ratings: {}, groups: 0, mixed: 0, left: 0, ...SSP.league };
    const said = [];
    this.folded(league.groups > 1 && league.groups === league.cells.length);
    if (league.missing) said.push(`Ratings need ${league.missing}, which is not installed where this page comes from.`);
    else if (!league.cells.length) said.push(`No version of the ${answerer()} has met a version of the ${asker()} yet: nothing is rated.`);
    else if (league.groups > 1 && league.groups === league.cells.length) said.push("Pure self-play: each version met only the opponent of its own time, so no game compares two versions of one role. The ratings show how far the two "
      + "sides are apart; whether both rose or both fell together cannot be known from these games. An accuracy can tell, for who answers; games across versions could, for both.");
    else if (league.groups > 1) said.push(`The versions fall into ${league.groups} groups that met none of each other's opponents: games compare versions within a group only.`);
    if (league.mixed) said.push(`${counted(league.mixed, "game is", "games are")} left out: weights changed within them.`);
    if (league.left) said.push(`${counted(league.left, "older version is", "older versions are")} left out here.`);
    put(this.said, said.map(text => h("span", {}, text, " ")));
    this.said.hidden = !said.length;
    const met = ofTheirTime(league.cells);
    return [() => this.fold.open && this.ratings.draw({ unit: "version", ends: 1, form: whole, empty: "nobody met", series: [["proposer", asker()], ["solver", answerer()]].map(([side, role]) => {
      const points = league.ratings[side] || [];
      return line(role, side, points.map(([version, elo]) => [version, elo]), { band: points.map(([version, elo, error]) => [version, elo - 1.96 * error, elo + 1.96 * error]) });
    }) }),
    () => this.pairs.draw({ unit: `${answerer()} version`, ends: 1, ...SHARES, empty: "nobody met", levels: [{ at: .5, text: "even" }],
      series: [line("win rate", "solver", met.map(cell => [cell[0], cell[4] / cell[3]]), { band: met.map(cell => [cell[0], cell[5], cell[6]]) })] }),
    () => this.fold.open && this.map.draw(league), () => this.arrows.draw()];
  }

  /** Plain self-play has nothing to rate: it stays folded until somebody opens it. */
  folded(plain) {
    if (plain === !this.summary.hidden && this.drawn) return;
    this.drawn = true;
    this.summary.hidden = !plain;
    this.fold.open = !plain;
  }
}

class DuelView {
  constructor() {
    this.pick = h("select", { "aria-label": "Duel", onchange: () => this.choose(this.pick.value) });
    this.follow = h("input", { type: "checkbox", onchange: () => this.draw() });
    this.following = h("label", { title: "Always the newest duel" }, this.follow, " follow the newest");
    this.body = h("div");
    this.duel = new Duel(this.body, false);
    put(view("duel"), h("div.card", {}, h("div.filters", {}, this.following, h("button", { "aria-label": "Older duel (k)", title: "k", onclick: () => this.step(-1) }, "← older"),
      h("button", { "aria-label": "Newer duel (j)", title: "j", onclick: () => this.step(1) }, "newer →"), this.pick), this.body));
  }

  choose(id) { this.chosen = id; this.follow.checked = false; this.draw(); }

  step(by) {
    const at = SSP.duels.indexOf(this.duel.id) + by;
    if (SSP.duels[at]) this.choose(SSP.duels[at]);
  }

  /** The duels, the most instructive first: attempts right and wrong alike, with a transcript; of equals the newest. */
  ranked() {
    const worth = one => (one.told ? 1 : 0) + (one.hard === null ? 0 : 4 * one.hard * (1 - one.hard));
    return SSP.duels.map((id, at) => ({ id, at, worth: worth(SSP.questions[SSP.place.get(id)]) }))
      .sort((one, other) => other.worth - one.worth || other.at - one.at).map(one => one.id);
  }

  draw() {
    const newest = SSP.duels[SSP.duels.length - 1];
    const ranked = this.ranked();
    if (this.follow.checked) this.chosen = newest;
    else if (!this.chosen) this.chosen = ranked[0];
    if (!this.chosen) { put(this.body, h("p.empty", {}, "No question has been played yet.")); return; }
    const names = ranked.includes(this.chosen) ? ranked : [this.chosen, ...ranked];
    put(this.pick, names.map(id => {
      const one = SSP.questions[SSP.place.get(id)];
      return h("option", { value: id }, `${one.hard === null ? "" : `${Math.round(100 * (1 - one.hard))} % right, `}step ${one.step}: ${one.question.slice(0, 60)} → ${one.target}`);
    }));
    this.pick.value = this.chosen;
    this.duel.show(this.chosen, !SSP.details.has(this.chosen));
  }
}

class Questions {
  constructor() { this.gallery = new Gallery(view("questions"), id => { VIEWS.duel.choose(id); go("duel"); }); }
  draw() { this.gallery.draw(); }
}

class Machine {
  constructor() {
    this.stale = new Chart("Staleness of what was trained", { note: "Versions behind its own policy. Dashed: the batch's largest." });
    this.time = new Chart("Where a step's time goes", { note: "Seconds on the critical path." });
    this.rate = new Chart("Speed", { note: "Model tokens over the step's wall time." });
    this.idle = new Strips("Idle share of the actors", "Strong: nothing to do all the step. Faint: busy.");
    this.gpu = new Chart("GPUs of the head", { note: "Means over its devices; dashed: the fullest device's memory." });
    this.void = new Chart("Voids by cause", { note: "Faults of ours: no reward, no gradient." });
    this.accounts = h("div.card", {}, h("h2", {}, "Accounts"));
    this.causes = h("div.card.broad", {}, h("h2", {}, "Void, dropped, rejected"));
    this.settings = h("div.card", {}, h("h2", {}, "Settings"));
    this.timeline = new Timeline();
    this.charts = [this.stale, this.time, this.idle, this.rate, this.void, this.gpu];
    this.absent = h("p.note");
    put(view("machine"), h("div.grid", {}, this.charts.map(chart => chart.root), this.accounts, this.causes, this.settings, this.timeline.root), this.absent);
  }

  draw() {
    const bounds = SSP.run.bounds || {}, parts = [["generate", "c4"], ["search", "c3"], ["verify", "c1"], ["judge", "c5"], ["learn", "c2"], ["overhead", "grey"]];
    const stale = Object.values(bounds).some(bound => bound > 0) || playing().some(role => series(role, "staleness/max").some(([, value]) => value > 0));
    return [() => this.stale.draw({ form: fixed(1), y: [0, 1], empty: "bound 0, and nothing was stale", levels: [...new Set(Object.values(bounds))].map(bound => ({ at: bound, text: `bound ${bound}` })), series: stale ? playing().flatMap(role =>
      [line(role, tint(role), series(role, "staleness/mean")), line(`${role} max`, tint(role), series(role, "staleness/max"), { dash: true })]) : [] }),
    () => this.gpu.draw({ ...SHARES, empty: "no GPU was seen", series: [line("busy", "c2", series("game", "gpu/utilisation")), line("memory", "c4", series("game", "gpu/memory")), line("memory, fullest", "c4", series("game", "gpu/memory_max"), { dash: true })] }),
    () => this.time.draw({ form: seconds, axis: value => `${plain(value)} s`, stack: true, series: parts.map(([name, tone]) => line(name, tone, series("game", `time/${name}`))) }),
    () => this.rate.draw({ form: whole, y: [0, 0], series: [line("model tokens a second", "ink", series("game", "tokens_per_second"), { faint: true })] }),
    () => this.idle.draw(figuresLike("game", "time/idle_share_").sort().map(name => ({ name, colour: asker() && name.includes(asker()) ? "proposer" : name.includes(answerer()) ? "solver" : "referee", points: series("game", `time/idle_share_${name}`) })),
      gameSteps().length ? "this run played in one process: no actors" : ""),
    () => this.void.draw({ form: whole, stack: true, xs: gameSteps(), empty: "no episode was void", series: figuresLike("game", "void/").map((name, place) => line(name, TONES[place % TONES.length], series("game", `void/${name}`))) }),
    () => this.books(), () => this.timeline.draw(SSP.timeline), () => put(this.absent, absent(this.charts))];
  }

  books() {
    const accounts = SSP.accounts || { issued: {}, states: {}, outcomes: {}, causes: {} }, roles = Object.keys(accounts.states);
    const states = ["created", "running", "grading", "queued", "trained", "dropped", "voided", "kept"];
    const sum = role => states.reduce((total, state) => total + (accounts.states[role][state] || 0), 0);
    put(this.accounts, h("h2", {}, "Accounts"), roles.length ? h("table", {}, h("tr", {}, h("th", {}, "episodes"), roles.map(role => h(`th.n.${tint(role)}`, {}, role))),
      h("tr", {}, h("td", {}, "issued"), roles.map(role => h("td.n", {}, h("b", {}, whole(accounts.issued[role] || 0))))),
      states.map(state => h("tr", {}, h("td.dim", {}, state), roles.map(role => h("td.n", {}, whole(accounts.states[role][state] || 0))))),
      h("tr", {}, h("td", {}, "sum"), roles.map(role => { const right = sum(role) === (accounts.issued[role] || 0); return h(`td.n.${right ? "right" : "wrong"}`, {}, `${whole(sum(role))} ${right ? "✓" : "✗"}`); }))) : h("p.empty", {}, "no ledger yet"),
    h("p.note", {}, "Issued = sum over states, or an episode was lost or counted twice. created to queued: now under way."));
    const named = Object.entries(accounts.outcomes), of = kind => named.filter(([name]) => name.startsWith(kind)).sort((one, other) => other[1] - one[1]);
    const table = (title, rows) => rows.length ? [h("tr", {}, h("th", { colspan: "2" }, title)), rows] : [];
    put(this.causes, h("h2", {}, "Void, dropped, rejected"), h("table.counts", {},
      table("void: a fault of ours, no reward", of("void/").map(([name, number]) => { const [meaning, next] = accounts.causes[name.slice(5)] || ["", ""]; return h("tr", {}, h("td.n", {}, whole(number)), h("td", {}, h("b.void", {}, name.slice(5)), `: ${meaning}. Next: ${next}`)); })),
      table("dropped: played, and not trained", of("drop/").map(([name, number]) => h("tr", {}, h("td.n", {}, whole(number)), h("td", {}, name.slice(5))))),
      table("rejected: a proposal broke a rule, an attempt handed in no answer", of("reject/").map(([name, number]) => h("tr", {}, h("td.n", {}, whole(number)), h("td", {}, name.slice(7)))))), named.length ? h("p.note", {}, REJECTED) : h("p.empty", {}, "nothing"));
    put(this.settings, h("h2", {}, "Settings"), h("table", {}, Object.entries(SSP.run.settings || {}).map(([name, value]) => h("tr", {}, h("td.dim", {}, name), h("td", {}, String(value))))));
  }
}
