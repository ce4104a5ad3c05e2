"""The board in a real browser, of runs written by hand: what it says is what is on record, and what is not is said."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ssp.config.load import to_yaml
from ssp.config.schema import EvalSet
from ssp.record.runfolder import RunFolder
from ssp.telemetry.runlog import RunLog
from ssp.views.board.server import save
from tests.board.boarded import by_hand, looked, played
from tests.board.chrome import Chrome
from tests.selfplay import fakes

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fakes.Stage]:
    with pytest.MonkeyPatch.context() as patch:
        fakes.scripted(patch)
        yield played(tmp_path_factory.mktemp("board") / "run")


def shown(browser: Chrome, run: RunFolder, view: str, dark: bool = False) -> None:
    """The saved page of a run, at one view."""
    page = run.path / "board.html"
    save(looked(run), page)
    browser.open(f"{page.as_uri()}#{view}", dark)
    browser.settled()


def figured(run: RunFolder, steps: dict[int, dict[str, float]]) -> None:
    """Figures of the game, by step."""
    log = RunLog(run.path)
    for step, values in steps.items():
        log.write(step, "game", {"game/played": 1.0, **values})
    log.close()


def test_a_duel_names_its_episodes(browser: Chrome, stage: fakes.Stage) -> None:
    """Each attempt's and the proposal's, as `ssp inspect` and `ssp replay` take them; one click selects an id whole."""
    shown(browser, stage.folder, "duel")
    browser.until("document.querySelectorAll('#duel .attempts button').length === 4")
    known = {row["id"]: row["role"] for row in stage.rows()}
    tried, searched = [], []
    for number in range(1, 5):
        browser.click(f"#duel .attempts button:nth-child({number})")
        tried.append(browser.run("document.querySelector('#duel .tries .id').textContent"))
        searched += re.findall(
            r"\d+ search(?:es)?", browser.run("document.querySelector('#duel .tries .facts').innerText")
        )
    asked = browser.run("document.querySelector('#duel .asks .id').textContent")
    assert len(set(tried)) == 4 and {known[id] for id in tried} == {"solver"} and known[asked] == "proposer"
    browser.click("#duel .asks .id")
    assert browser.run("getSelection().toString()") == asked
    assert len(searched) == 4 and "1 search" in searched and "1 searches" not in searched


def test_what_was_rejected_is_said_by_whom(browser: Chrome, stage: fakes.Stage) -> None:
    shown(browser, stage.folder, "machine")
    said = browser.run("VIEWS.machine.causes.innerText")
    assert said.startswith("Void, dropped, rejected") and "proposer.invalid_reward" in said
    for name, number in stage.ledger.outcomes().items():
        assert f"{number}\t{name.split('/')[1]}" in said
    assert "solver_" in said and "unnamed" not in said


def test_a_stack_tells_of_the_newest_step(browser: Chrome, tmp_path: Path) -> None:
    """Voids at step 2 of 20 and a rule last broken at step 5: at step 20 there are none. A line says its newest value."""
    run = by_hand(tmp_path / "run", ["one ?"])
    values: dict[int, dict[str, float]] = {step: {"reject/malformed": 3.0} for step in range(1, 21)}
    values[2] |= {"void/retriever_down": 96.0}
    values[5] |= {"reject/leakage": 7.0}
    figured(run, values)
    shown(browser, run, "machine")
    legend = "VIEWS.machine.void.legend.textContent"
    assert browser.run(legend) == "retriever_down0"
    assert "from 0 to 0" in browser.run("VIEWS.machine.void.svg.getAttribute('aria-label')")
    browser.run("VIEWS.machine.void.svg.focus()")
    browser.key("Home")
    assert browser.run(legend) == "step 1retriever_down0"
    browser.key("ArrowRight")
    assert browser.run(legend) == "step 2retriever_down96"
    browser.key("End")
    assert browser.run(legend) == "step 20retriever_down0"
    browser.click("#tab-overview")
    browser.until("VIEWS.overview.charts.reject.legend.textContent === 'malformed3leakage0'")
    assert browser.run("VIEWS.overview.charts.reject.xs.length") == 20


def test_bars_of_a_stack_do_not_overlap(browser: Chrome, tmp_path: Path) -> None:
    """Also where steps are missing between them: a bar is as wide as a step."""
    run = by_hand(tmp_path / "run", ["one ?"])
    figured(run, {step: {"void/retriever_down": 1.0, "time/learn": 1.0} for step in (1, 2, 3, 39, 40)})
    shown(browser, run, "machine")
    for chart in ("void", "time"):
        drawn = browser.run(f"VIEWS.machine.{chart}.svg.querySelector('path').getAttribute('d')")
        bars = [(float(left), float(wide)) for left, wide in re.findall(r"M([\d.]+) [\d.]+h([\d.]+)", drawn)]
        assert len(bars) == 5
        for (left, wide), (right, _) in zip(bars, bars[1:], strict=False):
            assert left + wide < right + 0.2, (chart, bars)


@pytest.mark.parametrize("width", [390, 1200])
def test_a_long_target_holds(browser: Chrome, tmp_path: Path, width: int) -> None:
    """With spaces and without, in the duel and beside the list."""
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    try:
        for at, target in enumerate(("the University of " * 12, "Donaudampfschifffahrt" * 12)):
            run = by_hand(tmp_path / f"run{at}", ["who was it ?"], target.strip())
            shown(browser, run, "duel")
            browser.until("document.querySelector('#duel .asked') !== null")
            for name in ("duel", "questions"):
                browser.click(f"#tab-{name}")
                browser.until(f"document.querySelector('#{name} .asked .target') !== null")
                browser.settled()
                assert browser.run("document.documentElement.scrollWidth <= innerWidth"), (name, target)
    finally:
        browser.call("Emulation.clearDeviceMetricsOverride")


@pytest.mark.parametrize(
    ("sets", "wanted"),
    [
        ([EvalSet()], "Questions: heldout, searched in world:heldout, which training never searches. Bands: 95 %."),
        ([EvalSet("nq", "world:train", "world:train")], "Questions: nq, searched in world:train. Bands: 95 %."),
        ([EvalSet("nq", "world:heldout", "none")], "Questions: nq, with nothing to search. Bands: 95 %."),
    ],
    ids=["elsewhere", "the same", "nowhere"],
)
def test_where_an_evaluation_searches(browser: Chrome, tmp_path: Path, sets: list[EvalSet], wanted: str) -> None:
    run = by_hand(tmp_path / "run", ["one ?"])
    run.config.write_text(to_yaml(fakes.config(data__eval=sets)))
    shown(browser, run, "overview")
    assert browser.run("VIEWS.overview.charts.held.note.textContent") == wanted


CONTRAST = """
(() => {
  const light = text => { const part = channels(text).map(one => one / 255).map(one => one <= .04045 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4);
    return .2126 * part[0] + .7152 * part[1] + .0722 * part[2]; };
  const card = light(colour("card"));
  return Object.fromEntries(NAMES.map(name => {
    const tone = light(colour(name));
    return [name, (Math.max(tone, card) + .05) / (Math.min(tone, card) + .05)];
  }));
})()
"""
DRAWN = "ink proposer solver referee right wrong void c1 c2 c3 c4 c5 bad grey wait focus"
"""Every tone of a line, a bar or a mark; those of the payoff map and of the bands lie beside each other, on no card."""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_what_is_drawn_can_be_seen(browser: Chrome, tmp_path: Path, dark: bool) -> None:
    run = by_hand(tmp_path / "run", ["one ?"])
    figured(run, {step: {"reject/malformed": 3.0} for step in (1, 2)})
    shown(browser, run, "overview", dark)
    found = browser.run(CONTRAST.replace("NAMES", json.dumps(DRAWN.split())))
    assert {name: ratio for name, ratio in found.items() if ratio < 3} == {}
    opacity = "VIEWS.overview.charts.reject.svg.querySelector('path').getAttribute('fill-opacity')"
    assert browser.run(opacity) == "1", "as strong as its tone"
    assert browser.run("WORKS.find(([work]) => work === 'wait')[1]") == "wait"


def test_a_run_without_records_says_so(browser: Chrome, tmp_path: Path) -> None:
    """No figures, no questions, no timeline: its buttons are off, and do nothing when pressed all the same."""
    browser.errors.clear()
    run = by_hand(tmp_path / "run", [])
    shown(browser, run, "machine")
    assert "nothing on record" in browser.run("VIEWS.machine.idle.root.innerText")
    buttons = browser.run("[...VIEWS.machine.timeline.root.querySelectorAll('button')].map(one => one.disabled)")
    assert buttons == [True] * 5
    browser.run(
        "VIEWS.machine.timeline.move(.5); VIEWS.machine.timeline.zoom(2); VIEWS.machine.timeline.turn(() => [0, 1])"
    )
    browser.click("#tab-questions")
    browser.until(
        "[...document.querySelectorAll('#questions .empty')].filter(one => one.checkVisibility()).length === 2"
    )
    assert "Choose" not in browser.run("document.getElementById('questions').innerText")
    assert browser.run("document.querySelector('#questions .side').innerText") == "no question yet"
    figured(run, {1: {}})
    shown(browser, run, "machine")
    assert "one process" in browser.run("VIEWS.machine.idle.root.innerText")
    assert browser.errors == []


def test_a_timeline_is_moved_by_its_buttons(browser: Chrome, stage: fakes.Stage) -> None:
    shown(browser, stage.folder, "machine")
    timeline = "VIEWS.machine.timeline"
    first = browser.run(f"{timeline}.window")
    ends: list[Any] = []
    for number in range(1, 6):
        browser.click(f"#machine .controls button:nth-child({number})")
        ends.append(browser.run(f"{timeline}.window"))
    wide = first[1] - first[0]
    assert ends[0] == pytest.approx([first[0] - wide / 2, first[1] - wide / 2]) and ends[1] == pytest.approx(first)
    assert ends[2] == pytest.approx([first[0] - wide / 2, first[1] + wide / 2]) and ends[3] == pytest.approx(first)
    assert ends[4] == pytest.approx([0, browser.run(f"{timeline}.end")])


def test_filters_that_nothing_fits_say_so(browser: Chrome, tmp_path: Path) -> None:
    run = by_hand(tmp_path / "run", ["one ?", "two ?"])
    shown(browser, run, "questions")
    gallery, nothing = "VIEWS.questions.gallery", "document.querySelector('#questions > .card:first-child .empty')"
    browser.until(f"{gallery}.found.length === 2 && !{nothing}.checkVisibility()")
    browser.run(f"{gallery}.search.value = 'none such'; {gallery}.search.dispatchEvent(new Event('input'))")
    browser.until(f"{nothing}.checkVisibility() && {nothing}.innerText === 'none fits the filters'")
    browser.run(f"{gallery}.search.value = ''; {gallery}.search.dispatchEvent(new Event('input'))")
    browser.until(f"{gallery}.found.length === 2 && !{nothing}.checkVisibility()")


def test_a_version_stands_against_the_opponent_of_its_time(browser: Chrome, stage: fakes.Stage) -> None:
    """Not against the newest one that it graded as a past version, nor against a past one that it met."""
    shown(browser, stage.folder, "versions")
    rounds = [[2, 1, 1, 2, 2], [1, 0, 0, 1, 1], [3, 1, 1, 2, 2], [4, None, None, 3, 3]]
    cells = [[1, 0], [1, 4], [2, 0], [2, 1], [2, 4], [3, 4]]
    browser.run(f"SSP.rounds = new Map({json.dumps([[row[0], row] for row in rounds])}); 0")
    assert browser.run(f"ofTheirTime({json.dumps(cells)})") == [[1, 0], [2, 1]]


def test_a_card_without_a_picture_takes_one_line(browser: Chrome, tmp_path: Path) -> None:
    """Its title and why, below the cards that have one."""
    run = by_hand(tmp_path / "run", ["one ?"])
    figured(run, {step: {"reject/malformed": 3.0} for step in (1, 2)})
    for view, least in (("overview", 3), ("machine", 3), ("curriculum", 4)):
        shown(browser, run, view)
        bare = f"[...document.querySelectorAll('#{view} .card.bare')]"
        assert browser.run(f"{bare}.length") >= least
        assert browser.run(f"Math.max(...{bare}.map(one => one.clientHeight))") < 70, "two lines where the text is long"
        assert browser.run(f"{bare}.filter(one => one.querySelector('svg, canvas').checkVisibility()).length") == 0
        drawn = f"[...document.querySelectorAll('#{view} figure.card:not(.bare)')].map(one => one.getBoundingClientRect().top)"
        tops = browser.run(drawn)
        if tops:
            assert browser.run(f"Math.min(...{bare}.map(one => one.getBoundingClientRect().top))") >= max(tops)
    shown(browser, run, "overview")
    assert browser.run("VIEWS.overview.charts.held.root.innerText") == "Held-out accuracy\nno evaluation yet"


def test_hop_counts_are_told_apart(browser: Chrome, tmp_path: Path) -> None:
    run = by_hand(tmp_path / "run", ["one ?"])
    log = RunLog(run.path)
    for step in (0, 5):
        log.write(step, "eval", {f"eval/accuracy_{hop}hop": 0.5 for hop in (1, 2, 3)} | {"eval/accuracy": 0.5})
    log.close()
    shown(browser, run, "overview")
    lines = "[...VIEWS.overview.charts.held.svg.querySelectorAll('path[fill=none]')]"
    colours = browser.run(f"{lines}.map(one => getComputedStyle(one).stroke)")
    patterns = browser.run(f"{lines}.map(one => one.getAttribute('stroke-dasharray'))")
    assert len(set(colours)) == 4 and len(set(patterns)) == 3 and patterns[:2] == [None, None]


def test_the_idle_share_is_strong_where_actors_are_idle(browser: Chrome, tmp_path: Path) -> None:
    run = by_hand(tmp_path / "run", ["one ?"])
    figured(run, {step: {"time/idle_share_solver-0": float(step == 1)} for step in (1, 2)})
    shown(browser, run, "machine")
    pixels = browser.run(
        """(() => { const idle = VIEWS.machine.idle, scale = devicePixelRatio, context = idle.canvas.getContext('2d');
        const at = place => [...context.getImageData((idle.left + (place + .5) * idle.cell) * scale, 9 * scale, 1, 1).data].slice(0, 3);
        return [at(0), at(1), channels(colour('solver')), channels(colour('faint'))]; })()"""
    )
    assert pixels[0] == pixels[2] and pixels[1] == pixels[3]


def test_plain_self_play_keeps_its_ratings_folded(browser: Chrome, stage: fakes.Stage, tmp_path: Path) -> None:
    run = by_hand(tmp_path / "run", [f"is it {at} ?" for at in range(350)])
    shown(browser, run, "league")
    seen = "[VIEWS.league.ratings, VIEWS.league.map].map(one => one.root.checkVisibility())"
    assert browser.run(seen) == [False, False] and browser.run("VIEWS.league.pairs.root.checkVisibility()")
    browser.click("#league summary")
    browser.until("VIEWS.league.map.canvas.clientHeight > 60 && VIEWS.league.ratings.svg.childElementCount > 3")
    assert browser.run(seen) == [True, True]
    browser.run("draw(true)")
    assert browser.run(seen) == [True, True], "news does not fold them again"
    shown(browser, stage.folder, "league")  # replayed questions compare its versions
    assert browser.run(seen) == [True, True] and browser.run("VIEWS.league.summary.checkVisibility()") is False


def test_reasons_are_whole_where_there_is_room(browser: Chrome, tmp_path: Path) -> None:
    run = by_hand(tmp_path / "run", [f"is it {at} ?" for at in range(20)])
    shown(browser, run, "questions")
    browser.run("SSP.questions.filter(one => one.rule).forEach(one => { one.rule = 'evidence_not_reachable'; })")
    browser.run("VIEWS.questions.gallery.draw()")
    said = "[...document.querySelectorAll('#questions .row span.dim')].filter(one => one.textContent.startsWith('evidence'))"
    browser.until(f"{said}.length > 0")
    assert browser.run(f"{said}.every(one => one.scrollWidth <= one.clientWidth)")
    heads = "[...document.querySelectorAll('#questions .head span')].map(one => Math.round(one.getBoundingClientRect().left))"
    cells = "[...document.querySelector('#questions .row:not([hidden])').children].map(one => Math.round(one.getBoundingClientRect().left))"
    assert browser.run(heads) == browser.run(cells)


def test_on_a_phone_the_views_show_that_they_scroll(browser: Chrome, stage: fakes.Stage) -> None:
    shown(browser, stage.folder, "overview")
    browser.call("Emulation.setDeviceMetricsOverride", width=360, height=800, deviceScaleFactor=1, mobile=False)
    try:
        nav = "document.querySelector('nav')"
        assert browser.run(f"{nav}.scrollWidth > {nav}.clientWidth")
        assert "local" in browser.run(f"getComputedStyle({nav}).backgroundAttachment")
    finally:
        browser.call("Emulation.clearDeviceMetricsOverride")
