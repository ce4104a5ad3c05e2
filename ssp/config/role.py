"""One role's settings: its policy, how it plays, how it learns. The game's roles and `defaults` have
the same blocks. What may stand together is judged elsewhere (`ssp.config.rules`)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from ssp.base import devices
from ssp.config.engines import KINDS, EngineKind
from ssp.config.fields import (
    INF,
    Actors,
    Amount,
    Count,
    Few,
    Names,
    Place,
    Positive,
    Share,
    TextOrBlock,
    Within,
)
from ssp.config.toolserver import ToolServerConfig

COLDEST = 0.01
"""Lowest temperature above 0: below, logits divided by it overflow; 0 itself is greedy."""


@dataclass
class SimulatedConfig:
    """`tokens`: mean of a turn, lognormal, at most `limits.turn_tokens` (0: as few as the protocol
    allows). `step_ms`: milliseconds of a decode step, and 7/600 of it more for each sequence that
    runs."""

    tokens: Amount = 0.0
    sigma = 0.8
    step_ms: Amount = 6.0

    @property
    def sequence_ms(self) -> float:
        """Milliseconds more for each sequence that runs, in the measured share of a step."""
        return self.step_ms * 7 / 600


@dataclass
class EngineConfig:
    """`kind`: torch is the embedded one; endpoint, a completion server, is for `ssp eval` and `ssp
    ask`. Without a model: scripted (takes no time), simulated (takes time as `simulated` says).
    `dtype`: of weights and learner; auto is bfloat16 where the CPU that reads the configuration
    multiplies it or `device` is cuda, else float32. `device`: of torch and the learner; auto is a
    GPU where the process was given one. `tensor_parallel`: GPUs of an engine (vllm). `memory`:
    share of a GPU for vllm; on a CPU its KV cache holds `sequences` of the greatest length, within
    a sixteenth of the memory. `sequences`: most that run at once (vllm, simulated). `url`: an
    endpoint's, such as http://HOST:PORT/v1#MODEL (key: SSP_ENGINE_KEY)."""

    kind: Annotated[str, Names("ssp.config.engines:KINDS")] = "torch"
    dtype: devices.Dtype = "float32"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    continuous = False
    tensor_parallel: Few = 1
    memory: Annotated[float, Within(0.01, 1)] = 0.85
    sequences: Positive = 256
    longest = 0
    prefix_cache = True
    url: str = ""
    simulated: SimulatedConfig = field(default_factory=SimulatedConfig)

    @property
    def traits(self) -> EngineKind:
        """What an engine of its kind is."""
        return KINDS[self.kind]


LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass
class LoraConfig:
    """`rank`: of low-rank adapters in place of full training (0 = none); an adapter's update is
    added unscaled."""

    rank: Annotated[int, Within(0, 4096)] = 0
    targets = LINEAR


@dataclass
class LearnerConfig:
    """AdamW with betas 0.9 and `beta2`. It computes in `engine.dtype`; master weights are float32.

    `kind`: simulated waits 16/600 of `engine.simulated.step_ms` for each trained token, divided by
    `ranks`, and learns nothing. `ranks`: processes of an update (deepspeed). `zero`: ZeRO's stage
    (deepspeed). `offload`: to the host's memory (deepspeed). `packing`: sequences side by side
    without padding. `checkpointing`: activations are computed again in the backward pass.
    `combine`: with policy=shared one optimizer step on both roles' losses, else one after the
    other, proposer first. `lr`: learning rate. `warmup_steps`: updates of its linear rise.
    `schedule`: then; cosine falls to nearly 0 at `steps`, which a resumed run keeps then.
    `minibatch`: episodes an optimizer step (0 = the whole batch). `beta2`: of AdamW.
    `weight_decay`: of AdamW. `max_grad_norm`: to which gradients are clipped. `token_budget`:
    tokens in one micro-batch of a rank."""

    kind: Literal["torch", "deepspeed", "simulated"] = "torch"
    ranks: Actors = 1
    dtype = "float32"
    device = "auto"
    zero: Annotated[int, Within(1, 3)] = 2
    offload: Literal["none", "optimizer", "all"] = "none"
    packing: bool = False
    checkpointing: bool = False
    combine: bool = False
    lora: LoraConfig = field(default_factory=LoraConfig)
    lr: Amount = 5e-4
    warmup_steps: Count = 0
    schedule: Literal["constant", "cosine"] = "constant"
    minibatch: Count = 0
    beta2: Annotated[float, Within(0, 0.999999)] = 0.95
    weight_decay: Amount = 0.0
    max_grad_norm: Amount = 1.0
    token_budget: Positive = 4096
    token_ms = 0.16


