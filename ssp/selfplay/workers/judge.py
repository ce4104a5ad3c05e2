"""The judge: the referee's verifier and the answer judge behind one worker. Promises that its calls
are pure: the same block gets the same verdicts and grades, whoever is asked."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ssp.base.episode import Document, Episode, Grade, Outcome, Verdict
from ssp.base.errors import InputError, InvariantError
from ssp.base.gamespec import Check
from ssp.base.played import Subject
from ssp.config.schema import Config
from ssp.game import protocols
from ssp.game.declaration import called
from ssp.game.judge import Item
from ssp.game.referee import EndpointVerifier, EngineVerifier, Referee
from ssp.game.referee.referee import Asked, Verifier
from ssp.game.rewards.score import graded
from ssp.selfplay.transfer.loader import Loader
from ssp.selfplay.transfer.parcel import Parcel
from ssp.selfplay.workers import build, verifier


class Judge:
    """The referee's verifier and the answer judge; `frozen` verifies with the start checkpoint."""

    def __init__(self, cfg: Config, model_dir: Path) -> None:
        self._cfg = cfg
        self._judge = build.judge(cfg, judge_seconds(cfg))
        self._referee: Referee | None = None
        self._loader: Loader | None = None
        checks = [stage for stage in cfg.spec.stages if isinstance(stage, Check)]
        self._checkers = {stage.name: stage.by for stage in checks if stage.by is not None}
        if cfg.spec.refereed:
            by = self._verifier(model_dir)
            guide = build.guide(cfg, judge_seconds(cfg))
            spoken = protocols.get(cfg.protocol)
            self._referee = Referee(cfg.referee, spoken, by, self._judge, cfg.seed, guide)

    def verify(
        self, block: list[Episode], asked: Asked, version: int = -1, parcel: Parcel | None = None
    ) -> tuple[list[Verdict], float]:
        """One verdict an episode, and the seconds it took. With a parcel, the live solver of
        `version` verifies."""
        if self._referee is None:
            raise InvariantError("nobody proposes in this game, so there is nothing to verify")
        started = time.perf_counter()
        if parcel is not None and self._loader is not None:
            self._loader.fit(version, parcel)
        shown: dict[str, Document] = {}
        for episode in block:
            shown |= {document.id: document for document in episode.documents}
        pool = [shown[id] for id in sorted(shown)]
        verdicts = self._referee.check(block, asked, lambda episode: pool)
        return verdicts, time.perf_counter() - started

    def check(
        self, block: list[Episode], subjects: Sequence[Subject], stage: str
    ) -> tuple[list[Verdict], float]:
        """One verdict an episode by the game's check `stage`, and the seconds it took."""
        started = time.perf_counter()
        checker = self._checkers[stage]
        verdicts = []
        for episode, subject in zip(block, subjects, strict=True):
            if episode.outcome is Outcome.VOID:
                verdicts.append(Verdict(False, void_cause=episode.cause))
            else:
                about = subject.target or subject.document[:80]
                told = f"game {episode.game} ({about})"
                args = self._cfg, episode, subject
                verdicts.append(called(self._cfg, checker, Verdict, told, *args))
        return verdicts, time.perf_counter() - started

    def grade(
        self, block: list[Episode], items: Sequence[tuple[int, Item]]
    ) -> tuple[list[Grade], float]:
        """A grade for each (row of the block, item), and the seconds it took. The answer is that of
        the row's episode."""
        started = time.perf_counter()
        answered = [replace(item, answer=block[row].final) for row, item in items]
        decisions = self._judge.decide(answered)
        # A reward reads what the policy wrote, which is not what stands between these tags.
        observed = (protocols.get(self._cfg.protocol).observation_form.tag,)
        grades = []
        for (row, item), decision in zip(items, decisions, strict=True):
            episode = block[row]
            role = self._cfg.block(episode.role)
            grades.append(graded(role, episode, item.golds, decision, observed=observed))
        return grades, time.perf_counter() - started

    def answers(self) -> bool:
        """Whether the endpoint that it asks, if any, gives a verdict now."""
        try:
            build.check_judge(self._cfg, judge_seconds(self._cfg))
        except InputError:
            return False
        return True

    def _verifier(self, model_dir: Path) -> Verifier | None:
        """The verifier, which answers a question from its evidence; None where there is none."""
        cfg = self._cfg
        if cfg.referee.verifier == "none":
            return None
        answerer = cfg.spec.answerer
        model_dir = verifier.folder(cfg, model_dir)
        renderer = build.renderer(cfg, answerer, model_dir, plays=False)
        if cfg.referee.verifier == "judge":
            return EndpointVerifier(build.endpoint(cfg, judge_seconds(cfg)), renderer, cfg.referee)
        engine = build.engine(cfg.answering, model_dir)
        if cfg.referee.verifier == "solver":
            self._loader = Loader(cfg, answerer, engine, plays=False)
        return EngineVerifier(engine, renderer, cfg.referee)


def judge_seconds(cfg: Config) -> float:
    """Seconds that one request to the endpoint may take. A call asks for answers and for verdicts
    on them, the same once more with `referee.closed_book`, and for a guide's scores; blocks may
    wait for each other."""
    place = cfg.placement
    waiting = math.ceil(max(place.players.values()) / place.judges)
    guided = any(block.guide == "judge" for block in cfg.blocks.values())
    requests = 2 * (1 + cfg.referee.closed_book) + guided
    return 0.8 / requests * place.call_timeout / waiting
