"""The board in a real browser: every view, keys, light and dark, 10,000 questions, while a run goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ssp.record.ledger import Ledger
from ssp.record.runfolder import RunFolder
from ssp.telemetry.runlog import RunLog
from ssp.views.board.data import Board
from ssp.views.board.saved import save
from tests.board.boarded import HOSTILE, by_hand, looked, serving
from tests.board.chrome import Chrome
from tests.selfplay import fakes

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]

VIEWS = ("overview", "league", "curriculum", "duel", "questions", "machine")


def seen(browser: Chrome) -> str:
    return str(browser.run("document.querySelector('main > section:not([hidden])').innerText"))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_each_view_by_a_click(browser: Chrome, stage: fakes.Stage, address: str, tmp_path: Path, dark: bool) -> None:
    """Light over HTTP, dark in the saved page, which needs no server."""
    if dark:
        save(looked(stage.folder), tmp_path / "board.html")
        address = (tmp_path / "board.html").as_uri()
    browser.errors.clear()
    browser.requests.clear()
    browser.open(address, dark)
    wanted = {
        "overview": "Solver learns|Left to learn of these questions|Can I trust it|Held-out accuracy|Why proposals fall|leakage",
        "league": "Ratings|Who is right against whom|pairs met",
        "curriculum": "How often questions were solved|Learnability|Near-duplicates|not measured: ssp bank",
        "duel": "Proposer|Referee|Solver|search|information|accepted|evidence|reward",
        "questions": "accepted|rejected|difficulty",
        "machine": "Accounts|issued|Timeline|one process|no GPU was seen",
    }
    for name in VIEWS:
        browser.click(f"#tab-{name}")
        browser.settled()
        text = browser.until(f"document.getElementById('{name}').innerText.length > 80") and seen(browser)
        for word in wanted[name].split("|"):
            browser.until(f"document.getElementById('{name}').innerText.includes({json.dumps(word)})")
        assert browser.run("document.querySelectorAll('main > section:not([hidden])').length") == 1, text
        assert browser.run("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than the window"
        browser.shot(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    assert browser.errors == []
    assert all(url.startswith((address, "data:", "about:")) for url in browser.requests)
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(json.loads(background.replace("rgb(", "[").replace(")", "]"))) < 200) is dark


def test_all_of_it_with_keys(browser: Chrome, address: str) -> None:
    browser.errors.clear()
    browser.open(address)
    for number, name in enumerate(VIEWS, start=1):
        browser.key(str(number))
        browser.until(f"SSP.view === '{name}'")
    browser.key("?")
    browser.until("document.getElementById('keys').open")
    browser.key("Escape")
    browser.until("!document.getElementById('keys').open")
    browser.run("document.getElementById('tab-machine').focus()")
    browser.key("ArrowRight")
    browser.until("SSP.view === 'overview' && document.activeElement.id === 'tab-overview'")
    for _ in range(4):  # the tools, then the first picture: only one tab of the views is a stop
        browser.key("Tab")
    for _ in range(20):
        if browser.run("document.activeElement.tagName") == "svg":
            break
        browser.key("Tab")
    browser.key("ArrowLeft")
    assert "step" in browser.run("document.activeElement.parentElement.querySelector('.legend').innerText")
    theme = browser.run("getComputedStyle(document.body).backgroundColor")
    browser.key("t")
    browser.until(f"getComputedStyle(document.body).backgroundColor !== '{theme}'")
    browser.key("t")
    browser.key("5")
    browser.until("VIEWS.questions.gallery.found.length > 0")
    browser.run("VIEWS.questions.gallery.rows.focus()")
    browser.key("ArrowDown")
    browser.key("ArrowDown")
    browser.until("VIEWS.questions.gallery.selected === 2")
    active = "document.activeElement.getAttribute('aria-activedescendant')"
    assert browser.run(f"document.getElementById({active}).ariaSelected") == "true"
    browser.key("End")
    browser.until("VIEWS.questions.gallery.selected === SSP.questions.length - 1")
    browser.key("Enter")
    browser.until("SSP.view === 'duel'")
    browser.key("k")
    browser.until("document.querySelector('#duel .asked') !== null")
    browser.key("/")
    browser.until("document.activeElement.type === 'search' && SSP.view === 'questions'")
    browser.key("x")
    browser.until("document.activeElement.value === 'x'")  # keys are text where one types
    browser.run("localStorage.clear()")
    assert browser.errors == []


def test_curriculum_figures_alarms_and_yardstick(browser: Chrome, tmp_path: Path) -> None:
    """Four bands, an alarm from step 5 to 7 and one more that lasts at the end, a yardstick: in the page without a server."""
    run = by_hand(tmp_path / "run", ["one ?", "two ?"])
    log = RunLog(run.path)
    for step in range(1, 13):
        figures = {"solved_0": 0.25, "solved_26-50": 0.5, "solved_100": 0.25, "near_duplicates": 0.05 * step}
        lasting = {"alarm_near_duplicates": float(5 <= step <= 7 or step >= 11)}
        values = {**figures, **lasting, "learnability": 0.4}
        log.write(step, "game", {f"curriculum/{name}": value for name, value in values.items()})
    log.close()
    rounds = [[step, 0.6, 0.5, 0.7, 0.5 - step / 100, 0.3, 0.6, 8] for step in (1, 6, 12)]
    run.yardstick.write_text(json.dumps({"policy": "start", "attempts": 4, "rounds": rounds}))
    save(looked(run), tmp_path / "board.html")
    browser.open((tmp_path / "board.html").as_uri() + "#curriculum")
    said = browser.run("VIEWS.curriculum.said.innerText")
    assert "near-duplicates, step 5 to 7 of 12." in said and "near-duplicates, step 11 to 12 of 12." in said
    marks = {
        name: browser.run(f"VIEWS.curriculum.charts.{name}.svg.querySelectorAll('rect').length")
        for name in ("near", "far")
    }
    assert marks == {"near": 2, "far": 0}
    label = browser.run("VIEWS.curriculum.charts.stick.svg.getAttribute('aria-label')")
    assert "the run's solver: from 60.0 % to 60.0 %" in label and "yardstick: from 49.0 % to 38.0 %" in label
    browser.run("VIEWS.curriculum.charts.solved.svg.focus()")
    browser.key("ArrowLeft")
    legend = browser.run("VIEWS.curriculum.charts.solved.legend.innerText")
    assert "step 12" in legend and "26-50 %" in legend and "50.0 %" in legend


def test_the_first_screen_compares_means_and_bands_have_a_width_at_the_ends(browser: Chrome, tmp_path: Path) -> None:
    run = by_hand(tmp_path / "run", ["one ?"])
    log = RunLog(run.path)
    for step in range(1, 13):
        value = {1: 0.4, 12: 0.4}.get(step, 0.5 if step < 7 else 0.3)
        log.write(step, "game", {"game/valid_rate": value, "game/win_rate": 0.02 if step < 7 else 0.5})
    for step, share in ((0, 0.0), (12, 1.0)):
        log.write(step, "eval", {"eval/accuracy": share, "eval/items": 20.0, "eval/stderr": 0.0})
    log.close()
    save(looked(run), tmp_path / "board.html")
    browser.open((tmp_path / "board.html").as_uri())
    browser.until("SSP.ready === true")
    assert "The solver learned: held-out accuracy +100.0 points" in browser.run("VIEWS.overview.told.innerText")
    cards = browser.run("VIEWS.overview.cards.innerText").replace("\u00a0", " ")
    assert "accepted questions 48.0 %" in cards, "single steps would be equal"
    assert "first and last 5 steps" in browser.run("VIEWS.overview.means.innerText")
    legend = browser.run("VIEWS.overview.charts.rate.legend.innerText")
    assert "accepted questions32.0 %" in legend.replace("\u00a0", " ")
    win = "VIEWS.overview.charts.win"
    assert browser.run(f"{win}.svg.querySelectorAll('rect.healthy').length") == 1
    assert "healthy 10 to 90 %" in browser.run(f"{win}.legend.innerText").replace("\u00a0", " ")
    assert browser.run(f"{win}.svg.viewBox.baseVal.width - {win}.svg.clientWidth") == 0, "drawn at its own size"
    numbers = browser.run(f"[...{win}.svg.querySelectorAll('text')].map(one => one.textContent.replace('\u00a0', ' '))")
    assert {"0 %", "100 %", "1", "12"} <= set(numbers)
    assert browser.run("document.querySelectorAll('.first circle').length") == 0
    boxes = "[...document.querySelectorAll('.first .card')].map(one => one.getBoundingClientRect())"
    for width, columns in ((1400, 2), (390, 1)):
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        browser.settled()
        assert browser.run(f"new Set({boxes}.map(box => box.top)).size") == 3 - columns
        if columns == 2:
            assert browser.run(f"Math.max(...{boxes}.map(box => box.bottom))") < 900, "above the fold"
    browser.call("Emulation.clearDeviceMetricsOverride")
    assert browser.run(f"{win}.spec.marks.map(one => [one.text, one.from, one.to])") == [["lost", 1, 6]]
    assert "lost, step 1 to 6 of 12" in browser.run("VIEWS.overview.alarms.innerText")
    bands = browser.run("VIEWS.overview.charts.held.spec.series[0].band")
    assert [round(value, 4) for band in bands for value in band[1:]] == [0.0, 0.1611, 0.8389, 1.0]
    browser.run("SSP.run.evaluation = { ...SSP.run.evaluation, name: 'mine', held: false }; draw(true)")
    browser.until("VIEWS.overview.charts.held.title === 'Accuracy on mine'")
    assert "held-out" not in browser.run("VIEWS.overview.charts.held.root.innerText").lower()
    assert browser.errors == []


def test_the_roles_are_those_of_the_game_and_dead_parts_are_hidden(browser: Chrome, tmp_path: Path) -> None:
    run = by_hand(tmp_path / "run", ["one ?"])
    log = RunLog(run.path)
    roles = ["challenger", "reasoner", "hinter"]
    for role in roles:
        for step in (1, 2):
            figures = {"reward/mean": 0.5, "reward/all": 0.4, "entropy": 1.0, "staleness/mean": 0.0, "grad_norm": 0.1}
            log.write(step, role, figures)
    log.close()
    save(looked(run), tmp_path / "board.html")
    browser.open((tmp_path / "board.html").as_uri())
    browser.until("SSP.ready === true")
    browser.run(f"Object.assign(SSP.run, {{ roles: {json.dumps(roles)}, asks: '', answers: 'reasoner' }}); draw(true)")
    browser.until("VIEWS.overview.charts.reward.spec.series.length === 3")
    drawn = browser.run(
        "VIEWS.overview.charts.reward.spec.series.map(one => [one.name, one.points.length, last(one.points)])"
    )
    assert drawn == [[role, 2, 0.4] for role in roles]
    assert len(set(browser.run("VIEWS.overview.charts.entropy.spec.series.map(one => one.colour)"))) == 3
    browser.run("Object.assign(VIEWS.overview.search, { value: 'NORM' }); VIEWS.overview.any()")
    assert browser.run("VIEWS.overview.free.filter(chart => !chart.root.hidden).map(chart => chart.title)") == [
        "grad_norm"
    ]
    assert "norm of the gradient" in browser.run("VIEWS.overview.free[0].note.innerText")
    # nobody asks, and nothing is stale at bound 0: no versions, no staleness, no reasons of rejected proposals
    assert browser.run("view('tab-league').hidden && VIEWS.overview.charts.reject.root.hidden")
    assert "Why proposals fall" in browser.run("VIEWS.overview.absent.innerText")
    browser.run("go('machine')")
    browser.until("VIEWS.machine.stale.root.hidden && VIEWS.machine.absent.innerText.includes('bound 0')")
    assert "proposer" not in browser.run("VIEWS.machine.absent.innerText") and browser.errors == []


def test_runs_over_each_other_in_steps_hours_and_tokens(browser: Chrome, tmp_path: Path) -> None:
    """Names of figures and of runs come from files: none is markup."""
    hostile = "<img src=x onerror=document.title='taken'>"
    names = ["first", hostile.replace("/", "")]
    for name, share in zip(names, (0.5, 0.25), strict=True):
        run = by_hand(tmp_path / name, ["one ?"])
        lines = []
        for step in range(1, 5):
            line = {"step": step, "role": "game", "time": 3600.0 * step, "game/win_rate": share, "game/tokens": 1000.0}
            lines.append(json.dumps({**line, hostile: 1.0}))
        run.metrics.write_text("\n".join(lines) + "\n")
    board = Board(*[RunFolder(tmp_path / names[0]), [RunFolder(tmp_path / names[1])]])
    board.look()
    save(board, tmp_path / "board.html")
    browser.open((tmp_path / "board.html").as_uri())
    browser.until("SSP.ready === true")
    win = "VIEWS.overview.charts.win"
    drawn = f"{win}.spec.series.map(one => one.points)"
    assert browser.run(drawn) == [[[step, share] for step in range(1, 5)] for share in (0.5, 0.25)]
    for axis, places in (("hours", [0, 1, 2, 3]), ("tokens", [1000, 2000, 3000, 4000])):
        browser.run(f"view('axis').value = '{axis}'; view('axis').dispatchEvent(new Event('change'))")
        browser.until(f"{win}.spec.unit === '{axis}'")
        assert browser.run(drawn) == [[[place, share] for place in places] for share in (0.5, 0.25)]
    browser.run("Object.assign(VIEWS.overview.search, { value: 'img' }); VIEWS.overview.any()")
    assert "<img" in browser.run("VIEWS.overview.free[0].root.innerText")
    assert "<img" in browser.run("view('name').innerText") and "<img" in browser.run("VIEWS.overview.told.innerText")
    assert browser.run("VIEWS.overview.told.querySelector('.headline').innerText").startswith("first: ")
    assert browser.run("go('curriculum'); view('name').innerText") == "first", "what other views show is of one run"
    assert browser.run("document.querySelectorAll('img').length") == 0 and "taken" != browser.run("document.title")
    assert browser.errors == []


def test_the_most_instructive_duel_comes_first_and_silent_rows_are_marked(browser: Chrome, tmp_path: Path) -> None:
    run = by_hand(tmp_path / "run", ["all ?", "half ?", "none ?"], rates=lambda at: (1.0, 0.5, 0.0)[at])
    save(looked(run), tmp_path / "board.html")
    browser.open((tmp_path / "board.html").as_uri() + "#duel")
    browser.until("document.querySelector('#duel .asked') !== null")
    assert browser.run("document.querySelector('#duel .asked').innerText").startswith("half ?")
    assert browser.run("VIEWS.duel.pick.options[0].text").startswith("50 % right, step 1: half ?")
    browser.run("go('questions')")
    browser.until("document.querySelectorAll('#questions .row .silent').length === 3")
    gallery = "VIEWS.questions.gallery"
    assert browser.run(f"{gallery}.found[0].question") == "none ?", "the newest"
    browser.run("SSP.questions[0].told = true; document.body.append(h('i', { id: SSP.questions[0].id }))")
    browser.run(f"{gallery}.filter()")
    browser.until(f"{gallery}.found[0].question === 'all ?'")  # of one step what has a transcript comes first


def test_pictures_are_whole_and_a_class_that_was_not_asked_is_0(browser: Chrome, tmp_path: Path) -> None:
    run = by_hand(tmp_path / "run", ["one ?"])
    log = RunLog(run.path)
    solved = {"curriculum/solved_0": 0.33334, "curriculum/solved_1-25": 0.33334, "curriculum/solved_100": 0.33334}
    for step in range(1, 11):
        asked = {"game/asked_1hop": 0.5, "game/asked_2hop": 0.5} if step < 6 else {"game/asked_2hop": 1.0}
        log.write(step, "game", {**solved, **asked})
    log.close()
    save(looked(run), tmp_path / "board.html")
    browser.open((tmp_path / "board.html").as_uri() + "#curriculum")
    browser.until("VIEWS.curriculum.charts.asked.spec.series.length === 2")
    asked_now = browser.run("VIEWS.curriculum.charts.asked.legend.innerText").replace("\u00a0", " ")
    assert "1 hop0.0 %" in asked_now and "2 hops100.0 %" in asked_now
    numbers = browser.run(
        "[...VIEWS.curriculum.charts.solved.svg.querySelectorAll('text')].map(one => one.textContent)"
    )
    shares = [text for text in numbers if "%" in text]
    assert shares == ["0 %", "25 %", "50 %", "75 %", "100 %"], "what is rounded sums to more than 1"
    chart = "VIEWS.curriculum.charts.learn"
    browser.run(f"{chart}.draw({{ unit: 'solver version', series: [line('a', 'ink', [[1, 0], [2, 1]])] }})")
    assert browser.run(f"Math.min(...[...{chart}.svg.querySelectorAll('text')].map(one => one.getBBox().x))") >= 0
    assert browser.errors == []


def test_what_is_chosen_stays_when_there_is_news(browser: Chrome, address: str) -> None:
    browser.open(address + "#questions")
    gallery = "VIEWS.questions.gallery"
    browser.until(f"{gallery}.found.length === SSP.questions.length")
    browser.run(f"{gallery}.select(3)")
    chosen = browser.run(f"{gallery}.found[3].id")
    browser.run("dispatchEvent(new Event('resize'))")
    browser.run("new Promise(done => setTimeout(done, 600))")
    assert browser.run(f"[{gallery}.selected, {gallery}.duel.id]") == [3, chosen]


def test_hostile_questions_are_shown_and_do_nothing(browser: Chrome, tmp_path: Path) -> None:
    run = by_hand(tmp_path / "run", [HOSTILE, "one ?"], "<img src=x onerror=\"document.title='taken'\">")
    save(looked(run), tmp_path / "board.html")
    with serving(looked(run)) as address:
        for url in ((tmp_path / "board.html").as_uri(), address):
            browser.open(url + "#questions")
            browser.until("document.querySelectorAll('#questions .row:not([hidden])').length === 2")
            assert "<script>document.title" in seen(browser)
            assert "taken" not in browser.run("document.title")
            assert browser.run("document.querySelectorAll('main img, main script').length") == 0


def test_ten_thousand_questions_are_searched_sorted_and_scrolled(browser: Chrome, tmp_path: Path) -> None:
    words = ["mayor", "founder", "capital", "author", "river", "school", "trade"]
    asked = [f"who is the {words[at % 7]} of the {words[at % 5]} {at} by the {words[at % 3]} ?" for at in range(10_000)]
    save(looked(by_hand(tmp_path / "run", asked)), tmp_path / "board.html")
    gallery = "VIEWS.questions.gallery"

    def search(text: str, few: bool) -> None:
        browser.run(f"{gallery}.search.value = '{text}'; {gallery}.search.dispatchEvent(new Event('input'))")
        browser.until(f"{gallery}.count.textContent {'!' if few else '='}== '10,000 of 10,000'")

    browser.open((tmp_path / "board.html").as_uri())
    assert browser.run("SSP.questions.length") == 10_000
    browser.click("#tab-questions")
    browser.until(f"{gallery}.found.length === 10000")
    assert browser.run("document.querySelectorAll('#questions .row').length") < 80, "only what is in sight exists"
    search("river of", few=True)
    assert 0 < browser.run(f"{gallery}.found.length") < 2000
    search("", few=False)
    for order, first in (
        ("hardest", "one.hard === 1"),
        ("most played", "one.games === 1"),
        ("easiest", "one.hard === 0"),
    ):
        browser.run(f"{gallery}.order.value = '{order}'; {gallery}.order.dispatchEvent(new Event('change'))")
        browser.until(f"[{gallery}.found[0]].every(one => {first})")
    for at in range(1, 40):
        browser.run(f"{gallery}.rows.scrollTop = {at * 7400}")
        browser.settled()
    browser.run(f"{gallery}.rows.focus()")
    for key in ("End", "PageDown", "Home", "ArrowDown"):
        browser.key(key)
    for name in VIEWS:
        browser.click(f"#tab-{name}")
        browser.settled()


def test_a_run_is_followed(browser: Chrome, tmp_path: Path) -> None:
    run = by_hand(tmp_path / "run", ["one ?", "two ?"])
    with serving(looked(run)) as url:
        browser.open(url + "#questions")
        browser.until("document.querySelectorAll('#questions .row:not([hidden])').length === 2")
        ledger = Ledger(run.ledger)
        game = {"id": "g0000009-i1", "target": "t", "question": "three ?", "verdict": "rejected", "rule": "leakage"}
        ledger.create_games([{**game, "proposer_version": 2, "attempts": 4, "round": 2, "incarnation": 1}])
        ledger.close()
        browser.run("POLL.still = POLL.live = 100; poll().then(() => true)")
        browser.until("document.querySelectorAll('#questions .row:not([hidden])').length === 3")
        run.metrics.write_text("broken\n")
        browser.until("document.getElementById('trouble').innerText.includes('metrics')")
