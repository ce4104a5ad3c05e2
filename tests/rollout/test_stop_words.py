"""Stop strings that span tokens, with a byte-level tokenizer, on the scripted engine and on the torch engine."""

from __future__ import annotations

import numpy as np
import pytest
from scripts import LIMITS, Books, Chain, encode, play, tasks, with_tokens

from ssp.engines import Engine, ScriptedEngine
from ssp.game import protocols
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import Settings, rollout

FIRST = ["<search>", " city ", "</sea", "rch>\n\n"]
SECOND = ["<answer> so ", "\\boxed{x}", " </ans", "wer>?", "<|im_end|>"]
TOKENS = with_tokens(*FIRST, *SECOND[:-1])
RESEARCH = Renderer(protocols.get("research"), TOKENS, "plain")
FOLLOWS = dict(zip([":", *FIRST[:-1]], FIRST, strict=True)) | dict(zip([">", *SECOND[:-1]], SECOND, strict=True))
"""What the chain says after the prompt's last token, and after that of an observation."""


def ids(texts: list[str]) -> list[int]:
    return [id_ for text in texts for id_ in encode(TOKENS, text)]


def engines() -> dict[str, Engine]:
    turns = [ids([*FIRST, "never said"]), ids([*SECOND, "never said"])]
    return {
        "scripted": ScriptedEngine(lambda history, seed, turn: turns[turn], version=7),
        "torch": Chain(TOKENS, FOLLOWS).engine(),
    }


@pytest.mark.covers("SR-27", "SS-12", "RS-04")
@pytest.mark.parametrize("kind", ["scripted", "torch"])
def test_what_was_sampled_is_kept_although_the_text_goes_past_the_tag(kind: str) -> None:
    books = Books()
    (episode,) = play([[""]], books, RESEARCH, engine=engines()[kind])
    assert (books.calls, episode.final, episode.stopped) == ([["city"]], "x", "final")
    sampled = [id_ for id_, mask in zip(episode.log.ids, episode.log.mask, strict=True) if mask]
    assert sampled == ids([*FIRST, *SECOND])
    assert "</search>\n\n <result>\n" in episode.response and episode.response.endswith("</answer>?<|im_end|>")
    again = TOKENS("".join(FIRST), add_special_tokens=False)["input_ids"]
    assert again == ids(FIRST) and RESEARCH.encode(["</search>"])[0] != ids(FIRST[2:]), "its border lies inside a token"
    assert set(episode.log.versions) == {-1, 7}


@pytest.mark.covers("SR-27", "SS-12")
def test_logprobs_of_the_rollout_are_those_of_a_full_forward() -> None:
    chain = Chain(TOKENS, FOLLOWS, strength=16.0)
    episodes, _ = rollout(chain.engine(), RESEARCH, Books(), tasks(12), Settings(LIMITS, 1.0, 3))
    for episode in episodes:
        full, mask = chain.logprobs(episode.log.ids), episode.log.mask
        assert np.abs(np.asarray(episode.log.logprobs)[mask] - full[mask]).max() < 1e-4
        assert not np.asarray(episode.log.logprobs)[~mask].any()
    assert len({tuple(episode.log.ids) for episode in episodes}) > 1
    assert any(episode.queries for episode in episodes)


def test_a_stop_that_is_written_byte_by_byte() -> None:
    turns = [[i for c in "<search>q</search>" for i in encode(TOKENS, c)], ids(SECOND)]
    engine = ScriptedEngine(lambda history, seed, turn: [*turns[turn], *ids([" more"])])
    books = Books()
    (episode,) = play([[""]], books, RESEARCH, engine=engine)
    assert books.calls == [["q"]] and "more" not in episode.response
