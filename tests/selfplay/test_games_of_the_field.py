"""The published games are played as they are declared: what is asked about, who checks, what is paid, what is trained."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeLearner, Stage, proposer, scripted, solver, tokens, verifier, world

from ssp.base.gamespec import Keep
from ssp.base.played import Game
from ssp.config.schema import Config
from ssp.engines import ScriptedEngine
from ssp.game.games import cross_fit, dr_zero, forms, r_zero, similar
from ssp.game.games.forms import Message
from ssp.game.rewards import difficulty
from ssp.learning.algorithms.estimators import Hrpo
from ssp.learning.scored import Credit, Scored
from ssp.record.reader import RunReader
from ssp.selfplay import documents
from ssp.selfplay.questions.mixed import GivenQuestions
from ssp.selfplay.settings import load
from ssp.selfplay.settled import Settled
from ssp.selfplay.targets import TargetRow, Targets, keep_best
from ssp.selfplay.workers import build
from ssp.views.replay.round import repriced

GAMES = Path(__file__).parent / "games"
THINKS, SEARCHES = Message(True, 0), Message(True, 1)


def configured(game: str, **sizes: Any) -> Config:
    settings = [f"{key.replace('__', '.')}={value}" for key, value in sizes.items()]
    return load(str(GAMES / "small.yaml"), [f"game.kind={GAMES / 'field.py'}:{game}", *settings])


def script(ids: list[int], seed: int, turn: int) -> list[int]:
    """Every role's policy, as the prompt asks it."""
    text = tokens().decode(ids)
    asked = re.search(r"<q> (.*?) </q>", text)
    facts = re.findall(r"(\S+) (\S+) (\S+) \.", text)
    if text.startswith("<target> a </target>"):
        entity, relation, other = facts[seed % len(facts)] if facts else ("b", "seat", "")
        said = "nothing" if seed % 9 == 0 else f"<answer> {entity} {relation} ? {other} </answer>"
    elif asked and "</q> <think> </think>" in text:
        said = f"<answer> {world().answer(asked[1]) if seed % 3 else 'none'} </answer>"
    elif text.startswith("<information>") and asked:
        said = verifier(asked[1], text)
    elif asked:
        said = solver(asked[1], text.split("</q>", 1)[1].strip(), seed)
    else:
        said = proposer(text.split()[1], text.split("</target>", 1)[1].strip(), seed)
    return list(tokens().encode(f"{said} <eos>", add_special_tokens=False))


class Field(Stage):
    """A run about the passages of the test's world, or about nothing."""

    def items(self) -> list[TargetRow]:
        rows = self.cfg.spec.rows
        if rows == "nothing":
            return [TargetRow("")]
        if rows != "documents":
            return super().items()
        told = [{"document": one.contents, "source": one.id} for one in world().documents()]
        hops = [{"searches": str(1 + at % 4)} if self.cfg.spec.hops else {} for at in range(len(told))]
        return [TargetRow("", hints=one | more) for one, more in zip(told, hops, strict=True)]


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch)
    monkeypatch.setattr(build, "engine", lambda *args: ScriptedEngine(script))


@pytest.mark.covers("GA-03")
def test_spice_is_about_passages_and_is_answered_from_memory(tmp_path: Path) -> None:
    cfg = configured("SPICE", challenger__batch=8, reasoner__batch=6)
    stage = Field(cfg, tmp_path / "run").whole()
    rows, games = stage.rows(), {row["id"]: row for row in stage.rows("SELECT * FROM games")}
    valid = [game for game in games.values() if game["verdict"] == "valid"]
    assert valid and all(game["question"].endswith("?") and game["target"] for game in valid)
    refused = [game for game in games.values() if game["verdict"] == "rejected"]
    assert {game["rule"] for game in refused} <= {"malformed"} and all(game["target"] is None for game in refused)
    attempts = [row for row in rows if row["kind"] == "attempt"]
    assert {row["reward"] for row in attempts} == {0.0, 1.0}
    for row in rows:
        if row["kind"] == "proposal" and row["state"] == "trained":
            game = games[row["game_id"]]
            wanted = difficulty.variance(game["win_rate"]) if game["verdict"] == "valid" else -0.1
            assert row["reward"] == pytest.approx(wanted)
    assert {role for role, _, _ in FakeLearner.seen} == {"challenger", "reasoner"}


