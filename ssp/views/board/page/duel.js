// One question with its duels: what was asked, what the referee said, and every transcript, coloured by segment.
"use strict";


function transcript(episode) {
  const pieces = episode.text;
  if (!pieces) return h("p.note", {}, "No transcript is on record: it was not played to its end.");
  return h("div", {}, pieces.map(([kind, label, text]) =>
    h(`div.piece.${kind}`, {}, h("span.label", {}, label), h("div.said", text.length > 600 ? { tabindex: "0" } : {}, text))));
}

/** An episode's id, by which `ssp inspect` and `ssp replay` find it: one click selects it whole. */
const episodeId = (name, id) => h("span", {}, `${name} `, h("code.id", {}, id));

/** How an attempt ended: a class, a sign, a word. */
function ending(attempt) {
  if (attempt.outcome === "void") return ["void", "∅", `void: ${attempt.cause}`];
  if (attempt.right === null) return ["dim", "?", "decided by a judge whose word is not on record"];
  return attempt.right ? ["right", "✓", "right"] : ["wrong", "✗", "wrong"];
}

class Duel {
  /** Shows one question in `root`; `narrow`: one side above the other. */
  constructor(root, narrow) {
    Object.assign(this, { root, id: null, play: 0, attempt: 0 });
    if (narrow) root.classList.add("narrow");
  }

  async show(id, again) {
    if (id === this.id && !again) return;
    this.id = id;
    let found, trouble = "";
    try { found = await detail(id); } catch (error) { trouble = error.message; }
    if (id !== this.id) return; // another one was asked for in the meantime
    if (!found) {
      const row = SSP.questions[SSP.place.get(id)];
      this.root.replaceChildren(h("p.asked", {}, row ? row.question : ""), h("p.note.plain", {}, trouble ||
        `This file does not hold its transcripts. The live board does: ssp board ${SSP.run.called}; so does ssp bank ${SSP.run.called} --show ${id}`));
      return;
    }
    const same = this.found && this.found.id === id && this.found.games === found.games;
    this.found = found;
    if (same && this.root.querySelector(".sides")) { this.draw(); return; }
    this.play = Math.max(0, found.plays.findLastIndex(play => play.win_rate !== null));
    if (found.plays[this.play].win_rate === null) this.play = found.plays.length - 1;
    this.attempt = 0;
    this.draw();
  }

  draw() {
    const { found } = this, play = found.plays[this.play], tried = found.attempts.filter(one => one.game === play.game);
    this.tried = tried;
    const choose = found.plays.length < 2 ? null : h("select", { "aria-label": "Game", onchange: event => { this.play = Number(event.target.value); this.attempt = 0; this.draw(); } },
      found.plays.map((one, at) => h("option", { value: String(at), selected: at === this.play },
        `game ${one.number} of ${found.games}: ${one.kind}${one.proposer_version === null ? "" : ` by v${one.proposer_version}`}, ${one.win_rate === null ? one.rule || VERDICTS[one.verdict] : `${percent(one.win_rate)} right`}`)));
    const facts = [["right", play.win_rate === null ? "–" : `${Math.round(play.win_rate * play.scored)} of ${play.scored}`, ""],
      ["difficulty over all games", fixed(2)(found.difficulty), ""], [`${asker() || "its"} searches`, String(play.searches), ""], ["id", found.id, ""]];
    if (found.history.length > 1) facts.push(["each game", found.history.slice(-6).map(([version, rate]) => `${Math.round(100 * rate)} % by v${version}`).join(", "), ""]);
    put(this.root,
      h("p.asked", {}, found.question, " ", h("span.target", {}, `→\u00a0${found.target}`)),
      h("div.facts", {}, facts.map(([name, value, tone]) => h("span", {}, `${name} `, h(tone ? `b.${tone}` : "b", {}, value))), choose),
      h("div.sides", {}, this.asks(play), this.checks(play), this.tries()));
  }

  /** What was decided about the question, and by whom. */
  checks(play) {
    const by = SSP.run.referee || {}, tone = play.verdict === "valid" ? "referee" : play.verdict === "void" ? "void" : "wrong";
    const rows = [["verdict", h(`b.${tone}`, {}, VERDICTS[play.verdict])], ["rule", play.rule],
      ["documents", play.documents ? String(play.documents) : null], ["verifier", by.verifier], ["evidence", by.evidence], ["judge", by.judge], ["rules", by.rules && by.rules.split(", ").map(rule => h("div", {}, rule))]];
    return h("article.checks", {}, h("h3.referee", {}, "Referee"), h("dl", {}, rows.filter(row => row[1]).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
  }

  asks(play) {
    const asked = play.proposal ? play : this.found.plays.find(one => one.proposal); // played again: as it was asked before
    const by = !asked || asked.proposer_version === null ? "" : ` v${asked.proposer_version}`;
    return h("article.asks", {}, h("h3.proposer", {}, asked ? `${capital(asker())}${by}${play.proposal ? "" : ", in an earlier game"}` : "Given by a data set"),
      asked ? [h("div.facts", {}, asked.reward === null || asked.reward === undefined ? null : h("span", {}, "reward ", h("b", {}, plain(asked.reward))), episodeId("proposal", asked.proposal)), transcript(asked)] : h("p.note", {}, "This game has no proposal."));
  }

  tries() {
    const { tried } = this;
    if (!tried.length) return h("article.tries", {}, h("h3.solver", {}, capital(answerer())), h("p.note", {}, `The ${answerer()} was not asked.`));
    const attempt = tried[this.attempt], [tone, , word] = ending(attempt);
    const select = at => { this.attempt = (at + tried.length) % tried.length; this.draw(); this.root.querySelector('.attempts [aria-selected="true"]').focus(); };
    const tabs = h("div.attempts", { role: "tablist", "aria-label": "Attempts" }, tried.map((one, at) => {
      const [kind, sign, said] = ending(one);
      return h(`button.${kind}`, { role: "tab", "aria-selected": String(at === this.attempt), tabindex: at === this.attempt ? "0" : "-1", "aria-label": `attempt ${at + 1}: ${said}`,
        onclick: () => select(at), onkeydown: event => {
          if (event.key === "ArrowRight") select(at + 1); else if (event.key === "ArrowLeft") select(at - 1); else return;
          event.preventDefault(); event.stopPropagation();
        } }, `${at + 1} ${sign}`);
    }));
    const facts = [`v${attempt.version_max}`, word, attempt.greedy ? "greedy, in no win rate" : null, attempt.reward === null ? null : `reward ${plain(attempt.reward)}`,
      counted(attempt.searches, "search", "searches"), attempt.state === "trained" ? `trained at step ${attempt.step}` : attempt.cause && attempt.outcome !== "void" ? `${attempt.state}: ${attempt.cause}` : attempt.state];
    return h(`article.tries.is-${tone}`, { role: "tabpanel" }, h("h3.solver", {}, capital(answerer())), tabs,
      h("div.facts", {}, h(`b.${tone}`, {}, attempt.answer === null ? "no answer" : attempt.answer), facts.filter(Boolean).map(fact => h("span", {}, fact)), episodeId("episode", attempt.episode)), transcript(attempt));
  }
}
