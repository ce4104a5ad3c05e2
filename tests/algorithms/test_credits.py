"""Credits: one number an episode or a turn, settled without torch; equal to what the learner would compute from tokens."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from ssp.base.errors import InvariantError
from ssp.learning import algorithms
from ssp.learning.algorithms.base import Algorithm
from ssp.learning.scored import Scored

SETTLED = [name for name in algorithms.names() if name != "gae"]
HOPS = {
    "1": ([1.5, 0.5, 0.0, 1.0], [1.161893, -0.387298, -1.161893, 0.387298]),
    "2": ([1.25, 0.75], [0.707105, -0.707105]),
    "3": ([0.9], [0.899999]),
    "4": ([0.5, 0.5, 0.5], [0.0, 0.0, 0.0]),
}
"""Of each number of hops the rewards and HRPO's advantages (Dr. Zero's released code)."""
ONE_BASELINE = [1.744066, -0.550758, -1.698169, 0.596654, 1.170360, 0.022948, 0.367172, *[-0.550758] * 3]


def scored(rewards: list[float], **facts: object) -> list[Scored]:
    return [Scored(reward, 0, len(rewards), peers=len(rewards), **facts) for reward in rewards]  # type: ignore[arg-type]


def numbers(credits: list[tuple[float, ...] | None]) -> list[float]:
    return [credit[0] for credit in credits if credit is not None]


def hops() -> list[Scored]:
    return [
        Scored(reward, number, asked=hop, peers=len(rewards))
        for number, (hop, (rewards, _)) in enumerate(HOPS.items())
        for reward in rewards
    ]


def test_hrpo_compares_a_proposal_with_those_that_were_asked_for_as_many_hops() -> None:
    wanted = [value for _, values in HOPS.values() for value in values]
    assert numbers(algorithms.get("hrpo").settle(hops())) == pytest.approx(wanted, abs=1e-6)
    assert numbers(algorithms.get("reinforce").settle(hops())) == pytest.approx(ONE_BASELINE, abs=1e-6)


def test_hrpo_compares_within_one_grader_and_leaves_nothing_to_whom_others_were_void_beside() -> None:
    by_two = [Scored(r, 0, asked="2", grader=g, peers=2) for r, g in ((1.0, 7), (0.0, 7), (0.2, 8), (0.8, 8))]
    got = numbers(algorithms.get("hrpo").settle(by_two))
    assert got[0] > 0 > got[1] and got[3] > 0 > got[2]
    assert numbers(algorithms.get("hrpo").settle([Scored(0.9, 0, asked="3", peers=2)])) == [0.0]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", SETTLED)
def test_credits_are_the_advantages_of_the_tokens(name: str, seed: int) -> None:
    """Attempts of up to three turns, each a run of tokens, that earn by turn; groups of several, and a group of one."""
    rng = random.Random(seed)
    episodes = []
    for group, size in enumerate((4, 3, 2, 1)):
        baseline = rng.random()
        for _ in range(size):
            tokens = tuple(rng.randint(1, 3) for _ in range(rng.randint(1, 3)))
            turns = tuple(rng.choice([0.0, 0.5, 1.0]) for _ in tokens)
            episodes.append(Scored(math.fsum(turns), group, size, turns, tokens, baseline, peers=10))
    width = max(sum(episode.tokens) + len(episode.tokens) for episode in episodes)
    mask = torch.zeros((len(episodes), width), dtype=torch.bool)
    earned = torch.zeros((len(episodes), width), dtype=torch.float64)
    for row, episode in enumerate(episodes):
        at = 0
        for count, reward in zip(episode.tokens, episode.turns, strict=True):
            mask[row, at + 1 : at + 1 + count] = True
            earned[row, at + count] = reward
            at += count + 1
    batch = SimpleNamespace(
        rewards=torch.tensor([episode.reward for episode in episodes], dtype=torch.float64),
        valid=torch.ones(len(episodes), dtype=torch.bool),
        groups=torch.tensor([episode.group for episode in episodes]),
        mask=mask,
        token_rewards=earned,
        baseline_rewards=torch.tensor([episode.baseline for episode in episodes], dtype=torch.float64),
    )
    wanted = algorithms.get(name).advantages(batch)  # type: ignore[arg-type]
    for row, credit in enumerate(algorithms.get(name).credits(episodes)):
        at, values = 0, credit if len(credit) > 1 else credit * len(episodes[row].tokens)
        for count, value in zip(episodes[row].tokens, values, strict=True):
            assert wanted[row, at + 1 : at + 1 + count].tolist() == pytest.approx([value] * count, rel=2e-7, abs=1e-7)
            at += count + 1


@pytest.mark.parametrize(
    ("name", "group", "taught"),
    [
        ("grpo", scored([1.0, 1.0]), False),
        ("grpo", scored([1.0, 0.0]), True),
        ("grpo", scored([0.4]), True),  # it was never to have another one
        ("grpo", [Scored(0.4, 0, expected=3)], False),
        ("rloo", scored([0.0, 0.0, 0.0]), False),
        ("grpo_turns", [Scored(1.0, 0, 2, (1.0, 0.0)), Scored(1.0, 0, 2, (0.0, 1.0))], True),
        ("grpo", [Scored(1.0, 0, 2, (1.0, 0.0)), Scored(1.0, 0, 2, (0.0, 1.0))], False),
        ("reinforce", scored([1.0, 1.0]), True),
        ("rae", scored([0.0]), True),
        ("gae", scored([1.0, 1.0]), True),
        ("reinforce_pp_baseline", scored([1.0, 1.0]), True),
        ("reinforce_pp_baseline", [Scored(0.4, 0, expected=3)], False),
        ("remax", scored([1.0, 1.0], baseline=1.0), False),
        ("remax", scored([1.0, 0.0], baseline=1.0), True),
        ("remax", scored([1.0, 0.0], baseline=math.nan), False),
        ("remax", [Scored(1.0, 0, 1, (1.0, 0.0), baseline=1.0)], True),
    ],
)
def test_what_teaches_nothing_is_dropped(name: str, group: list[Scored], taught: bool) -> None:
    credits = algorithms.get(name).settle(group)
    assert [credit is not None for credit in credits] == [taught] * len(group)
    if taught:
        assert all((credit == ()) is (name == "gae") for credit in credits)


def test_a_stateful_estimator_goes_on_from_its_state() -> None:
    for name in ("rae", "reinforce_running"):
        first, second = algorithms.get(name), algorithms.get(name)
        first.settle(scored([1.0, 0.0]))
        second.load_state_dict(first.state_dict())
        again = scored([0.5, 0.2])
        assert first.settle(again) == second.settle(again)


def test_a_reward_and_a_credit_are_finite_numbers() -> None:
    class Wild(Algorithm):
        name = "wild"

        def credits(self, episodes):  # type: ignore[no-untyped-def]
            return [(math.inf,) for _ in episodes]

    class Short(Wild):
        def credits(self, episodes):  # type: ignore[no-untyped-def]
            return []

    for estimator, reward in ((algorithms.get("grpo"), math.nan), (Wild(), 1.0), (Short(), 1.0)):
        with pytest.raises(InvariantError):
            estimator.settle(scored([reward]))


def test_the_nearest_method_of_a_class_decides_who_computes() -> None:
    class OfTokens(type(algorithms.get("grpo"))):  # type: ignore[misc]
        def advantages(self, batch):  # type: ignore[no-untyped-def]
            return batch.mask.float()

    made = OfTokens()
    assert made.in_learner and made.settle(scored([1.0, 0.0])) == [(), ()]
    assert made.settle(scored([1.0, 1.0])) == [None, None]
    assert algorithms.get("reinforce_pp").settle(scored([1.0, 0.0]), penalised=True) == [(), ()]


def test_credits_need_no_torch() -> None:
    program = (
        "import sys; from ssp.learning import algorithms; from ssp.learning.scored import Scored;"
        "algorithms.get('grpo_turns').settle([Scored(1.0, 0, 2), Scored(0.0, 0, 2)]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
