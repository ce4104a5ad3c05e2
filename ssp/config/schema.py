"""The configuration, typed: every key that a user may set, with its default and unit.

Owns names, types and defaults. Promises that a resolved `Config` is plain data (no interpolation left).
Refuses to read files (`ssp.config.load`) or to judge combinations (`ssp.config.rules`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ssp.episode import ROLES, SOLVER


@dataclass
class RunConfig:
    """Where results go. `dir` empty means `runs/<name>` under `$SSP_HOME` (or the working folder)."""

    dir: str = ""
    name: str = ""


@dataclass
class EvalConfig:
    """Periodic evaluation: every so many steps (0 = never), questions a hop in the periodic and in the final one.

    Questions that state their hops count only when these are in `hops`; others always count.
    """

    every: int = 10
    questions_per_hop: int = 64
    final_questions_per_hop: int = 128
    temperature: float = 1.0
    hops: list[int] = field(default_factory=lambda: [1, 2, 3])


@dataclass
class SaveConfig:
    """Checkpoints: every so many steps, how many to keep (the newest; the one named in state.json always stays)."""

    every: int = 10
    keep: int = 2


@dataclass
class VoidConfig:
    """Law 2's limit: share of the last `window` outcomes; seconds between probes; seconds until giving up."""

    limit: float = 0.05
    window: int = 200
    probe_every: float = 10.0
    give_up_after: float = 1800.0


@dataclass
class RoleInt:
    """One integer a role."""

    proposer: int = 0
    solver: int = 0


@dataclass
class ScheduleConfig:
    """Staleness bound a role, in versions (0 = synchronous). `preset` (sync, one-step-off, async) only sets these."""

    preset: str = ""
    max_staleness: RoleInt = field(default_factory=RoleInt)


@dataclass
class GameConfig:
    """`questions`: who asks (proposer; dataset or bank: `data.questions`). `attempts`: n a question.

    `batch`: what fills the slots of invalid questions: dummy (nothing), resample (further targets: at most
    `resample_attempts` extra proposer batches, until this share of the slots is valid), replay and replay_reset (earlier
    questions, of a pool of `replay_size` that the second one empties every `replay_reset_every` rounds).
    """

    questions: str = "proposer"
    attempts: int = 6
    batch: str = "dummy"
    resample_attempts: int = 5
    resample_min_valid: float = 1.0
    replay_size: int = 4096
    replay_reset_every: int = 10
    replay_keep: float = 0.0
    replay_max_win_rate: float = 1.0


@dataclass
class RefereeConfig:
    """Question checks. `rules`: ids of `ssp.referee.rules`, in the order in which they are asked.

    `verifier`, who must answer the question from the proposer's evidence: frozen (start checkpoint), solver (live
    policy), judge (the endpoint of `judge.*`), none. `evidence`: verbatim (each quote is a sentence of the proposer's
    documents), chain (and the quotes lead from the question to the target by its relations, in order), quoted (each
    quote names a document that the proposer found, and stands in it), none.
    Noise: `noise_documents` single documents, or the whole material of `noise_trajectories` other proposals.
    """

    rules: list[str] = field(
        default_factory=lambda: ["malformed", "empty", "not_a_question", "too_many_relations", "leakage", "no_search"]
    )
    verifier: str = "frozen"
    evidence: str = "chain"
    noise_documents: int = 2
    noise_trajectories: int = 0
    prompt_tokens: int = 768
    answer_tokens: int = 64
    min_searches: int = 1
    max_relations: int = 5
    min_chars: int = 10
    max_chars: int = 1000
    min_words: int = 10
    alarm_win_rate: float = 0.1
    alarm_valid_rate: float = 0.6
    alarm_patience: int = 5


@dataclass
class JudgeConfig:
    """Who decides right or wrong. An exact match after normalisation is always right; what is left goes to `kind`:

    exact (it is wrong), llm (an OpenAI-compatible endpoint), engine (a model of our own, in folder `model`).
    `url`: base URL, with /v1. `key_env`: the environment variable that holds the key ("" = none is sent).
    `format`: word (Correct or Wrong) or json ({"rationale", "judgement"}). `timeout` in seconds, a try. After
    `breaker` failures in a row no request goes out for `breaker_seconds`. `cache`: verdicts kept.
    """

    kind: str = "exact"
    url: str = ""
    model: str = ""
    key_env: str = "OPENAI_API_KEY"
    format: str = "word"
    max_tokens: int = 16
    timeout: float = 30.0
    retries: int = 4
    concurrency: int = 32
    breaker: int = 8
    breaker_seconds: float = 10.0
    cache: int = 100_000


