"""The rewards of a whole round again, from its record: for games that price an episode by others.

The games are built as they were when they were settled, and settled once more. Refuses to guess: a
judge's words, a guide's score and past versions' games are not on record."""

from collections import defaultdict
from collections.abc import Sequence

from ssp.base.episode import GIVEN, GREEDY, REPLAYED, Grade, Outcome
from ssp.base.gamespec import Check, Grading, Rate
from ssp.base.played import Brief, Game, Subject
from ssp.config import games, own
from ssp.config.schema import Config
from ssp.game import protocols, voids
from ssp.game.judge import same
from ssp.game.rewards.score import score
from ssp.record.ledger.rows import EpisodeRow, GameRow, Row
from ssp.record.reader import RunReader
from ssp.selfplay.credit import Credits
from ssp.selfplay.settle import settle
from ssp.selfplay.targets import Targets
from ssp.views.replay import priced
from ssp.views.replay.compared import Result, compared, untold


def repriced(reader: RunReader, cfg: Config, targets: Targets, entry: Row) -> list[Result]:
    """The reward of an episode on record beside the one of its round, settled again; and its
    advantage now, of which there is no record. `targets`: the run's rows."""
    if own.sealed(cfg.game.kind):
        return [priced.sealed(games.place(cfg.game.kind))]
    missing = _missing(cfg)
    if missing:
        return [untold("reward", f"it depends on {missing}, which is not on record")]
    played = _Rebuilt(reader, cfg, targets).games(entry["round"], entry["incarnation"])
    asked_by = max((game.asked_by for game in played if game.asked_by is not None), default=None)
    settled = settle(cfg, played, asked_by, entry["round"], Credits(cfg))
    now = {row["id"]: row["reward"] for row in settled.rows}
    results = [compared("reward", entry["reward"], now.get(entry["id"]))]
    graded_elsewhere = any(pay.grader for pay in cfg.spec.pay.get(entry["role"], ()))
    for sample in settled.samples[entry["role"]]:
        if sample.id == entry["id"] and sample.credit:
            if graded_elsewhere:
                why = "who graded follows from the question's source, which is not on record"
                return [*results, untold("advantage", why)]
            told = ", ".join(f"{number:.6f}" for number in sample.credit)
            by = cfg.block(entry["role"]).algorithm
            results.append(Result("advantage", True, f"{told}, by {by}; there is no record of it"))
    return results


def _missing(cfg: Config) -> str:
    """What the rewards of a round depend on and no record has; "" for nothing."""
    graded_by_judge = any(
        isinstance(stage, Grading) and stage.by is None for stage in cfg.spec.stages
    )
    if graded_by_judge and cfg.judge.kind != "exact":
        return "the judge's word"
    if cfg.league.match != "self":
        return "who played whom"
    if cfg.asking.guide:
        return "the guide's score"
    return ""


class _Rebuilt:
    """The games of one run, as they were before they were settled."""

    def __init__(self, reader: RunReader, cfg: Config, targets: Targets) -> None:
        self._reader = reader
        self._cfg = cfg
        self._spec = cfg.spec
        self._targets = targets

    def games(self, round_: int, incarnation: int) -> list[Game]:
        """The games of a round, in the order in which they are settled."""
        rows, entries = self._reader.settled()
        issued: dict[str, dict[tuple[str, int], EpisodeRow]] = defaultdict(dict)
        for entry in sorted(entries, key=lambda one: one["issue"]):
            issued[entry["game_id"]][entry["kind"], entry["attempt"]] = entry
        games = []
        for row in rows:
            if (row["round"], row["incarnation"]) == (round_, incarnation):
                games.append(self._game(row, list(issued[row["id"]].values())))
        games.sort(key=lambda game: (game.kind != GIVEN, game.number < 0, abs(game.number)))

        chosen = [game for game in games if game.chosen]
        for stage in self._spec.stages:
            if isinstance(stage, Grading):
                for game in chosen:
                    self._grade(stage, game)
        # What asks is rated by the batches in which it was asked.
        size = self._cfg.asking.batch
        asked = [game for game in games if game.number >= 0]
        for stage in self._spec.before:
            if isinstance(stage, Rate):
                for start in range(0, len(asked), size):
                    _rate(self._cfg, stage, asked[start : start + size])
        for stage in self._spec.after:
            if isinstance(stage, Rate):
                _rate(self._cfg, stage, games)
        return games

    def _game(self, row: GameRow, entries: Sequence[EpisodeRow]) -> Game:
        number = row["number"] or 0
        game = Game(row["id"], number, row["target"] or "", kind=row["kind"])
        if number >= 0:
            game.hints = self._targets.item(number).hints
            game.source = game.hints.get("source", "")
        game.question = row["question"] or ""
        game.valid = row["verdict"] == "valid"
        game.void_cause = row["rule"] or "" if row["verdict"] == "void" else ""
        game.rule = row["rule"] or "" if row["verdict"] == "rejected" else ""
        game.asked_by = row["proposer_version"]
        for entry in sorted(entries, key=lambda one: one["attempt"]):
            self._add(game, entry)
        game.chosen = bool(game.attempts) or row["kind"] in (GIVEN, REPLAYED)
        game.tried_by = max((one.version_max for one in game.attempts), default=-1)
        return game

    def _add(self, game: Game, entry: EpisodeRow) -> None:
        """Add an episode to its game, and what the game's own checks say of a proposal."""
        episode = self._reader.episode(entry)
        brief = voids.marked(self._cfg, Brief.of(episode, entry["file"] or "", entry["row"] or 0))
        if entry["kind"] == self._spec.answers:
            game.attempts.append(brief)
        elif entry["kind"] == GREEDY:
            game.greedy = brief
        elif entry["kind"] != self._spec.asks:
            game.others.setdefault(entry["kind"], []).append(brief)
        else:
            game.proposal = brief
            item = self._targets.item(game.number)
            searches = int(item.hints.get("searches") or 0)
            subject = Subject(item.target, searches, item.hints.get("document", ""))
            checks = [stage.by for stage in self._spec.stages if isinstance(stage, Check)]
            for check in checks:
                if check is not None and game.valid:
                    verdict = check(self._cfg, episode, subject)
                    game.guide *= verdict.guide
                    game.source = verdict.source or game.source

    def _grade(self, stage: Grading, game: Game) -> None:
        """Grade the episodes of a stage as the judge, or the game itself, did."""
        episodes = [*self._spec.episodes(game, stage.of)]
        known = [one for one in episodes if one.outcome is not Outcome.VOID]
        if stage.by is not None and not game.anchors:
            marking = stage.by(self._cfg, game, known)
            game.grades |= marking.grades
            return
        observed = (protocols.get(self._cfg.protocol).observation_form.tag,)
        for brief in known:
            block = self._cfg.block(brief.role)
            episode = self._reader.block(brief.file)[brief.row]
            right = same(brief.final, (game.target,)) if brief.final is not None else False
            options = block.reward_options
            earned, _ = score(
                block.reward, options, episode, (game.target,), Grade(right), observed
            )
            game.grades[brief.id] = Grade(right, earned)


def _rate(cfg: Config, stage: Rate, games: Sequence[Game]) -> None:
    numbers = stage.by(cfg, games)
    for game in games:
        game.rates[stage.name] = numbers[game.id]
