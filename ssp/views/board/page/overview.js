// The first screen: who wins, in a sentence; four cards; the win rate with its alarms; then the charts, and any figure.
"use strict";

const DASHES = [null, "7 3", "2 3", "8 3 2 3"], OVER = ["solver", "c5", "c1", "c3"]; // of this run, and of those that lie over it
const SEARCHED = 12; // charts of figures that are drawn at once

/** Runs that are drawn: this one, and those that lie over it. */
const runs = () => [SSP, ...SSP.others.filter(Boolean)];

/** A line for each run that has the figure; others are named and dashed. */
const over = (name, colour, role, figure, more) => runs().map((of, at) =>
  line(at ? `${name}, ${of.run.name}` : name, colour, series(role, figure, of), { ...more, ...(at ? { of, dash: DASHES[at % 4], band: null } : {}) }));

/** A role's reward over all its episodes, or where that is not on record over the trained ones. */
const paid = of => role => series(role, "reward/all", of).length ? "reward/all" : "reward/mean";

class Overview {
  constructor() {
    this.told = h("div.verdict", { role: "status" });
    this.cards = h("div.cards");
    this.means = h("p.note.means");
    this.alarms = h("ul.alarms", { hidden: true });
    this.charts = {
      win: new Chart("Win rate", { height: 230, note: "Right attempts, mean over the questions of a step. Faint: each step. Solid: its running mean." }),
      held: new Chart("Accuracy", { height: 230, note: "Band: 95 % of all." }),
      rate: new Chart("What a round gives", { height: 190, note: "Questions that the referee accepted, of those proposed; questions that tell attempts apart, of those tried." }),
      reward: new Chart("Reward", { height: 190, note: "Mean over all episodes of a step (reward/all), also those of groups without spread." }),
      hops: new Chart("Hops and searches", { note: "Mean a question, and an episode." }), reject: new Chart("Why proposals fall", { classes: ".broad", note: "Proposals a step, by the first rule that they broke." }), entropy: new Chart("Entropy of the policies", { note: "Nats a token." }),
    };
    this.search = h("input", { type: "search", placeholder: "figure, e.g. kl", "aria-label": "Search figures", value: "grad_norm", oninput: () => this.any() });
    this.count = h("span.dim", { role: "status" });
    this.free = Array.from({ length: SEARCHED }, () => new Chart("Any figure", { note: " " }));
    this.absent = h("p.note");
    const [win, held, ...others] = Object.values(this.charts).map(chart => chart.root);
    put(view("overview"), this.told, this.alarms, this.cards, this.means, h("div.grid.first", {}, held, win), h("div.grid", {}, others), this.absent,
      h("div.filters.any", {}, h("h2", {}, "Any figure"), this.search, this.count), h("div.grid", {}, this.free.map(chart => chart.root)));
  }

  draw() {
    const { win, held, rate, reward, hops, reject, entropy } = this.charts, faint = { faint: true }, total = name => series("game", `reject/${name}`).reduce((sum, point) => sum + point[1], 0);
    const rules = figuresLike("game", "reject/").filter(name => !name.startsWith("solver_")).sort((one, other) => total(other) - total(one));
    const accuracies = series("eval", "eval/accuracy"), verdict = SSP.verdict || { healthy: [0, 1] };
    const searches = role => `game/${role}_searches`;
    held.name(accuracy());
    put(held.note, `${evaluated()}Band: 95 % of all.`);
    return [() => this.judge(), () => win.draw({ ...SHARES, range: [...verdict.healthy, "healthy"], marks: alarms(), series: runs().map((of, at) =>
      line(SSP.others.length ? `win rate, ${of.run.name}` : "win rate", OVER[at % 4], series("game", "game/win_rate", of), { of, dash: DASHES[at % 4], faint: true })) }), () => this.warn(),
    () => held.draw({ ...SHARES, ends: 1, empty: "no evaluation yet", series: [
      line("all", "ink", accuracies, { band: band(accuracies, "eval/items") }), ...over("all", "ink", "eval", "eval/accuracy").slice(1),
      ...figuresLike("eval", "eval/accuracy_").filter(name => /^\d+hop$/.test(name)).sort().map(name => {
        const [told, tone, dash] = classed(name, 0);
        return line(told, tone, series("eval", `eval/accuracy_${name}`), { dash });
      }),
      ...figuresLike("eval", "eval/accuracy_").filter(name => name.startsWith("by_")).sort().map((name, at) => {
        const points = series("eval", `eval/accuracy_${name}`);
        return line(name.slice(3).replace(".", ": "), TONES[(at + 3) % TONES.length], points, { dash: "1 3" });
      })] }),
    () => rate.draw({ ...SHARES, series: [...over("accepted questions", "proposer", "game", "game/valid_rate", faint), ...runs().map((of, at) =>
      line(at ? `tell attempts apart, ${of.run.name}` : "tell attempts apart", "c2", series("game", "game/no_signal_rate", of).map(([step, share]) => [step, 1 - share]), { of, faint: true, dash: DASHES[at % 4] }))] }),
    () => reward.draw({ form: fixed(2), y: [0, 1], series: playing().flatMap(role => over(role, tint(role), role, paid(SSP)(role), faint)) }),
    () => hops.draw({ form: fixed(2), y: [0, 1], series: [...over("hops", "ink", "game", "game/hops_mean", faint),
      ...playing().map(role => line(`${role} searches`, tint(role), series("game", searches(role)), { dash: true, faint: true }))] }),
    () => reject.draw({ form: whole, stack: true, xs: gameSteps(), empty: "none fell", series: rules.slice(0, 6).map((name, at) => line(name, TONES[at], series("game", `reject/${name}`))) }),
    () => entropy.draw({ form: fixed(3), y: [0, 0], series: playing().flatMap(role => over(role, tint(role), role, "entropy", faint)) }),
    () => put(this.absent, absent(Object.values(this.charts))), () => this.any()];
  }