@pytest.mark.covers("GA-03")
def test_a_search_of_a_closed_stage_finds_nothing(tmp_path: Path) -> None:
    """The solver's own script searches first; from the corpus it would be right."""
    cfg = configured("SPICE", challenger__batch=8, reasoner__batch=6)
    spec = cfg.spec
    stage = Field(cfg, tmp_path / "run")
    seen = defaultdict(set)
    crew = stage.cast.players["reasoner"]
    perform = crew.perform

    async def watched(worker: int, call: Any, *args: Any) -> Any:
        if call.name == "play":
            for task in args[0]:
                seen[task.id[0]].add(task.corpus)
        return await perform(worker, call, *args)

    crew.perform = watched  # type: ignore[method-assign]
    stage.play()
    assert spec.plays["attempt"].closed and seen["s"] == {"none"} and "train" in set().union(*seen.values())


@pytest.mark.covers("GA-01")
def test_dr_zero_learns_from_one_proposal_and_keeps_the_best_of_the_others(tmp_path: Path) -> None:
    cfg = configured("DR_ZERO", proposer__batch=12, solver__batch=8, game__proposals=3)
    assert cfg.block("proposer").algorithm == "hrpo"
    stage = Field(cfg, tmp_path / "run").whole()
    games = {row["id"]: row for row in stage.rows("SELECT * FROM games")}
    tried: dict[int, list[int]] = defaultdict(list)
    for row in stage.rows():
        game = games[row["game_id"]] if row["game_id"] in games else {}
        if row["kind"] == "proposal" and row["state"] == "trained":
            assert game["number"] % 3 == 0  # never a candidate
            assert row["reward"] is not None
        if row["kind"] == "attempt" and row["state"] == "trained":
            assert game["number"] % 3 > 0  # always a candidate
            tried[game["number"] // 3].append(game["number"])
    assert tried and all(len(set(numbers)) == 1 for numbers in tried.values())
    paid = [row for row in stage.rows() if row["kind"] == "proposal" and row["reward"] is not None]
    for row in paid:
        game = games[row["game_id"]]
        if row["outcome"] == "scored":
            assert row["reward"] >= 0.5 * 0.25
            right = round(game["win_rate"] * 5)
            hard = difficulty.solved_once(right, 5)
            parts = 2 * (row["reward"] - hard) * 12  # f is of quarters, a tool's part of thirds
            assert parts == pytest.approx(round(parts))


def test_candidates_do_not_count_among_those_that_a_proposal_is_compared_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proposal that is alone with its hops is known to be, whatever candidates stand beside it."""
    seen: list[Sequence[Scored]] = []
    credits = Hrpo.credits

    def watched(self: Hrpo, episodes: Sequence[Scored]) -> list[Credit]:
        seen.append(episodes)
        return credits(self, episodes)

    monkeypatch.setattr(Hrpo, "credits", watched)
    Field(configured("DR_ZERO", proposer__batch=12, solver__batch=8, game__proposals=3), tmp_path / "run").whole()
    learned = [episodes for episodes in seen if episodes]
    assert learned
    for episodes in learned:
        alike = Counter(episode.asked for episode in episodes)
        assert [episode.peers for episode in episodes] == [alike[episode.asked] for episode in episodes]
        assert all(len({episode.grader for episode in episodes}) == 1 for episode in episodes)


@pytest.mark.covers("GA-01")
def test_dr_zero_as_published_lets_one_learn_at_a_time(tmp_path: Path) -> None:
    cfg = configured("DR_ZERO_IN_TURNS", proposer__batch=12, solver__batch=8, game__proposals=3)
    Field(cfg, tmp_path / "run").whole()
    assert {role for role, _, ids in FakeLearner.seen if ids} == {"proposer"}  # its first 50 steps


@pytest.mark.covers("GA-02")
def test_r_zero_takes_the_majority_for_right_and_asks_about_nothing(tmp_path: Path) -> None:
    cfg = configured("R_ZERO", challenger__batch=8, solver__batch=6)
    stage = Field(cfg, tmp_path / "run").whole()
    games = {row["id"]: row for row in stage.rows("SELECT * FROM games")}
    labelled = [game for game in games.values() if game["win_rate"] is not None]
    assert labelled and all(game["target"] and game["win_rate"] >= 0.5 for game in labelled)
    shares = defaultdict(list)
    for game in games.values():
        shares[game["round"]].append(game)
    for row in stage.rows():
        if row["kind"] != "proposal" or row["reward"] is None:
            continue
        game = games[row["game_id"]]
        asked = sorted(shares[game["round"]], key=lambda one: one["number"])
        questions = [one for one in asked if one["question"]]
        share = dict(
            zip(
                [one["id"] for one in questions],
                similar.shares([one["question"] for one in questions]),
                strict=True,
            )
        )
        mine = share.get(game["id"], 0.0)
        valid = game["verdict"] == "valid"
        assert row["reward"] == pytest.approx(difficulty.uncertainty(game["win_rate"]) - mine if valid else -1.0 - mine)
    assert r_zero.LEAST < r_zero.MOST


@pytest.mark.covers("GA-01", "RS-08")
@pytest.mark.parametrize(
    ("game", "sizes"),
    [
        ("DR_ZERO", {"proposer__batch": 12, "solver__batch": 8, "game__proposals": 3}),
        ("SPICE", {"challenger__batch": 8, "reasoner__batch": 6}),
        ("R_ZERO", {"challenger__batch": 8, "solver__batch": 6}),
        ("CROSS_FIT", {"proposer__batch": 8, "solver__batch": 6}),
        (
            "SEARCHMASTER",
            {"proposer__batch": 8, "solver__batch": 6, "game__proposals": 2, "defaults__tools": "[search]"},
        ),
    ],
)
def test_rewards_of_a_declared_game_are_priced_again_from_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, game: str, sizes: dict[str, Any]
) -> None:
    """And the advantages that follow from them are those that the learner was given."""
    given: dict[str, Credit] = {}
    made = Settled.give_credit

    def watched(self: Settled, role: str, credits: Sequence[Credit]) -> None:
        for scored, credit in zip(self.samples[role], credits, strict=True):
            given.setdefault(scored.id, credit)
        made(self, role, credits)

    monkeypatch.setattr(Settled, "give_credit", watched)
    cfg = configured(game, steps=2, eval__every=0, **sizes)
    stage = Field(cfg, tmp_path / "run").whole()
    reader = RunReader(stage.folder)
    reader.cfg = cfg
    seen: Counter[str] = Counter()
    rows = [row for row in stage.rows() if row["role"] != "eval" and row["state"] != "voided"]
    for row in [row for row in rows if row["kind"] == "proposal"] + rows[:: max(1, len(rows) // 20)]:
        results = repriced(reader, cfg, stage.targets(), row)
        untold = any(pay.grader for pay in cfg.spec.pay[row["role"]])  # and said to be so
        assert [str(one) for one in results if not one.same or (one.untold and not untold)] == [], row
        assert len(results) == (2 if row["state"] == "trained" else 1), row
        seen.update(one.what for one in results)
        for one in results[1:]:
            told = "NOT COMPARED, who graded" if untold else f"{given[row['id']][0]:.6f}"
            assert one.said.startswith(told), row
    assert seen["reward"] > 20 and seen["advantage"]


@pytest.mark.covers("GA-02")
def test_a_given_question_among_those_of_r_zero_has_its_own_answer(tmp_path: Path) -> None:
    """Whatever most attempts agree on (R-Few, arXiv 2512.02472)."""
    cfg = configured("R_ZERO", challenger__batch=8, solver__batch=6, game__given=0.34, data__questions="world:train")
    rows = [TargetRow("zz", "seat ?", ("zz",))]
    stage = Field(cfg, tmp_path / "run")
    given = GivenQuestions(rows, cfg.game.given, 6, cfg.seed)
    made = stage.targets
    stage.targets = lambda: Targets(stage.items(), 8, cfg.seed, given=given)  # type: ignore[method-assign]
    assert made().given.number(0) == 0
    stage.whole()
    games = stage.rows("SELECT * FROM games WHERE kind = 'given'")
    assert len(games) == 3 and {game["target"] for game in games} == {"zz"} and {g["win_rate"] for g in games} == {0.0}


def test_an_invalid_candidate_is_not_kept() -> None:
    """Its score is that of a verdict that has none."""
    cfg = configured("DR_ZERO", game__proposals=4)
    games = [Game(f"g{at}", at, "", guide=guide, valid=guide < 1.0) for at, guide in enumerate((0.9, 1.0, 0.5, 0.75))]
    (stage,) = [one for one in cfg.spec.stages if isinstance(one, Keep)]
    keep_best(cfg, stage, games)
    assert [game.id for game in games if game.passed_over] == ["g2"]


def test_proposals_that_different_graders_decided_are_in_different_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graders: dict[tuple[int, int], set[str]] = defaultdict(set)
    made = Settled.give_credit

    def watched(self: Settled, role: str, credits: Sequence[Credit]) -> None:
        for scored in self.samples[role] if role == "proposer" else ():
            graders[self.step, scored.group].add(scored.grader.split(":")[0])
        made(self, role, credits)

    monkeypatch.setattr(Settled, "give_credit", watched)
    sizes = {"proposer__batch": 32, "solver__batch": 32, "game__proposals": 2, "proposer__algorithm": "grpo"}
    Field(configured("CROSS_FIT", **sizes), tmp_path / "run").whole()
    assert set(cross_fit.FOLDS) <= set().union(*graders.values())
    assert {len(told) for told in graders.values()} == {1}


@pytest.mark.covers("GA-04")
def test_searchmaster_learns_nothing_from_a_seed_whose_best_question_earns_the_least(tmp_path: Path) -> None:
    cfg = configured("SEARCHMASTER", proposer__batch=8, solver__batch=6, game__proposals=2, defaults__tools="[search]")
    stage = Field(cfg, tmp_path / "run").whole()
    games = {row["id"]: row for row in stage.rows("SELECT * FROM games")}
    seeds: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in stage.rows():
        if row["kind"] == "proposal":
            seeds[games[row["game_id"]]["number"] // 2].append(row)
    rewards = [[row["reward"] for row in rows if row["reward"] is not None] for rows in seeds.values()]
    left = [rows for rows, known in zip(seeds.values(), rewards, strict=True) if max(known, default=0.2) <= 0.2]
    assert left and all(row["state"] != "trained" for rows in left for row in rows)


@pytest.mark.covers("GA-05")
def test_cross_fit_pays_by_who_never_trained_on_the_source(tmp_path: Path) -> None:
    cfg = configured("CROSS_FIT", proposer__batch=8, solver__batch=6)
    stage = Field(cfg, tmp_path / "run").whole()
    rows = stage.rows()
    by_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in ("audit", "study", "attempt")}
    assert {row["state"] for row in by_kind["audit"]} == {"kept"}
    auditors = {row["game_id"]: row["role"] for row in by_kind["audit"]}
    students = {row["game_id"]: row["role"] for row in by_kind["study"]}
    assert auditors and set(auditors) == set(students)
    assert all(auditors[game] != students[game] for game in auditors)
    assert {role for role, _, ids in FakeLearner.seen if ids} == {"proposer", "solver", *cross_fit.FOLDS}


@pytest.mark.parametrize(
    ("hops", "messages", "answered", "answer", "read", "score"),
    [
        (1, [THINKS], 0, "the red house", "in the red house", 1.0),
        (3, [SEARCHES, THINKS], 1, "x y", "x y", (1 + 1 + 2 / 3 + 1) / 4),
        (2, [THINKS], 0, "x", "x", 0.75),  # tool 0
        (4, [SEARCHES, SEARCHES, SEARCHES], 2, "x", "x", 0.75),  # one call was not answered
        (1, [SEARCHES], 0, "x", "x", 1.0),  # nor was this one, and one fact takes none
        (1, [THINKS], 0, "one two three four five six seven", "one two three four five six seven", 0.875),
        (1, [THINKS], 0, "The Lord of the Rings: the Return", "lord of rings return", 1.0),  # as normalised
        (2, [SEARCHES, THINKS], 1, "x", "nothing of it", 0.75),
        (1, [Message(False, 0), THINKS], 0, "yes", "", 0.875),
        (1, [THINKS], 0, "who", "who", 0.0),  # stands in the question
    ],
)
@pytest.mark.covers("GA-01")
def test_the_form_score_of_dr_zero(
    hops: int, messages: list[Message], answered: int, answer: str, read: str, score: float
) -> None:
    assert forms.form_score("who is it?", answer, hops, messages, answered, read) == pytest.approx(score, abs=1e-6)


def test_what_dr_zero_pays_in_all() -> None:
    """Its golden value: all think, two hops with one call, an answer that was not read; one of five is right."""
    score = forms.form_score("who is it?", "x", 2, [SEARCHES, THINKS], 1, "nothing of it")
    assert 0.5 * score + difficulty.solved_once(1, 5) == pytest.approx(1.375)


@pytest.mark.parametrize(
    ("final", "read"),
    [
        ("Who won the cup?\nAnswer: Ajax", ("Who won the cup?", "Ajax")),
        ("Who won the cup? Ajax", ("Who won the cup?", "Ajax")),
        ("Name the winner. answer: Ajax of Amsterdam", ("Name the winner.", "Ajax of Amsterdam")),
        ("What is the answer: A or B? answer: B", ("What is the answer: A or B?", "B")),
        ("Who won the cup?", None),
        ("answer: Ajax", None),
        ("Who won? answer: the", None),
        (None, None),
    ],
)
def test_a_question_is_read_with_its_answer(final: str | None, read: tuple[str, str] | None) -> None:
    assert forms.parts(final) == read


def test_passages_are_drawn_once_with_their_hops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = configured("DR_ZERO", proposer__batch=12, game__proposals=3)
    rows = documents.read(cfg)
    assert all(row.hints["document"] and row.hints["source"] for row in rows)
    hops = [int(row.hints["searches"]) for row in rows]
    assert set(hops) == {1, 2, 3, 4} and hops.count(1) > hops.count(4)
    monkeypatch.setattr(documents, "MOST", 10)
    few = documents.read(cfg)
    assert len(few) == 10 and few == documents.read(cfg)
    assert {row.hints["source"] for row in few} < {row.hints["source"] for row in rows}


def test_dr_zero_shows_the_first_words_of_a_passage_and_asks_the_first_of_a_question() -> None:
    long = " ".join(map(str, range(300)))
    from ssp.base.played import Game

    game = Game("g", 0, "", {"document": long, "searches": "2"}, question=long)
    assert len(dr_zero.passage(game, 0)["document"].split()) == dr_zero.PASSAGE_WORDS
    assert len(dr_zero.short_question(game, 0)["question"].split()) == dr_zero.QUESTION_WORDS
