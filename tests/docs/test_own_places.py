"""A user's own code by its place: how it is found, refused, looked at, located and recorded."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from launch.nodes.code import printed
from ssp.base.errors import Fault, InputError
from ssp.config import own
from ssp.game import protocols, rewards
from ssp.game.protocols import calls
from ssp.game.rewards import proposer
from ssp.game.rewards.options import number
from ssp.learning import algorithms, kl, losses
from ssp.selfplay.scene import concrete, read_scene
from ssp.selfplay.settings import load
from tests.choices import choices
from tests.refusing import refused

CODE = """
import dataclasses
import torch
from ssp.learning.algorithms.base import Algorithm, over_tokens
from ssp.base.errors import Fault

@dataclasses.dataclass
class Kept:
    number: int = 3

def even(win_rate, question, scale=1.0):
    return scale * len(question) * win_rate
def none():
    return 1.0
def text(win_rate):
    return "much"
def broken(win_rate):
    return 1 / 0
def down(response, golds):
    raise Fault("licence_server")

class Mean(Algorithm):
    def __init__(self, gamma=1.0, lam=1.0):
        super().__init__(gamma, lam)
        self.seen = 0
    def advantages(self, batch):
        self.seen += 1
        return over_tokens(batch.rewards.nan_to_num() * self.gamma * batch.valid, batch.mask)
    def state_dict(self):
        return {"seen": self.seen}
    def load_state_dict(self, state):
        self.seen = state["seen"]
class Everywhere(Mean):
    def advantages(self, batch):
        return torch.ones(batch.mask.shape)
class Row(Mean):
    def advantages(self, batch):
        return batch.rewards
class Critic(Mean):
    needs_values = True
class Half(Algorithm):
    pass
class Compared(Mean):
    needs_group = True

def plain(tokens, options):
    return -tokens.advantages * tokens.logprobs, torch.zeros_like(tokens.logprobs, dtype=torch.bool)
def trusted(tokens, options):
    return -tokens.advantages * tokens.ratio(), tokens.ratio().detach() > 1 + options.clip_high
trusted.trust_region = True
def mean(tokens, options):
    return plain(tokens, options)[0].mean(), None

def squared(logprobs, reference):
    return (logprobs - reference).square()
def third(logprobs, reference, behaviour):
    return logprobs
def summed(logprobs, reference):
    return (logprobs - reference).sum()
def words(logprobs, reference):
    return "much"
def endless(logprobs, reference):
    return logprobs / 0
def detached(logprobs, reference):
    return (logprobs - reference).detach()
"""


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(CODE)
    (tmp_path / "sulks.py").write_text("x = 1\nraise OSError('no licence')\n")
    monkeypatch.chdir(tmp_path)
    return file


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("solver.reward=gone.py:reward", "gone.py. Next: check the path: it counts from the working folder"),
        ("solver.reward=mine.py:reward", "mine.py:reward: AttributeError"),
        ("solver.reward=sulks.py:reward", "OSError: no licence (line 2)"),
        ("solver.reward=mine.py:Kept.number", "not a callable"),
        ("solver.reward=nowhere.mine:reward", "No module named 'nowhere'"),
        ("proposer.reward=mine.py:none", "called with (win_rate)"),
        ("proposer.reward=mine.py", "or your own my_file.py:name"),
        ("proposer.reward_options.guide=gone.py:guide", "gone.py. Next: check the path"),
        ("proposer.reward_options.guide=mine.py:none", "called with (question)"),
        ("solver.algorithm=mine.py:plain", "is a class that inherits Algorithm"),
        ("solver.algorithm=mine.py:Critic", "has no critic"),
        ("solver.algorithm=mine.py:Half", "neither credits nor advantages"),
        ("solver.algorithm=Mean", "or your own my_file.py:name"),
        ("solver.loss=mine.py:Gone", "mine.py:Gone"),
        ("solver.loss=mine.py:Kept.number", "not a callable"),
        ("solver.loss=mine.py:none", "called with (tokens, options)"),
        ("solver.loss=huber", "or your own my_file.py:name"),
        ("solver.kl.kind=gone.py:squared", "gone.py. Next: check the path: it counts from the working folder"),
        ("solver.kl.kind=mine.py:Gone", "write `def Gone(logprobs, reference):` there"),
        ("solver.kl.kind=mine.py:Kept.number", "not a callable"),
        ("solver.kl.kind=mine.py:third", "called with (logprobs, reference)"),
        ("solver.kl.kind=k9", "or your own my_file.py:name"),
    ],
)
def test_a_place_that_leads_nowhere_is_refused_with_the_reason(typed: str, said: str) -> None:
    assert said in str(refused(typed))


@pytest.mark.parametrize(
    "typed",
    [
        ["schedule.max_staleness.solver=1"],
        ["solver.learner.minibatch=8"],
        ["defaults.policy=shared", "proposer.algorithm=grpo", "proposer.loss=ppo_clip", "proposer.learner.lr=5e-4"],
    ],
)
def test_off_policy_needs_a_loss_that_says_it_is_made_for_that(typed: list[str]) -> None:
    """Law 5, for losses of one's own."""
    said = str(refused(*typed, "solver.loss=mine.py:plain"))
    assert "solver.loss" in said and "mine.py:plain" in said
    if "schedule.max_staleness.solver=1" in typed:
        assert "trust_region = True" in said
        load("quickstart", [*typed, "solver.loss=mine.py:trusted"])
    load("quickstart", ["solver.loss=mine.py:plain"])


