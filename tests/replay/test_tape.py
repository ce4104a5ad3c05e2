"""What the tests of the rollout play, in every protocol and at every limit, comes out of its record again."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "rollout"))

import scripts
import test_chat_tools
import test_overflow
import test_rollout
import test_sources
import test_turns

from ssp.base.episode import Document, Episode, Outcome, Task
from ssp.base.tokenlog import Kind
from ssp.config.role import SourceConfig
from ssp.game import rollout as room
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import Settings
from ssp.views.replay.tape import along

PLAYED = (scripts, test_chat_tools, test_overflow, test_rollout, test_sources, test_turns)
PLAYING = {
    "test_the_mask_is_the_policys_text_and_nothing_else",
    "test_the_log_is_the_templates_rendering_of_the_conversation",
    "test_several_queries_in_one_turn",
    "test_overflow_drops_the_oldest_observation_and_never_the_question",
    "test_the_first_searches_are_real_and_later_information_is_the_policys_own",
    "test_recall_calls_its_function_in_its_own_turn",
    "test_bytes_that_are_no_text_are_kept_as_they_were_sampled",
}
"""Tests of which some episode must have been replayed."""
NAMES = ("queries", "hits", "final", "stopped", "invalid")


def cases() -> Iterator[Any]:
    """Tests without fixtures; one with parameters of its own once for each."""
    for module in PLAYED:
        for name, test in sorted(vars(module).items()):
            if (
                not name.startswith("test_") or not inspect.isfunction(test) or "megabyte" in name
            ):  # seconds, for one turn
                continue
            marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
            wanted = list(inspect.signature(test).parameters)
            if not wanted:
                yield pytest.param(test, {}, id=name)
            elif len(marks) == 1 and [part.strip() for part in _names(marks[0])] == wanted:
                for number, values in enumerate(marks[0].args[1]):
                    each = values if len(wanted) > 1 else (values,)
                    yield pytest.param(test, dict(zip(wanted, each, strict=True)), id=f"{name}-{number}")


def _names(mark: Any) -> Sequence[str]:
    names: str | Sequence[str] = mark.args[0]
    return names.split(",") if isinstance(names, str) else names


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of episodes that were replayed right after they were played."""
    seen: list[str] = []
    real = room.rollout

    def both(
        engine: Any, renderer: Renderer, search: Any, tasks: Sequence[Task], settings: Settings, *told: Any
    ) -> Any:
        episodes, seconds = real(engine, renderer, search, tasks, settings, *told)
        for task, played in zip(tasks, episodes, strict=True):
            if played.outcome is not Outcome.VOID:
                seen.append(played.id)
                same(played, task, renderer, settings)
        return episodes, seconds

    for module in PLAYED:
        if hasattr(module, "rollout"):
            monkeypatch.setattr(module, "rollout", both)
    return seen


def same(played: Episode, task: Task, renderer: Renderer, settings: Settings) -> None:
    record = replace(played, documents=[Document(document.id, "") for document in played.documents])
    now = along(record, task, renderer, settings)
    for name in NAMES:
        assert getattr(now, name) == getattr(played, name), name
    for name in ("ids", "kinds", "versions", "logprobs", "drops"):
        assert getattr(now.log, name) == getattr(played.log, name), name


@pytest.mark.parametrize(("test", "values"), list(cases()))
def test_what_a_test_of_the_rollout_plays(
    test: Callable[..., None], values: dict[str, Any], replayed: list[str]
) -> None:
    test(**values)
    assert replayed or test.__name__ not in PLAYING


def test_a_turn_that_goes_on_past_its_end_is_cut_and_so_found() -> None:
    source = SourceConfig()
    (episode,) = scripts.play([[scripts.search("a"), scripts.ANSWER]], scripts.Books(), source=source)
    settings = Settings(scripts.LIMITS, 0.0, 3, source)
    (task,) = scripts.tasks(1)
    begin = episode.log.kinds.index(Kind.OBSERVATION)
    for at in range(begin, begin + 3):  # planted: the policy is said to have written them
        episode.log.kinds[at], episode.log.versions[at] = int(Kind.MODEL), 0
    now = along(episode, task, scripts.SEARCH_R1, settings)
    assert now.log.kinds[:begin] == episode.log.kinds[:begin] and now.log.ids != episode.log.ids