  /** The sentence and the cards; of further runs what was said of them. */
  judge() {
    const verdict = SSP.verdict;
    this.told.hidden = !verdict;
    if (!verdict) return;
    put(this.told, h(`p.headline.is-${verdict.tone}`, {}, `${SSP.others.length ? `${SSP.run.name}: ` : ""}${verdict.headline}`), h("p.sentence", {}, verdict.sentence),
      verdict.next ? h("p.sentence", {}, h("b", {}, "Next: "), `${verdict.next}.`) : null,
      SSP.others.filter(other => other && other.verdict).map((other, at) => h("p.sentence", {}, h("b", {}, `${other.run.name}: `), `${other.verdict.headline}. ${other.verdict.sentence}`)));
    put(this.cards, verdict.cards.map(({ title, word, tone, facts }) => h(`div.answer.is-${tone}`, {}, h("h2", {}, capital(title)), h("p.word", {}, word),
      h("ul", {}, facts.map(([weight, fact]) => h(`li.is-${weight || "plain"}`, {}, fact))))));
    put(this.means, `${SSP.others.length ? `Of ${SSP.run.name}: the cards, and curves without a name. ` : ""}Accuracy: first and last evaluation. All else, and what stands beside a curve's name: means of the first and last ${ENDS} steps. Intervals: 95 %; a change counts where its interval leaves out 0.`);
  }

  /** What each alarm on the axis says, and what to do. */
  warn() {
    const found = alarms();
    this.alarms.hidden = !found.length;
    put(this.alarms, found.map(one => h("li", {}, h("b.wrong", {}, one.text), one.role === "game" || one.role === "eval" ? "" : ` of the ${one.role}`,
      `, ${lasted(one)}: ${one.says}. `, h("b", {}, "Next: "), `${one.then}. `, h("span.dim", {}, `More: ${one.where.replace(", ", ", “")}”.`))));
  }

  /** The figures whose names hold every word that is searched: [role, figure] each, those of playing roles once. */
  found() {
    const names = new Map();
    for (const role of [...playing(), "game", "eval"]) for (const name of SSP.names[role] || []) {
      const key = `${playing().includes(role) ? "" : role} ${name}`;
      if (!names.has(key)) names.set(key, [role, name]);
    }
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    return [...names.values()].filter(([, name]) => words.every(word => name.toLowerCase().includes(word)));
  }

  any() {
    const found = this.search.value.trim() ? this.found() : [];
    put(this.count, `${counted(found.length, "figure")}${found.length > SEARCHED ? `, the first ${SEARCHED}` : ""}`);
    this.free.forEach((chart, at) => {
      if (at >= found.length) { chart.root.hidden = true; return; }
      const [role, name] = found[at], plays = playing().includes(role);
      chart.title = plays ? name : `${role}: ${name}`;
      put(chart.root.querySelector("h2"), chart.title);
      put(chart.note, (SSP.meaning || {})[name] || "");
      chart.draw({ series: (plays ? playing() : [role]).flatMap(one => over(plays ? one : "value", plays ? tint(one) : "ink", one, name, { faint: true })) });
    });
  }
}
