"""Every estimator against its formula written out in plain Python: ragged rows, observations, voids, discount, token
rewards."""

from __future__ import annotations

import math
from statistics import fmean as mean
from statistics import stdev as std
from types import SimpleNamespace

import pytest
import torch

from ssp.learning import algorithms

NAN = float("nan")
GAMMA, LAM, EPS = 0.9, 0.8, 1e-6
WIDTH = 12


@pytest.fixture(params=[(seed, by_token) for seed in range(4) for by_token in (False, True)], ids=str)
def batch(request):
    """12 rows in groups of 5, 4, 2 and 1; some void; everything that nobody may read is NaN or 1e9."""
    seed, by_token = request.param
    generator = torch.Generator().manual_seed(seed)
    groups = torch.tensor([0] * 5 + [1] * 4 + [2] * 2 + [3])
    n = len(groups)
    mask = torch.rand((n, WIDTH), generator=generator) > 0.4
    mask[:, 0], mask[:, 3] = False, True
    valid = torch.rand(n, generator=generator) > 0.25
    valid[0] = valid[5] = valid[11] = True
    rewards = torch.rand(n, dtype=torch.float64, generator=generator)
    tokens = 0.1 * torch.randn((n, WIDTH), dtype=torch.float64, generator=generator)
    tokens[torch.arange(n), [int(torch.nonzero(row).max()) for row in mask]] += rewards
    on = mask & valid[:, None]
    fields = {
        "rewards": torch.where(valid, rewards, NAN),
        "valid": valid,
        "groups": groups,
        "mask": mask,
        "values": torch.where(on, torch.randn((n, WIDTH), dtype=torch.float64, generator=generator), NAN),
        "baseline_rewards": torch.rand(n, dtype=torch.float64, generator=generator),
        "token_rewards": None,
    }
    fields["baseline_rewards"][5] = NAN
    if by_token:
        fields["token_rewards"] = torch.where(on, tokens, 1e9)
    return SimpleNamespace(**fields)


class Rows:
    """The same batch as Python lists: for each valid row its places, its token rewards, its values."""

    def __init__(self, batch):
        self.valid = [i for i, on in enumerate(batch.valid.tolist()) if on]
        self.groups = batch.groups.tolist()
        self.places = {i: torch.nonzero(batch.mask[i]).squeeze(1).tolist() for i in self.valid}
        given = batch.token_rewards
        self.rewards = {}
        for i, places in self.places.items():
            if given is None:
                self.rewards[i] = [0.0] * (len(places) - 1) + [float(batch.rewards[i])]
            else:
                self.rewards[i] = [float(given[i, t]) for t in places]
        self.totals = {i: math.fsum(rewards) for i, rewards in self.rewards.items()}

    def survivors(self, i):
        return [self.totals[j] for j in self.valid if self.groups[j] == self.groups[i]]

    def returns(self, rewards):
        """sum over k of gamma^k r_{t+k}, t over model tokens."""
        return [math.fsum(GAMMA**k * r for k, r in enumerate(rewards[t:])) for t in range(len(rewards))]

    def constant(self, per_row):
        return {i: [value] * len(self.places[i]) for i, value in per_row.items()}

    def whitened(self, per_token):
        every = [x for xs in per_token.values() for x in xs]
        return {i: [(x - mean(every)) / (std(every) + EPS) for x in xs] for i, xs in per_token.items()}


def group_size(rows, i):
    return rows.groups.count(rows.groups[i])


def grpo(rows, batch, divide=True):
    """v survivors of n attempts: their mean, their spread over v - 1; one of several: 0; one of one: mean 0, std 1."""
    out = {}
    for i in rows.valid:
        left = rows.survivors(i)
        if len(left) > 1:
            out[i] = (rows.totals[i] - mean(left)) / (std(left) + EPS if divide else 1.0)
        else:
            out[i] = rows.totals[i] / (1 + EPS if divide else 1.0) if group_size(rows, i) == 1 else 0.0
    return rows.constant(out)