@dataclass
class CriticConfig:
    """The value model of gae. In one update a value may move by `value_clip`.

    `lr`: its learning rate. `warmup_steps`: updates that train it alone."""

    lr: Amount = 1e-5
    value_clip = 0.5
    warmup_steps: Count = 0


@dataclass
class KlConfig:
    """KL to the start checkpoint (docs/algorithms.md).

    `kind`: the estimator; topk_... and full work in the loss only. `coef`: 0 = no reference model
    is loaded. `place`: reward: taken off the token rewards; advantage, future: off the finished
    advantages. `topk`: tokens that topk_... computes exactly. `weight`: importance weights correct
    for the sampling policy. `target`: above 0 (nats a token) it steers `coef`, over 10,000
    episodes. `ema_tau`: below 1 the reference follows the policy; every ten updates it keeps this
    share of itself."""

    kind: Annotated[str, Names("ssp.learning.kl:ESTIMATORS")] | Place = "k3"
    coef: Amount = 0.0
    place: Literal["loss", "reward", "advantage", "future"] = "loss"
    topk: Positive = 32
    weight: bool = False
    target: Amount = 0.0
    horizon = 10_000.0
    ema_tau: Share = 1.0
    ema_every = 10


@dataclass
class CorrectionConfig:
    """`mask`: what leaves the loss: token, tokens whose ratio of trainer to sampler is outside
    [`low`, `high`] (IcePop); sequence, episodes, by the geometric mean of their ratios."""

    mask: Literal["none", "token", "sequence"] = "none"
    low = 0.5
    high = 5.0


@dataclass
class RehearsalConfig:
    """Traces that every update learns again, so that the policy keeps what the game does not ask
    for (docs/warmup.md): those of `warmup.data`, by their mean negative log-likelihood times `coef`.

    `share`: of the episodes of an update (0 = none)."""

    share: Annotated[float, Within(0, 0.9)] = 0.0
    data = ""
    coef = 1.0

    def traces(self, episodes: int) -> int:
        """How many traces are learned beside so many episodes; one at least."""
        beside = episodes * self.share / (1.0 - self.share)
        return max(1, round(beside)) if self.share else 0


@dataclass
class SamplingConfig:
    """`temperature`: of training: at least 0.01, or 0 (greedy) for a role that does not learn."""

    temperature: Amount = 1.0


@dataclass
class StageConfig:
    """Token limits from an update on.

    `step`: that update. `turn_tokens`: 0 = as before it. `total_tokens`: 0 = as before it."""

    step: Count = 0
    turn_tokens: Count = 0
    total_tokens: Count = 0


@dataclass
class LimitsConfig:
    """`searches`: most in an episode. `retries`: invalid turns (neither a search nor an answer)
    that are told so; one more ends the episode. `turn_tokens`: new tokens of a turn.
    `observation_tokens`: new tokens of an observation. `prompt_tokens`: room for the prompt; a
    longer one is neither cut nor refused. `total_tokens`: in all, at least prompt_tokens +
    turn_tokens x (searches + 1) + observation_tokens x searches (where overflow=stop). `overflow`:
    when the next turn might not fit: stop, drop (the text of the oldest observation goes), answer
    (the last one that fits is told so), or skip (stop, and nothing is learned of the episode; nor
    is a given question played whose prompt is above prompt_tokens). `stages`: [{step, turn_tokens,
    total_tokens}, ...], limits from the role's update `step` on (0 = as before)."""

    searches: Count = 5
    retries: Count = 0
    turn_tokens: Positive = 24
    observation_tokens: Positive = 160
    prompt_tokens: Positive = 16
    total_tokens: Annotated[int, Within(2)] = 960
    overflow: Literal["stop", "drop", "answer", "skip"] = "stop"
    stages: list[StageConfig] = field(default_factory=list)

    def at(self, step: int | None) -> LimitsConfig:
        """The limits of update `step`; None: those of the last stage, for who plays outside a
        run."""
        turn, total = self.turn_tokens, self.total_tokens
        for stage in self.stages:
            if step is None or stage.step <= step:
                turn, total = stage.turn_tokens or turn, stage.total_tokens or total
        return replace(self, turn_tokens=turn, total_tokens=total)

    @property
    def longest(self) -> int:
        """Tokens of the longest episode in any stage."""
        return max([self.total_tokens, *(stage.total_tokens for stage in self.stages)])