@dataclass
class WorldConfig:
    """Seeds of the generated worlds, used where a data path says `world:train` or `world:heldout`."""

    train_seed: int = 11
    heldout_seed: int = 12


@dataclass
class EvalSet:
    """One evaluation file (FlashRAG jsonl) and the corpus it is searched in (`none` = search returns nothing)."""

    name: str = "heldout"
    file: str = "world:heldout"
    corpus: str = "world:heldout"


@dataclass
class DataConfig:
    """Paths, or `world:train` / `world:heldout`. `corpus`: Search-R1 jsonl; `targets`: SSP rows; `eval`: FlashRAG jsonl.

    `questions`, for game.questions=dataset: a question file (FlashRAG or plain jsonl, Search-R1 parquet); for bank: a
    run folder whose accepted questions are asked again.

    The first evaluation set is the one of the periodic evaluation; all are scored at the end.
    """

    corpus: str = "world:train"
    targets: str = "world:train"
    questions: str = ""
    eval: list[EvalSet] = field(
        default_factory=lambda: [
            EvalSet(),
            EvalSet("train", "world:train", "world:train"),
            EvalSet("nosearch", "world:heldout", "none"),
        ]
    )


@dataclass
class RetrieverConfig:
    """BM25 shards: how many, replicas, a remote server instead (`url`), documents a query, deadline in seconds."""

    shards: int = 2
    replicas: int = 1
    url: str = ""
    topk: int = 3
    k1: float = 1.2
    b: float = 0.25
    timeout: float = 20.0


@dataclass
class PlacementConfig:
    """Actors a role, CPUs an actor asks Ray for, restarts an actor may use, seconds one call may take."""

    proposers: int = 2
    solvers: int = 2
    judges: int = 2
    cpus: float = 0.1
    restarts: int = 10
    call_timeout: float = 300.0


@dataclass
class RayConfig:
    """The local cluster that `train` starts when RAY_ADDRESS is not set. `auth`: disabled or token.

    `cpus` 0: what the machine has. `dashboard_port` 0: the first free one from 8265 on. `start_timeout`: seconds that
    all actors get to start, and one to come back.
    """

    cpus: int = 0
    dashboard: bool = True
    dashboard_port: int = 0
    object_store_mb: int = 256
    auth: str = "disabled"
    loopback_only: bool = True
    start_timeout: float = 300.0


@dataclass
class QueueConfig:
    """Budget of each queue: items and bytes. A put waits for room, up to `timeout` seconds."""

    items: int = 4096
    bytes: int = 256_000_000
    timeout: float = 600.0


@dataclass
class ColdStartConfig:
    """SFT of the embedded policy: gate on held-out accuracy (temperature 1), CPU-second cap, cache use."""

    seed: int = 0
    max_seconds: float = 130.0
    gate_1hop: float = 0.88
    gate_2hop: float = 0.30
    gate_3hop: float = 0.10
    from_scratch: bool = False


@dataclass
class EngineConfig:
    """What generates: torch (embedded). `dtype` of its weights.

    `lanes`: groups of episodes that take turns, so that one generates while another one searches.
    """

    kind: str = "torch"
    dtype: str = "float32"
    lanes: int = 1


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
    tokens) or true (of the whole distribution). `train_recalled`: whether self-written information is trained.
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


@dataclass
class Config:
    """Everything. `steps` counts solver updates; `resume` is never, auto or a run folder."""

    seed: int = 0
    steps: int = 60
    resume: str = "never"
    protocol: str = "mini"
    run: RunConfig = field(default_factory=RunConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    save: SaveConfig = field(default_factory=SaveConfig)
    void: VoidConfig = field(default_factory=VoidConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    game: GameConfig = field(default_factory=GameConfig)
    referee: RefereeConfig = field(default_factory=RefereeConfig)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    world: WorldConfig = field(default_factory=WorldConfig)
    data: DataConfig = field(default_factory=DataConfig)
    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    placement: PlacementConfig = field(default_factory=PlacementConfig)
    ray: RayConfig = field(default_factory=RayConfig)
    queue: QueueConfig = field(default_factory=QueueConfig)
    coldstart: ColdStartConfig = field(default_factory=ColdStartConfig)
    defaults: RoleConfig = field(default_factory=RoleConfig)
    proposer: RoleConfig = field(default_factory=lambda: RoleConfig(reward="1-acc"))
    solver: RoleConfig = field(default_factory=lambda: RoleConfig(reward="em"))

    @property
    def roles(self) -> tuple[str, ...]:
        """Who plays and learns: without the proposer where the questions are given (a data set, a bank)."""
        return ROLES if self.game.questions == "proposer" else (SOLVER,)
