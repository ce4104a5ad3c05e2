"""One role's half of the configuration: its policy, how it plays, how it learns.

Owns names, types and defaults of the role blocks, which `proposer`, `solver` and `defaults` share. Refuses to judge
combinations (`ssp.config.rules`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class EngineConfig:
    """What generates: torch (embedded), or endpoint (a completion server at `url`; for `ssp eval` and `ssp ask`).

    `dtype` of the weights. `lanes`: groups of episodes that take turns, so that one generates while another searches.
    `model`: its name at the server. `key_env`: the environment variable of the server's key ("" = none). `timeout`:
    seconds a turn may take there.
    """

    kind: str = "torch"
    dtype: str = "float32"
    lanes: int = 1
    url: str = ""
    model: str = ""
    key_env: str = ""
    timeout: float = 300.0


@dataclass
class LearnerConfig:
    """What trains. The rate rises linearly over `warmup_steps`, then follows `schedule`: constant, or cosine (falls to
    nearly 0 at `steps`).

    `minibatch`: episodes an optimizer step, 0 = the whole batch. `token_budget`: padded tokens in one micro-batch.
    """

    kind: str = "torch"
    lr: float = 5e-4
    warmup_steps: int = 0
    schedule: str = "constant"
    minibatch: int = 0
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    token_budget: int = 4096


@dataclass
class CriticConfig:
    """The value model of algorithm=gae: its rate, the range in which a value may move in one update, and how many updates
    train it alone while the policy stays as it is."""

    lr: float = 1e-5
    value_clip: float = 0.5
    warmup_steps: int = 0


@dataclass
class KlConfig:
    """KL to the start checkpoint. coef 0 = no reference model is loaded.

    `place`: in the loss, in the token rewards, or taken off the finished advantages. `topk`: tokens that topk_reverse
    and topk_forward compute exactly; `variant`: exact, or paper (as published, with its biased gradient).
    `weight`: correct for the sampling policy with importance weights, within [`weight_low`, `weight_high`] (0 = no upper
    bound). `target` above 0 (nats a token) steers the coefficient, over `horizon` episodes. `ema_tau` below 1: the
    reference follows the policy, every `ema_every` updates it keeps this share of itself.
    """

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
class SamplingConfig:
    """Sampling of training rollouts. Temperature 0 is greedy."""

    temperature: float = 1.0


@dataclass
class LimitsConfig:
    """Limits of one episode: searches, tokens of the prompt, new tokens a turn, tokens an observation, tokens in all.

    `retries`: turns that neither search nor answer and are told so; one more ends the episode. `seconds` on the wall
    clock, 0: no limit.
    `overflow`, when the next turn might not fit into `total_tokens`: stop, or drop (the oldest observation's text goes).
    """

    searches: int = 5
    retries: int = 0
    turn_tokens: int = 24
    observation_tokens: int = 160
    prompt_tokens: int = 16
    total_tokens: int = 960
    seconds: float = 0.0
    overflow: str = "stop"


@dataclass
class SourceConfig:
    """Who answers a policy's searches: retriever; self (the policy writes its own information, no request leaves).

    first_k: the first `real` searches are real, later ones its own. entropy: the first is real, a later one only when
    the entropy of its query tokens has risen since the search before; `entropy`: sampled (-p log2 p of the sampled
    tokens) or full (of the whole distribution). `train_recalled`: whether self-written information is trained.
    """

    kind: str = "retriever"
    real: int = 1
    entropy: str = "sampled"
    train_recalled: bool = False


@dataclass
class RoleConfig:
    """One role's policy and learning. Both roles inherit `defaults`.

    `template`: how prompts are laid out; "" is the protocol's own way, else plain, chatml, llama3, or tokenizer (the
    model's own chat template). `reward`: of the proposer a kind of `ssp.rewards.proposer`, of the solver a name of
    `ssp.rewards` or a function's dotted path, given `reward_options`. While the step is at most
    `warmup_steps`, only this role learns; after step `freeze_after` (0 = never) it learns no more.
    `clip_low`/`clip_high` are epsilons (0.2 and 0.28: ratio kept in [0.8, 1.28]); `clip_dual`: the ratio's bound for
    negative advantages, 0 = none. `gamma` and `lam` (gae) discount a policy token. `aggregate`: what a token weighs in
    the loss: token-mean, sequence-mean or fixed-length (by `limits.total_tokens`). `entropy_coef`: entropy bonus.
    """

    model: str = "coldstart"
    policy: str = "own"
    template: str = ""
    algorithm: str = "grpo"
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
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    search: SourceConfig = field(default_factory=SourceConfig)