def grpo_turns(rows, batch):
    """Turn by turn, what was still earned from its first token on; a turn is a run of model tokens."""
    runs = {i: [] for i in rows.valid}
    for i, found in runs.items():
        for n, place in enumerate(rows.places[i]):
            if n == 0 or place != rows.places[i][n - 1] + 1:
                found.append(n)
    still = {i: [math.fsum(rows.rewards[i][n:]) for n in found] for i, found in runs.items()}
    out = {i: [] for i in rows.valid}
    for i in rows.valid:
        ends = [*runs[i][1:], len(rows.places[i])]
        for turn, (begin, end) in enumerate(zip(runs[i], ends, strict=True)):
            left = [still[j][min(turn, len(still[j]) - 1)] for j in rows.valid if rows.groups[j] == rows.groups[i]]
            if len(left) > 1:
                advantage = (still[i][turn] - mean(left)) / (std(left) + EPS)
            else:
                advantage = still[i][turn] / (1 + EPS) if group_size(rows, i) == 1 else 0.0
            out[i] += [advantage] * (end - begin)
    return out


def rloo(rows, batch):
    """r_i less the mean of the v - 1 others that are left."""
    out = {}
    for i in rows.valid:
        others = [rows.totals[j] for j in rows.valid if rows.groups[j] == rows.groups[i] and j != i]
        out[i] = rows.totals[i] - mean(others) if others else 0.0
    return rows.constant(out)


def reinforce(rows, batch):
    left = [rows.totals[i] for i in rows.valid]
    return rows.constant({i: (rows.totals[i] - mean(left)) / (std(left) + EPS) for i in rows.valid})


def reinforce_pp(rows, batch):
    return rows.whitened({i: rows.returns(rows.rewards[i]) for i in rows.valid})


def reinforce_pp_baseline(rows, batch):
    """The mean is of raw rewards, whatever else tokens earned."""
    out = {}
    for i in rows.valid:
        left = [float(batch.rewards[j]) for j in rows.valid if rows.groups[j] == rows.groups[i]]
        alone = len(left) == 1
        baseline = (0.0 if group_size(rows, i) == 1 else left[0]) if alone else mean(left)
        *before, last = rows.rewards[i]
        out[i] = rows.returns([*before, last - baseline])
    return rows.whitened(out)


def remax(rows, batch):
    """0 where the greedy answer is void."""
    out = {}
    for i in rows.valid:
        baseline = float(batch.baseline_rewards[i])
        out[i] = [0.0 if math.isnan(baseline) else g - baseline for g in rows.returns(rows.rewards[i])]
    return out


def gae(rows, batch):
    out = {}
    for i in rows.valid:
        values = [float(batch.values[i, t]) for t in rows.places[i]] + [0.0]
        deltas = [r + GAMMA * values[t + 1] - values[t] for t, r in enumerate(rows.rewards[i])]
        out[i] = [math.fsum((GAMMA * LAM) ** k * d for k, d in enumerate(deltas[t:])) for t in range(len(deltas))]
    return out


def rae(rows, batch):
    """Before the j-th valid row, b = sum over earlier ones of 0.05 * 0.95^(their age) r."""
    out = {}
    for j, i in enumerate(rows.valid):
        earlier = [rows.totals[k] for k in rows.valid[:j]]
        out[i] = rows.totals[i] - math.fsum(0.05 * 0.95 ** (j - 1 - k) * r for k, r in enumerate(earlier))
    return rows.constant(out)


FORMULAS = {
    "grpo": grpo,
    "dr_grpo": lambda rows, batch: grpo(rows, batch, divide=False),
    "grpo_turns": grpo_turns,
    "rloo": rloo,
    "reinforce": reinforce,
    "hrpo": reinforce,  # a batch in which all rows ask for the same
    "reinforce_none": lambda rows, batch: rows.constant(rows.totals),
    "reinforce_running": lambda rows, batch: rows.constant(rows.totals),  # the first batch of all
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_baseline": reinforce_pp_baseline,
    "remax": remax,
    "gae": gae,
    "rae": rae,
}


@pytest.mark.covers("SR-01", "SR-02", "SR-03", "EP-07")
@pytest.mark.parametrize("name", algorithms.names())
def test_the_formula_on_whoever_is_left(batch, name):
    """Advantages are float32, so equal to the float64 formula within its rounding."""
    got = algorithms.get(name, GAMMA, LAM).advantages(batch)
    rows = Rows(batch)
    want = torch.zeros(batch.mask.shape, dtype=torch.float64)
    for i, values in FORMULAS[name](rows, batch).items():
        want[i, rows.places[i]] = torch.tensor(values, dtype=torch.float64)
    torch.testing.assert_close(got.double(), want, atol=1e-7, rtol=2e-7)
    assert bool((want[batch.valid] != 0).any())


