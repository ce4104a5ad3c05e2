// Start: where the data come from, which view is in sight, and the keys that work everywhere.
"use strict";

const ORDER = ["overview", "league", "curriculum", "duel", "questions", "machine"], VIEWS = {}, drawn = {};
const POLL = { live: 2000, still: 15000, lost: 5000 }; // milliseconds

function go(name) {
  for (const each of ORDER) {
    view(each).hidden = each !== name;
    const tab = view(`tab-${each}`);
    tab.setAttribute("aria-selected", String(each === name));
    tab.tabIndex = each === name ? 0 : -1;
    if (each === name) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  if (location.hash.slice(1) !== name) history.replaceState(null, "", `#${name}`);
  if (SSP.view !== name) scrollTo(0, 0);
  SSP.view = name;
  draw(false);
}

/** Draw the view in sight, if there is news for it. What is returned ends with the drawing, also where that had begun before. */
function draw(anew) {
  head();
  if (!VIEWS[SSP.view] || (drawn[SSP.view] === SSP.version && !anew)) return draw.underWay;
  const name = SSP.view;
  drawn[name] = SSP.version;
  return draw.underWay = work("view", VIEWS[name].draw() || []).then(done => { if (!done) drawn[name] = -1; });
}

function head() {
  const { name = "", live, steps: planned = 0 } = SSP.run, done = steps();
  document.title = `${name} · board`;
  view("name").textContent = SSP.view === "overview" ? runs().map(one => one.run.name).join(" | ") : name; // other views are of this run alone
  view("tab-league").hidden = !asker(); // versions of one side alone have met nobody
  view("status").className = live ? "live" : "";
  view("status").textContent = live ? `live, step ${done} of ${planned}` : done >= planned ? `finished, ${done} steps` : `ended at step ${done} of ${planned}`;
}

function trouble(text) { view("trouble").textContent = text; view("trouble").hidden = !text; }

/** Ask for what is new, again and again; nothing while nobody looks. */
async function poll() {
  let wait = POLL.lost;
  try {
    let more = true, news = false;
    while (more) {
      const reply = await fetch(`data.json?since=${SSP.seq}`), found = await reply.json();
      if (!reply.ok) throw new Error(found.error);
      take(found);
      news = news || found.rows.length > 0;
      more = found.more;
      if (more) await pause();
    }
    trouble("");
    if (news) draw(false);
    wait = SSP.run.live ? POLL.live : POLL.still;
  } catch (error) {
    trouble(error instanceof TypeError ? "The board's server does not answer; what is shown is what it said last." : error.message);
  }
  if (document.hidden) await new Promise(done => document.addEventListener("visibilitychange", done, { once: true }));
  setTimeout(poll, wait);
}

function theme() {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("ssp-theme", document.documentElement.dataset.theme); } catch { /* a saved page may have no storage */ }
  draw(true);
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || view("keys").open) return;
  if (["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName) && event.target.type !== "checkbox") { if (event.key === "Escape") event.target.blur(); return; }
  const acts = { "?": () => view("keys").showModal(), t: theme, "/": () => { go("questions"); VIEWS.questions.gallery.search.focus(); },
    j: () => { go("duel"); VIEWS.duel.step(1); }, k: () => { go("duel"); VIEWS.duel.step(-1); } };
  const at = Number(event.key);
  if (at >= 1 && at <= ORDER.length) go(ORDER[at - 1]);
  else if (acts[event.key]) acts[event.key]();
  else return;
  event.preventDefault();
}

async function start() {
  try { const kept = localStorage.getItem("ssp-theme"); if (kept) document.documentElement.dataset.theme = kept; } catch { /* none */ }
  for (const [name, made] of Object.entries({ overview: Overview, league: League, curriculum: CurriculumView, duel: DuelView, questions: Questions, machine: Machine })) {
    VIEWS[name] = new made();
    await pause();
  }
  for (const tab of document.querySelectorAll('nav [role="tab"]')) {
    tab.addEventListener("click", () => go(tab.dataset.view));
    tab.addEventListener("keydown", event => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      go(ORDER[(ORDER.indexOf(tab.dataset.view) + by + ORDER.length) % ORDER.length]);
      view(`tab-${SSP.view}`).focus();
    });
  }
  document.addEventListener("keydown", keys);
  view("theme").addEventListener("click", theme);
  view("axis").addEventListener("change", () => { SSP.axis = view("axis").value; draw(true); });
  view("help").addEventListener("click", () => view("keys").showModal());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));
  let waiting = 0;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => draw(true), 120); });
  addEventListener("hashchange", () => { if (ORDER.includes(location.hash.slice(1))) go(location.hash.slice(1)); });
  const blocks = document.querySelectorAll("script.rows");
  SSP.saved = blocks.length > 0;
  for (const block of blocks) { take(JSON.parse(block.textContent)); await pause(); }
  go(ORDER.includes(location.hash.slice(1)) ? location.hash.slice(1) : "overview");
  if (SSP.saved) SSP.run.live = false;
  else await poll();
  await draw(false);
  SSP.ready = true;
  SSP.loaded = performance.now(); // milliseconds since one asked for the page
}

start();