@pytest.mark.parametrize("agent", ["gone.py:solve", "mine.py:none"])
def test_an_agent_that_is_none_is_refused_before_anything_starts(agent: str) -> None:
    pytest.importorskip("openai")
    with pytest.raises(InputError, match="of your own code exists|an agent is an async function"):
        read_scene(load("quickstart", [f"solver.agent={agent}"]))


def test_an_estimator_that_says_it_needs_a_group_gets_one() -> None:
    assert "game.attempts is at least 2" in str(refused("solver.algorithm=mine.py:Compared", "game.attempts=1"))
    load("quickstart", ["solver.algorithm=mine.py:Mean", "game.attempts=1"])


def test_settings_that_own_code_may_read_are_let_pass() -> None:
    load("quickstart", ["solver.algorithm=mine.py:Mean", "solver.lam=0.8"])
    load("quickstart", ["solver.loss=mine.py:plain", "solver.clip_high=0.5"])
    assert "overflow=drop" in str(refused("solver.algorithm=mine.py:Mean", "solver.limits.overflow=drop"))


def test_a_proposers_reward_gets_what_it_takes() -> None:
    cfg = load("quickstart", ["proposer.reward=mine.py:even", "proposer.reward_options={scale: 2}"]).proposer
    facts = {"question": "who?", "target": "x", "searches": 3}
    assert proposer.reward(cfg.reward, 0.5, cfg, facts) == 4.0
    assert "takes these options: scale" in str(
        refused("proposer.reward=mine.py:even", "proposer.reward_options={size: 2}")
    )
    assert "takes these options: scale" in str(
        refused("proposer.reward=mine.py:even", "proposer.reward_options={question: 2}")
    )
    plain = load("quickstart").proposer
    for name, said in (("text", "returns a finite number. Found: 'much'"), ("broken", "mine.py, line 18")):
        with pytest.raises(InputError, match=said):
            proposer.reward(f"mine.py:{name}", 0.5, plain, facts)


def test_a_fault_stays_a_fault() -> None:
    with pytest.raises(Fault, match="licence_server"):
        number("mine.py:down", lambda: rewards.get("mine.py:down")("", ["x"]))


def batch() -> Any:
    mask = torch.tensor([[0, 1, 1, 0], [0, 1, 0, 0], [0, 1, 1, 1]], dtype=torch.bool)
    rewards_ = torch.tensor([1.0, 0.5, float("nan")])
    return SimpleNamespace(
        rewards=rewards_, valid=torch.tensor([1, 1, 0]).bool(), groups=torch.zeros(3).long(), mask=mask
    )


def test_an_estimator_of_ones_own() -> None:
    made = algorithms.get("mine.py:Mean", gamma=0.5)
    assert made.name == "mine.py:Mean"
    assert made.advantages(batch()).tolist() == [[0, 0.5, 0.5, 0], [0, 0.25, 0, 0], [0, 0, 0, 0]]
    assert made.state_dict() == {"seen": 1}
    again = algorithms.get("mine.py:Mean")
    again.load_state_dict(made.state_dict())
    assert again.state_dict() == {"seen": 1}


@pytest.mark.parametrize(("name", "said"), [("Everywhere", "0 off the model tokens"), ("Row", r"\(3, 4\)")])
def test_an_estimator_that_breaks_a_law_ends_the_run(name: str, said: str) -> None:
    """Laws 1 and 2: nothing but a valid row's own tokens has an advantage."""
    with pytest.raises(InputError, match=said):
        algorithms.get(f"mine.py:{name}").advantages(batch())


def test_a_loss_of_ones_own() -> None:
    logprobs = torch.tensor([-1.0, -2.0], requires_grad=True)
    tokens = losses.Tokens(logprobs, logprobs.detach(), torch.ones(2), torch.zeros(2).long())
    value, clipped = losses.get("mine.py:trusted")(tokens, losses.LossOptions())
    value.sum().backward()
    assert logprobs.grad is not None and logprobs.grad.tolist() == [-1.0, -1.0] and not clipped.any()
    assert losses.looks_back("mine.py:trusted") and not losses.looks_back("tis")
    with pytest.raises(InputError, match="a loss a token, and whether it is clipped"):
        losses.get("mine.py:mean")(tokens, losses.LossOptions())