def small(rewards, groups=None):
    """One model token a row."""
    n = len(rewards)
    rewards = torch.tensor(rewards, dtype=torch.float64)
    return SimpleNamespace(
        rewards=rewards,
        valid=~torch.isnan(rewards),
        groups=torch.tensor(groups or [0] * n),
        mask=torch.ones((n, 1), dtype=torch.bool),
        token_rewards=None,
        baseline_rewards=None,
    )


def of(name, batch, **options):
    return algorithms.get(name, **options).advantages(batch)[:, 0].tolist()


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "grpo_turns", "rloo", "reinforce_pp_baseline"])
def test_the_only_survivor_of_a_group_has_nothing_to_be_compared_with(name):
    got = of(name, small([0.7, NAN, NAN, 1.0, 0.0], [0, 0, 0, 1, 1]))
    assert got[:3] == [0.0, 0.0, 0.0] and got[3] > 0 > got[4]


@pytest.mark.covers("SR-03")
def test_the_running_baseline_is_the_fading_mean_of_earlier_batches():
    algorithm, none = algorithms.get("reinforce_running"), algorithms.get("reinforce_none")
    batches = [[1.0, 0.0, NAN, 0.5], [NAN, NAN], [0.2, 0.4], [1.0]]
    means = [0.5, None, 0.3, 1.0]  # a batch of voids is no batch
    for step, rewards in enumerate(batches):
        earlier = [m for m in means[:step] if m is not None]
        weights = [0.9**age for age in range(len(earlier))][::-1]
        b = sum(w * m for w, m in zip(weights, earlier, strict=True)) / sum(weights) if earlier else 0.0
        got = algorithm.advantages(small(rewards))[:, 0].tolist()
        assert got == pytest.approx([0.0 if math.isnan(r) else r - b for r in rewards])
        assert none.advantages(small(rewards))[:, 0].tolist() == pytest.approx(
            [0 if math.isnan(r) else r for r in rewards]
        )
        resumed = algorithms.get("reinforce_running")
        resumed.load_state_dict(algorithm.state_dict())
        assert resumed.state_dict() == algorithm.state_dict()
        algorithm = resumed
    assert none.state_dict() == {}


@pytest.mark.covers("U16")
def test_grpo_turns_is_grpo_where_only_last_turns_earn_and_tells_turns_apart_else():
    """Three attempts of two, two and three turns; `_` is an observation."""
    mask = torch.tensor([[1, 1, 0, 1, 0, 0], [1, 0, 1, 1, 0, 0], [1, 0, 1, 0, 0, 1]]).bool()
    fields = {"valid": torch.ones(3, dtype=torch.bool), "groups": torch.zeros(3, dtype=torch.long), "mask": mask}
    fields["baseline_rewards"] = None
    outcome = SimpleNamespace(rewards=torch.tensor([1.0, 0.0, 0.0]), token_rewards=None, **fields)
    same = [algorithms.get(name).advantages(outcome) for name in ("grpo", "grpo_turns")]
    assert torch.equal(*same)
    tokens = torch.zeros(mask.shape, dtype=torch.float64)
    tokens[0, 3], tokens[1, 0], tokens[2, 2] = 1.0, 0.5, 0.5  # an answer; a good first turn; a good second one
    got = algorithms.get("grpo_turns").advantages(
        SimpleNamespace(rewards=tokens.sum(1), token_rewards=tokens, **fields)
    )
    first, second, third = (1.0, 0.5, 0.5), (1.0, 0.0, 0.5), (1.0, 0.0, 0.0)
    for turn, (earned, columns) in enumerate(((first, (0, 0, 0)), (second, (3, 2, 2)), (third, (None, None, 5)))):
        for row, column in enumerate(columns):
            if column is not None:
                wanted = (earned[row] - mean(earned)) / (std(earned) + EPS)
                assert float(got[row, column]) == pytest.approx(wanted, abs=1e-6), (turn, row)