@dataclass
class SourceConfig:
    """`kind`: who answers searches: retriever; self (the policy writes its own information);
    first_1 to first_5 (so many are real, later ones its own); entropy (the first is real, a later
    one when the mean of -p log2 p over its query's sampled tokens has risen since the search
    before). What a policy wrote itself is not trained."""

    kind: Literal[
        "retriever", "self", "first_1", "first_2", "first_3", "first_4", "first_5", "entropy"
    ] = "retriever"

    @property
    def real(self) -> int:
        """Searches that are real, of first_1 to first_5."""
        return int(self.kind.rpartition("_")[2]) if self.kind.startswith("first_") else 0


@dataclass
class RoleConfig:
    """`model`: coldstart (the embedded policy), a folder, or a downloaded model's name. `policy`:
    shared: both roles play and train one set of weights. frozen: it does not learn. `template`:
    layout of prompts; tokenizer: the model's own chat template; thinking, direct: the same, asked
    to think or not (enable_thinking); "": the protocol's. `algorithm`: docs/algorithms.md. `loss`:
    docs/algorithms.md. A staleness bound above 0 needs one that uses
    the behaviour log-probs: not pg (law 5). `reward`: a name of docs/rewards.md, or your own code.
    `reward_options`: a proposer's may hold `guide`, who scores a valid question from 0 to 1, by
    which the reward is multiplied: judge (`judge.*`), verifier (how sure it is), FILE.py:NAME. Who
    answers may hold `search_cost`, of each search of a right attempt. `invalid_reward`: of an
    invalid question, or an attempt without an answer. `batch`: questions a round. `min_groups`:
    groups with two different rewards that an update needs; for them a round plays up to 20 batches,
    then the run ends. `warmup_steps`: up to this step only this role learns. `freeze_after`: after
    this step it learns no more (0 = never). `clip_low`: the ratio stays above 1 less this.
    `clip_high`: the ratio stays below 1 plus this. `clip_dual`: the ratio's bound for negative
    advantages (0 = none). `aggregate`: a token's weight in the loss; fixed-length: by
    `limits.total_tokens`. `entropy_coef`: weight of the entropy bonus. `llds_coef`: weight of LLDS,
    which holds the likelihood of what was not worse than the rest. `lam`: of gae. `tools`: what it
    may call (docs/agents.md): search, read, your own function (FILE.py:NAME), those of an MCP
    server (mcp:stdio:COMMAND, mcp:http://HOST:PORT/mcp, or a block: {mcp: ..., prefix: ...}).
    `agent`: the solver's: code that plays in the loop's place (FILE.py:NAME, command:PROGRAM, or
    serve:PROGRAM)."""

    model: str = "coldstart"
    policy: Literal["own", "shared", "frozen"] = "own"
    template: Literal["", "plain", "chatml", "llama3", "tokenizer", "thinking", "direct"] = ""
    algorithm: Annotated[str, Names("ssp.learning.algorithms:ALGORITHMS")] | Place = "grpo"
    loss: Annotated[str, Names("ssp.learning.losses:LOSSES")] | Place = "ppo_clip"
    reward: str = ""
    reward_options: dict[str, Any] = field(default_factory=dict)
    invalid_reward: Annotated[float, Within(-INF)] = 0.0
    batch: Positive = 48
    min_groups: Count = 0
    warmup_steps: Count = 0
    freeze_after: Count = 0
    clip_low: Share = 0.2
    clip_high: Amount = 0.28
    clip_dual: Amount = 0.0
    tis_cap = 2.0
    aggregate: Literal["token-mean", "sequence-mean", "fixed-length"] = "token-mean"
    entropy_coef: Amount = 0.0
    llds_coef: Amount = 0.0
    gamma = 1.0
    lam: Share = 1.0
    engine: EngineConfig = field(default_factory=EngineConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    kl: KlConfig = field(default_factory=KlConfig)
    correction: CorrectionConfig = field(default_factory=CorrectionConfig)
    rehearsal: RehearsalConfig = field(default_factory=RehearsalConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    search: SourceConfig = field(default_factory=SourceConfig)
    tools: list[Annotated[str | ToolServerConfig, TextOrBlock()]] = field(
        default_factory=lambda: ["search"]
    )
    agent: str = ""

    def __post_init__(self) -> None:
        """A role's learner computes in its engine's precision, on its device, and in simulated time
        at its pace, where what it rehearses takes time too. Its engine has room for its longest
        episode."""
        self.engine.longest = self.limits.longest
        self.engine.dtype = devices.dtype(self.engine.dtype, self.engine.device)
        self.learner.dtype = self.engine.dtype
        self.learner.device = self.engine.device
        played = 1.0 - self.rehearsal.share
        self.learner.token_ms = self.engine.simulated.step_ms * 16 / 600 / played

    @property
    def guide(self) -> str:
        """Who scores the role's valid questions; "" for nobody."""
        return str(self.reward_options.get("guide", ""))