def test_a_kl_of_ones_own_may_act_everywhere() -> None:
    typed = ["solver.kl.kind=mine.py:squared", "solver.kl.coef=0.1"]
    for place in choices("solver.kl.place"):
        load("quickstart", [*typed, f"solver.kl.place={place}"])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("summed", r"one number a token. Found: torch.Size\(\[\]\). Next: return a tensor of \(2,\)"),
        ("words", "one number a token. Found: str"),
        ("endless", "gives finite numbers"),
        ("detached", "has a gradient where it is in the loss"),
    ],
)
def test_a_kl_that_is_none_ends_the_run(name: str, said: str) -> None:
    logprobs = torch.tensor([-1.0, -2.0], requires_grad=True)
    with pytest.raises(InputError, match=said):
        kl.get(f"mine.py:{name}")(logprobs, torch.zeros(2))
    assert kl.get("mine.py:detached")(logprobs.detach(), torch.zeros(2)).tolist() == [-1.0, -2.0]
    diverged = torch.tensor([float("nan"), -2.0])
    assert kl.get("mine.py:squared")(diverged, torch.zeros(2))[1] == 4.0, "that is not the function's fault"


def test_workers_get_absolute_places_and_checkpoints_prints(mine: Path) -> None:
    typed = [
        "solver.algorithm=mine.py:Mean",
        "proposer.reward=mine.py:even",
        "proposer.kl.kind=mine.py:squared",
        "solver.reward=ssp.learning.tiny.reward:letters",
    ]
    cfg = load("quickstart", typed)
    located = dataclasses.replace(concrete(cfg))
    assert located.solver.algorithm == f"{mine}:Mean" and located.proposer.reward == f"{mine}:even"
    assert located.proposer.kl.kind == f"{mine}:squared" and cfg.proposer.kl.kind == "mine.py:squared"
    assert located.solver.reward == "ssp.learning.tiny.reward:letters" and cfg.solver.algorithm == "mine.py:Mean"
    before = own.mark(located)
    names = {"solver.algorithm", "proposer.reward", "proposer.kl.kind"}
    assert before == own.mark(cfg) and set(before["own"]) == names
    nodes = printed(cfg, 1)
    mine.write_text(CODE + "\n# changed\n")
    assert own.mark(located) != before
    changed = {name for name, value in printed(cfg, 1).items() if nodes[name] != value}
    assert changed == {f"code of {name}" for name in names}
    others = [name for name in names if name != "proposer.kl.kind"]
    with pytest.raises(InputError, match="proposer.kl.kind is mine.py:squared"):
        own.check_same(own.prints(cfg), before["own"], others)
    own.check_same(own.prints(cfg), before["own"], [*others, "proposer.kl"])
    assert own.mark(load("quickstart")) == {}


def test_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    other = tmp_path / "other" / "mine.py"
    other.parent.mkdir()
    other.write_text("def even(win_rate):\n    return 7.0\n")
    cfg = load("quickstart").proposer
    assert proposer.reward(f"{other}:even", 0.5, cfg) == 7.0
    assert proposer.reward("mine.py:even", 0.5, cfg, {"question": "ab"}) == 1.0


CALL = 'search("{query}")'


def test_a_call_in_a_form_of_ones_own() -> None:
    assert calls.split('search("who wrote Emma?")', CALL) == ("who wrote Emma?",)
    assert calls.split('  search("x")\n', CALL) == ("x",)
    none = ["who wrote Emma?", 'search("")', 'search("  ")', 'search("a', 'search("a") search("b")', 'find("a")']
    assert [written for written in (*none, 'search(")', "") if calls.split(written, CALL) != ()] == []


def test_a_form_reads_what_it_writes() -> None:
    for form in (CALL, '{"ask": "{query}"}', "q: {query}", "text"):
        assert calls.split(calls.written("two words", form), form) == ("two words",)


def test_a_protocol_with_such_a_form(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    text = "id: own\nversion: 1\ninherits: search-r1\nsearch: {form: 'FORM'}\n"
    file.write_text(text.replace("FORM", CALL))
    spoken = protocols.get(str(file))
    assert spoken.queries('<search>search("a")</search>') == ("a",)
    assert spoken.action("solver", "<search>a</search>").queries == ()
    for wrong in ("call", "{query} {query}"):
        file = tmp_path / f"wrong{len(wrong)}.yaml"
        file.write_text(text.replace("FORM", wrong))
        with pytest.raises(InputError, match="search.form is one of"):
            protocols.get(str(file))
