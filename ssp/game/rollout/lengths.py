"""Token limits beside what a policy will really read and write: prompts, passages, the tags of a turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ssp.base.episode import Document
from ssp.config.role import LimitsConfig, RoleConfig
from ssp.game.protocols import calls
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout.settings import longest

_TURN_TOKENS, _WORDS = 500, 3
"""Tokens of a turn in Search-R1; a turn has room for so many times its tags."""


def notes(
    role: str,
    block: RoleConfig,
    renderer: Renderer,
    prompts: Sequence[Mapping[str, str]],
    passages: Sequence[Document],
) -> list[str]:
    """What does not fit the limits of `role`. `prompts`: the fields of each prompt; `passages`: a sample of the corpus."""
    protocol, limits, found = renderer.protocol, block.limits, []

    def sizes(texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in renderer.encode(texts)]

    asked = max(sizes([renderer.prompt(role, dict(fields)) for fields in prompts]), default=0)
    if asked > limits.prompt_tokens:
        found.append(
            f"the longest of {len(prompts)} prompts of the {role} has {asked} tokens, more than {role}.limits."
            f"prompt_tokens={limits.prompt_tokens} counts on: {_set(role, limits, prompt_tokens=asked)}"
        )
    if passages and limits.searches and block.search.kind != "self":
        each = sizes([protocol.observation([document]) for document in passages])
        shown = int(np.quantile(each, 0.99, method="higher"))
        if shown > limits.observation_tokens:
            found.append(
                f"the 99th percentile of {len(each)} passages, each shown alone, is {shown} tokens: what is above {role}."
                f"limits.observation_tokens={limits.observation_tokens} is cut. To show it, "
                f"{_set(role, limits, observation_tokens=shown)}"
            )
    search = f"<{protocol.search.tag}>{calls.written('', protocol.search.form)}</{protocol.search.tag}>"
    (tags,) = sizes([f"<think></think>{search}" if "think" in protocol.kinds else search])
    turn = min([limits.turn_tokens, *(stage.turn_tokens for stage in limits.stages if stage.turn_tokens)])
    if turn < _WORDS * tags:
        found.append(
            f"the tags of one turn take {tags} tokens of {role}.limits.turn_tokens={turn}: "
            f"{_set(role, limits, turn_tokens=_TURN_TOKENS)}"
        )
    return found


def _set(role: str, limits: LimitsConfig, **changes: Any) -> str:
    """The settings to type for `changes`, with the total that they need."""
    changed = replace(limits, **changes)
    if limits.overflow == "stop" and longest(changed) > limits.total_tokens:
        changes["total_tokens"] = longest(changed)
    return "set " + " ".join(f"{role}.limits.{key}={value}" for key, value in changes.items())
