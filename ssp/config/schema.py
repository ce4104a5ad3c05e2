"""The configuration, typed: every key that a user may set, with its default and unit.

Owns names, types and defaults. Promises that a resolved `Config` is plain data (no interpolation left).
Refuses to read files (`ssp.config.load`) or to judge combinations (`ssp.config.rules`).
"""

from __future__ import annotations

from dataclasses import dataclass, field


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
    """`questions`: who asks (proposer, dataset, bank). `attempts`: n a question. `batch`: what fills invalid slots."""

    questions: str = "proposer"
    attempts: int = 6
    batch: str = "dummy"
    replay_reset_every: int = 10
    replay_keep: float = 0.0
    replay_max_win_rate: float = 1.0


@dataclass
class RefereeConfig:
    """Question checks. `verifier`: frozen (start checkpoint), solver (live policy), none.

    `evidence`: verbatim (each quote stands in the proposer's documents), chain (and the quotes lead from the question
    to the target by its relations, in order), none.
    """

    verifier: str = "frozen"
    evidence: str = "chain"
    noise_documents: int = 2
    min_searches: int = 1
    max_relations: int = 5
    alarm_win_rate: float = 0.1
    alarm_valid_rate: float = 0.6
    alarm_patience: int = 5


@dataclass
class JudgeConfig:
    """Who decides right or wrong: `exact` compares after normalisation."""

    kind: str = "exact"


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
    """What generates: torch (embedded). dtype of its weights."""

    kind: str = "torch"
    dtype: str = "float32"


@dataclass
class LearnerConfig:
    """What trains. `token_budget`: padded tokens in one micro-batch."""

    kind: str = "torch"
    lr: float = 5e-4
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    token_budget: int = 4096


@dataclass
class KlConfig:
    """KL to the start checkpoint, in the loss. coef 0 = no reference model is loaded."""

    kind: str = "k3"
    coef: float = 0.0


@dataclass
class SamplingConfig:
    """Sampling of training rollouts. Temperature 0 is greedy."""

    temperature: float = 1.0


@dataclass
class LimitsConfig:
    """Limits of one episode: searches, new tokens a turn, tokens an observation, tokens in all."""

    searches: int = 5
    turn_tokens: int = 24
    observation_tokens: int = 160
    total_tokens: int = 896


@dataclass
class RoleConfig:
    """One role's policy and learning. Both roles inherit `defaults`.

    `clip_low`/`clip_high` are epsilons (0.2 and 0.28: ratio kept in [0.8, 1.28]).
    """

    model: str = "coldstart"
    policy: str = "own"
    algorithm: str = "grpo"
    loss: str = "ppo_clip"
    reward: str = "1-acc"
    invalid_reward: float = 0.0
    batch: int = 48
    warmup_steps: int = 0
    freeze_after: int = 0
    clip_low: float = 0.2
    clip_high: float = 0.28
    tis_cap: float = 2.0
    target_difficulty: float = 0.5
    engine: EngineConfig = field(default_factory=EngineConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    kl: KlConfig = field(default_factory=KlConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)


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
    proposer: RoleConfig = field(default_factory=RoleConfig)
    solver: RoleConfig = field(default_factory=RoleConfig)
