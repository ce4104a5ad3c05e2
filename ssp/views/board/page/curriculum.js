// What the questions are like over the rounds: how hard, how far, how alike; where an alarm lasted; the yardstick.
"use strict";

const SOLVED = [["0", "proposer"], ["1-25", "band1"], ["26-50", "band2"], ["51-75", "band3"], ["76-99", "band4"], ["100", "solver"]];

/** The alarms of this run, or those of one cause, as marks of a chart. */
function alarms(cause = "") {
  return ((SSP.verdict || {}).alarms || []).filter(one => !cause || one[1] === cause).map(([role, name, from, to, says, then, where]) => ({ role, text: name, from, to, says, then, where }));
}

/** When an alarm lasted, in words. */
const lasted = ({ from, to }) => `step ${from}${to === steps() && SSP.run.live ? " and still" : `${to > from ? ` to ${to}` : ""} of ${steps()}`}`;

/** A figure of the audit with its bounds, where there are some. */
function audited(title, colour, name) {
  const of = end => new Map(series("game", `audit/${name}${end}`)), low = of("_low"), high = of("_high"), points = series("game", `audit/${name}`);
  return line(title, colour, points, { faint: true, band: points.map(([x, y]) => [x, low.has(x) ? low.get(x) : y, high.has(x) ? high.get(x) : y]) });
}

class CurriculumView {
  constructor() {
    this.said = h("p.note.plain", { hidden: true, role: "status" });
    this.charts = {
      solved: new Chart("How often questions were solved", { classes: ".wide", height: 210, note: "Shares of a round's questions, by the per cent of right attempts: from none (orange, at the bottom) to all (blue)." }),
      learn: new Chart("What can be learned from", { note: "Learnability: the mean of 4 p (1 - p), p the share of right attempts." }),
      far: new Chart("How far the answer is", { note: "Mean searches: of the proposals whose questions are new, and of an attempt. The overview has all episodes." }),
      near: new Chart("Near-duplicates", { note: "New questions that are nearly one of the rounds just before. Red: an alarm lasts." }),
      truth: new Chart("Against the truth", { classes: ".broad", note: "By the world's oracle, which no reward sees: labels and answers that are right, attempts judged right, and those judged right by a wrong label. Bands: what questions that it cannot read leave open." }),
      asked: new Chart("What is asked, by class", { note: "Shares of the questions that were tried; beside the accuracy by class of the overview." }),
      stick: new Chart("Against the yardstick", { classes: ".wide", height: 190, note: "The same questions, asked of the policy that the run started from. Its curve falls: questions became harder. The other one rises above it: who answers became better. Bands: 95 %." }),
    };
    this.absent = h("p.note");
    put(view("curriculum"), this.said, h("div.grid", {}, Object.values(this.charts).map(chart => chart.root)), this.absent);
  }

  draw() {
    const of = name => series("game", `curriculum/${name}`), faint = { faint: true };
    const stick = (SSP.yardstick || { rounds: [] }).rounds;
    const side = (name, colour, at) => line(name, colour, stick.map(row => [row[0], row[at]]), { band: stick.map(row => [row[0], row[at + 1], row[at + 2]]) });
    return [() => this.tell(),
      () => this.charts.solved.draw({ ...SHARES, stack: true, series: SOLVED.map(([name, tone]) => line(name === "0" ? "none" : name === "100" ? "all" : `${name} %`, tone, of(`solved_${name}`), { opacity: .95 })) }),
      () => this.charts.learn.draw({ ...SHARES, series: [line("learnability", "ink", of("learnability"), faint)] }),
      () => this.charts.far.draw({ form: fixed(2), y: [0, 1], series: [line("for a new question", "proposer", of("searches"), faint), line("of an attempt", "solver", of("solver_searches"), faint)] }),
      () => this.charts.near.draw({ ...SHARES, marks: alarms("near-duplicates"), series: [line("near-duplicates", "ink", of("near_duplicates"), faint)] }),
      () => this.charts.truth.draw({ ...SHARES, empty: "this world has no oracle", series: [audited("labels right", "ink", "label_truth"), audited("answers right", "solver", "answer_truth"),
        { ...audited("judged right", "grey", "agreement"), dash: "5 4" }, audited("judged right, label wrong", "c5", "false_agreement")] }),
      () => this.charts.asked.draw({ ...SHARES, empty: "this world has no oracle", series: this.asked() }),
      () => this.charts.stick.draw({ ...SHARES, ends: 1, empty: `not measured: ssp bank ${SSP.run.called} --yardstick 10`, series: stick.length ? [side(`the run's ${answerer()}`, "solver", 1), side("yardstick", "dim", 4)] : [] }),
      () => put(this.absent, absent(Object.values(this.charts)))];
  }

  /** A line for each class of questions; of a step that asked none of a class it is 0. */
  asked() {
    const all = figuresLike("game", "game/asked_").sort().map(name => [name, new Map(series("game", `game/asked_${name}`))]);
    const asked = [...new Set(all.flatMap(([, shares]) => [...shares.keys()]))].sort((one, other) => one - other);
    return all.map(([name, shares], at) => {
      const [told, tone, dash] = classed(name, at);
      return line(told, tone, asked.map(step => [step, shares.get(step) || 0]), { faint: true, dash });
    });
  }

  /** Which alarms there were, in words. */
  tell() {
    const found = alarms().filter(one => one.role !== "game" || one.text === "near-duplicates");
    put(this.said, found.map(one => h("span", {}, h("b.wrong", {}, "Alarm: "), `${one.role === "eval" ? one.says : one.text}, ${lasted(one)}. `)));
    this.said.hidden = !found.length;
  }
}
