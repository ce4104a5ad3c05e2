"""One role's half of the configuration: its policy, how it plays, how it learns.

Owns names, types and defaults of the role blocks, which `proposer`, `solver` and `defaults` share. Refuses to judge
combinations (`ssp.config.rules`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass
class SimulatedConfig:
    """Turns without a model (engine.kind=scripted or simulated). A turn's tokens are lognormal with the mean `tokens`
    (0: as few as the protocol allows) and the spread `sigma`, at most `limits.turn_tokens`. A simulated decode step
    takes `step_ms` milliseconds, and `sequence_ms` more for each sequence that runs."""

    tokens: float = 0.0
    sigma: float = 0.8
    step_ms: float = 6.0
    sequence_ms: float = 0.07


@dataclass
class EngineConfig:
    """`kind`, what generates: torch (embedded), vllm, endpoint (a completion server at `url`; for `ssp eval` and
    `ssp ask`). Without a model: scripted (takes no time) and simulated (takes time as `simulated` says), which test
    everything else.

    `dtype`: of the weights. `lanes`: groups of episodes that take turns, so that one generates while another searches.
    `continuous` (torch): every episode runs on its own, which hides waits and is not bit for bit repeatable.
    `prefix_cache` (torch, vllm): a prompt that several episodes share is read once.
    For vllm. `tensor_parallel`: GPUs of an engine. `memory`: the share of a GPU that it may take. `kv_mb`: its KV cache
    (0 = what `memory` leaves; on a CPU 256); `sequences`: most that run at once (simulated too); `eager`: no compiled
    graphs (on a CPU never any).
    For endpoint. `model`: its name at the server. `key_env`: the environment variable of the server's key ("" = none).
    """

    kind: str = "torch"
    dtype: str = "float32"
    lanes: int = 1
    continuous: bool = False
    tensor_parallel: int = 1
    memory: float = 0.85
    kv_mb: int = 0
    sequences: int = 256
    prefix_cache: bool = True
    eager: bool = False
    url: str = ""
    model: str = ""
    key_env: str = ""
    simulated: SimulatedConfig = field(default_factory=SimulatedConfig)


@dataclass
class LoraConfig:
    """Low-rank adapters in place of full training. `rank`: 0 = none. The adapter's update is scaled by `alpha` /
    `rank`. `targets`: the linear layers that get one."""

    rank: int = 0
    alpha: float = 32.0
    targets: list[str] = field(
        default_factory=lambda: ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    )


@dataclass
class LearnerConfig:
    """`kind`, what trains: torch; deepspeed (`zero`: stage 1 to 3; `offload` to the host: none, optimizer or all);
    simulated, which waits `token_ms` milliseconds for each trained token, divided by `ranks`, and learns nothing. AdamW
    with `beta1`, `beta2` and `weight_decay`; gradients are clipped to the norm `max_grad_norm`. The rate `lr` is
    reached linearly over `warmup_steps`; then `schedule` is constant, or cosine (falls to nearly 0 at `steps`).

    `ranks`: processes that share each update, with deepspeed. `dtype`: of the computation; master weights are float32.
    `minibatch`: episodes an optimizer step (0 = the whole batch). `token_budget`: tokens in one micro-batch of a rank.
    `packing`: sequences side by side without padding. `checkpointing`: activations are computed again in the backward
    pass. `combine` (policy=shared): one optimizer step on the sum of both roles' losses, else one after the other,
    proposer first."""

    kind: str = "torch"
    ranks: int = 1
    dtype: str = "float32"
    zero: int = 2
    offload: str = "none"
    packing: bool = False
    checkpointing: bool = False
    combine: bool = False
    lora: LoraConfig = field(default_factory=LoraConfig)
    lr: float = 5e-4
    warmup_steps: int = 0
    schedule: str = "constant"
    minibatch: int = 0
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    token_budget: int = 4096
    token_ms: float = 0.16


@dataclass
class CriticConfig:
    """The value model of algorithm=gae. `lr`: its rate. `value_clip`: how far a value may move in one update.
    `warmup_steps`: updates that train it alone, before the policy learns."""

    lr: float = 1e-5
    value_clip: float = 0.5
    warmup_steps: int = 0


@dataclass
class KlConfig:
    """KL to the start checkpoint: `coef` (0 = no reference model is loaded) times the estimator `kind`
    (docs/algorithms.md).

    `place`: loss; reward (taken off the token rewards); advantage or future (taken off the finished advantages).
    `topk`: tokens that topk_reverse and topk_forward compute exactly; `variant`: exact, or paper (as published, with
    its biased gradient). `weight`: correct for the sampling policy with importance weights, within [`weight_low`,
    `weight_high`] (0 = no upper bound). `target` above 0 (nats a token) steers the coefficient, over `horizon`
    episodes. `ema_tau` below 1: the reference follows the policy; every `ema_every` updates it keeps this share of
    itself."""

    kind: str = "k3"
    coef: float = 0.0
    place: str = "loss"
    topk: int = 32
    variant: str = "exact"
    weight: bool = False
    weight_low: float = 0.0
    weight_high: float = 0.0
    target: float = 0.0
    horizon: float = 10_000.0
    ema_tau: float = 1.0
    ema_every: int = 10


@dataclass
class CorrectionConfig:
    """`mask`: which off-policy tokens leave the loss. token: those whose ratio of trainer to sampler is outside [`low`,
    `high`] (IcePop). sequence: whole episodes, by the geometric mean of their ratios. none: no token."""

    mask: str = "none"
    low: float = 0.5
    high: float = 5.0


@dataclass
class SamplingConfig:
    """Sampling of training rollouts. `temperature`: at least 0.01, or 0 (greedy) for a role that does not learn."""

    temperature: float = 1.0


@dataclass
class StageConfig:
    """Token limits `turn_tokens` and `total_tokens` from update `step` on (0 = as before it)."""

    step: int = 0
    turn_tokens: int = 0
    total_tokens: int = 0


@dataclass
class LimitsConfig:
    """Limits of one episode: `searches`; new tokens of a turn (`turn_tokens`) and of an observation
    (`observation_tokens`); tokens in all (`total_tokens`), which must have room for these and `prompt_tokens`. The
    start warns of a longer prompt, which is neither cut nor refused.

    `retries`: invalid turns (neither a search nor an answer) that are told so; one more ends the episode. `seconds` on
    the wall clock (0: no limit). `overflow`, when the next turn might not fit into `total_tokens`: stop, or drop (the
    text of the oldest observation goes). `overlong` (DAPO): within so many tokens of `total_tokens` the reward falls,
    by up to 1 (0: it does not). `stages`: [{step, turn_tokens, total_tokens}, ...], limits that change when the role's
    update `step` comes."""

    searches: int = 5
    retries: int = 0
    turn_tokens: int = 24
    observation_tokens: int = 160
    prompt_tokens: int = 16
    total_tokens: int = 960
    seconds: float = 0.0
    overflow: str = "stop"
    overlong: int = 0
    stages: list[StageConfig] = field(default_factory=list)

    def at(self, step: int | None) -> LimitsConfig:
        """The limits of update `step`; None: those of the last stage, for who plays outside a run."""
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
    """`kind`, who answers a policy's searches: retriever; self (the policy writes its own information, and no request
    leaves); first_k (the first `real` searches are real, later ones its own); entropy (the first is real, a later one
    only when the entropy of its query tokens has risen since the search before). `entropy` is measured by the sampled
    tokens (sampled: -p log2 p) or the whole distribution (full). `train_recalled`: train self-written information."""

    kind: str = "retriever"
    real: int = 1
    entropy: str = "sampled"
    train_recalled: bool = False


@dataclass
class RoleConfig:
    """One role's policy and learning. Both roles inherit `defaults`.

    `model`: where it starts: coldstart (the embedded policy), a folder, or the hub's name of a downloaded model.
    `policy`: own, shared (both roles play and train one set of weights), or frozen. `template`: how prompts are laid
    out: plain, chatml, llama3, tokenizer (the model's own chat template), or "" (the protocol's own way). `batch`:
    questions a round.
    `reward`: for the proposer a kind of docs/rewards.md, for the solver a name there, for both your own function; it
    gets `reward_options`. `invalid_reward`: of an invalid question, or an attempt without an answer.
    `target_difficulty`: the share of wrong attempts for which reward=target_difficulty pays most.
    `algorithm` and `loss`: see docs/algorithms.md. `baseline` of algorithm=reinforce: batch, running (fading mean of
    earlier batches), or none. `group` of questions that a proposer's baseline compares: target (questions to one drawn
    target), hops (after as many searches), seed (about one answer, of any row). `gamma` and `lam` (gae) discount a
    policy token. `clip_low` and `clip_high` are epsilons (0.2 and 0.28: ratio kept in [0.8, 1.28]); `clip_dual`: the
    ratio's bound for negative advantages (0 = none); `tis_cap`: the largest importance weight of tis and decoupled.
    `aggregate`: what a token weighs in the loss: token-mean, sequence-mean or fixed-length (by `limits.total_tokens`).
    `entropy_coef`: entropy bonus.
    Up to step `warmup_steps` only this role learns; after step `freeze_after` (0 = never) it learns no more."""

    model: str = "coldstart"
    policy: str = "own"
    template: str = ""
    algorithm: str = "grpo"
    baseline: str = "batch"
    group: str = "target"
    loss: str = "ppo_clip"
    reward: str = ""
    reward_options: dict[str, Any] = field(default_factory=dict)
    invalid_reward: float = 0.0
    batch: int = 48
    warmup_steps: int = 0
    freeze_after: int = 0
    clip_low: float = 0.2
    clip_high: float = 0.28
    clip_dual: float = 0.0
    tis_cap: float = 2.0
    aggregate: str = "token-mean"
    entropy_coef: float = 0.0
    gamma: float = 1.0
    lam: float = 1.0
    target_difficulty: float = 0.5
    engine: EngineConfig = field(default_factory=EngineConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    kl: KlConfig = field(default_factory=KlConfig)
    correction: CorrectionConfig = field(default_factory=CorrectionConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    search: SourceConfig = field(default_factory=SourceConfig)
