"""The configuration, typed: every key that a user may set, with its default and unit.

A resolved `Config` is plain data, without interpolations. Nothing here reads files or judges
values."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from ssp.base.gamespec import DOCUMENTS, QUESTIONS, TARGETS, GameSpec
from ssp.config import games
from ssp.config.cluster import PlacementConfig, RayConfig
from ssp.config.fields import STRICT, Amount, Count, Few, Positive, Share, Within
from ssp.config.role import RoleConfig
from ssp.config.sources import DataConfig as DataConfig
from ssp.config.sources import EvalSet as EvalSet
from ssp.config.sources import OnlineConfig as OnlineConfig
from ssp.config.sources import RetrieverConfig as RetrieverConfig

PRESETS = {"sync": 0, "one-step-off": 1, "async": 4}
"""The staleness bound of every role that `schedule.preset` stands for."""
PLAYERS = 2
"""Actors that play a role, where nothing else is set."""
SHORTEST_START = 60.0
"""Seconds that Ray and all actors have to start at least, however short a call may be."""


@dataclass
class RunConfig:
    """`dir`: of the results ("" = `runs/<name>` in `$SSP_HOME` or the working folder). `name`: the
    run's ("" = the config's, numbered)."""

    dir: str = ""
    name: str = ""


@dataclass
class EvalConfig:
    """The solver is evaluated at the start, at the end, and between, there with half as many
    questions. `ssp eval` asks as many as the end: of each of `hops`, and of those that state no
    hops.

    `every`: steps between evaluations (0 = none between). `final_questions_per_hop`: of each number
    of hops. `temperature`: 0 (greedy) or at least 0.01. `by`: a column of the questions, by whose
    values accuracy is told too."""

    every: Count = 10
    final_questions_per_hop: Positive = 128
    temperature: Amount = 1.0
    hops = (1, 2, 3)
    by: str = ""


@dataclass
class SaveConfig:
    """`every`: steps between checkpoints. `keep`: newest checkpoints of each role that stay, beside
    those of state.json and the best evaluated solver's."""

    every: Positive = 10
    keep: Positive = 2


@dataclass
class VoidConfig:
    """Law 2. Play stops when too many of a stage's last `window` outcomes are void. Then a round
    may be tried every `probe_every` seconds; after `give_up_after` seconds the run ends.

    `limit`: the largest share of voids."""

    limit: Share = 0.05
    window = 200
    probe_every = 10.0
    give_up_after = 1800.0


@dataclass
class ScheduleConfig:
    """`preset`: sets the staleness bounds of all roles. `max_staleness`: versions that a batch of
    the role may be old (0 = synchronous). `in_flight`: new weights reach players within a turn.
    Needs bounds above 0 and engine kind vllm, simulated or torch (which then runs each episode on
    its own). No run repeats bit for bit."""

    preset: Literal["", "sync", "one-step-off", "async"] = ""
    max_staleness: dict[str, Count] = field(default_factory=dict)
    in_flight: bool = False


@dataclass
class HealthConfig:
    """Limits on a role's figures (docs/metrics.md): `mismatch`, `ratio`, `samples`, `grad_norm`,
    `drift`, `collapse`; passed for `patience` updates in a row they raise an alarm.

    `on_collapse`: stop ends the run (exit 1); rollback goes to the last checkpoint before it began,
    at most `rollbacks` times."""

    on_collapse: Literal["warn", "stop", "rollback"] = "stop"
    patience = 5
    mismatch = 0.1  # KL of sampler and trainer, nats a token
    ratio = 0.5  # distance of the mean importance ratio from 1
    samples = 0.1  # effective share of the tokens
    grad_norm = 100.0  # times its running median
    drift = 0.025  # nats a token by which what earned more becomes less likely
    collapse = 0.1  # share of the best running mean of reward or searches
    rollbacks = 2


@dataclass
class GameConfig:
    """`kind`: the game (docs/game.md): duel, given, self-search, or your own (FILE.py:NAME); "" is
    duel, or given where the questions are. `questions`: who asks: proposer; or dataset or bank,
    from `data.questions`. `proposals`: questions a target. `attempts`: at a question. `batch`: what
    fills the slots of invalid questions. dummy: nothing. resample: further targets, in at most
    `resample_attempts` more proposer batches, until the share `resample_min_valid` is valid;
    resample_all trains rejected ones too. replay: earlier questions of a pool of 4096; replay_reset
    empties it every ten rounds; replay_learnable draws by p (1 - p), p the last share of right
    attempts. `refill`: most batches of each role that are played for one that is trained, until
    `solver.batch` questions have two different rewards. `given`: share of a batch's questions that
    comes from `data.questions` and pays the solver alone. `most_right`: rows with hops whose
    attempts are right more often are drawn less (1 = none)."""

    kind: str = ""
    questions: Literal["proposer", "dataset", "bank"] = "proposer"
    proposals: Few = 1
    attempts: Positive = 6
    batch: Literal[
        "dummy", "resample", "resample_all", "replay", "replay_reset", "replay_learnable"
    ] = "dummy"
    refill: Few = 1
    given: Share = 0.0
    most_right: Share = 1.0
    resample_attempts = 5
    resample_min_valid = 1.0
    replay_reset_every = 10


@dataclass
class LeagueConfig:
    """Frozen past versions as opponents (docs/league.md), at most `size` of each role.

    `match`: whom a role meets: self, the newest (no league); prioritised, a past one, rather one
    that it loses to (by `power`); mix, half and half. A version becomes a member every
    `save.every` updates."""

    match: Literal["self", "prioritised", "mix"] = "self"
    power = 4.0
    every = 10
    size = 16

    @property
    def past(self) -> float:
        """Expected share of past versions among whom a role may meet, once there are members."""
        return {"self": 0.0, "mix": 0.5, "prioritised": 1.0}[self.match]

    @property
    def asked(self) -> float:
        """Expected share of the questions that the newest proposer writes, and learns from: a past
        one may have half."""
        return 1 - self.past / 2

    @property
    def twice(self) -> float:
        """Expected share of the questions that are tried twice, by a past solver too: of the newest
        proposer's."""
        return self.past * self.asked


@dataclass
class RefereeConfig:
    """Checks of questions (docs/referee.md). The junk alarm ends the run (with
    health.on_collapse=warn it only speaks) when for `alarm_patience` rounds in a row the solver won
    at most 10 % of its attempts and 60 % of the questions or more were accepted.

    `rules`: asked in this order. no_evidence asks for one search that showed a document, no_search
    for two; too_... count by `max_relations`, `min_chars`, `max_chars` and `min_words`. `verifier`:
    who must answer from the proposer's evidence: the frozen start checkpoint, the live solver, the
    judge (`judge.*`), none. `model`: of a frozen verifier ("" = the answering role's start).
    `samples`: the verifier's answers (1: greedy). `needed`: answers that must prove the question.
    `closed_book`: a question that it answers without a document is refused. `evidence`: what its
    quotes must be: verbatim, sentences of the proposer's documents; chain, such that lead from
    question to target by its relations, in order; quoted, each names a document that the proposer
    found, and stands in it; counted, as many of these as the row asks for searches; none. `noise`:
    single documents beside the evidence, or with evidence=none all material of so many other
    proposals. `prompt_tokens`: most in its prompt (noise is cut first); its answer has a
    twelfth."""

    rules: list[str] = field(
        default_factory=lambda: [
            "malformed",
            "empty",
            "not_a_question",
            "too_many_relations",
            "leakage",
            "no_evidence",
        ]
    )
    verifier: Literal["frozen", "solver", "judge", "none"] = "frozen"
    model: str = ""
    samples: Positive = 1
    needed: Positive = 1
    closed_book: bool = False
    evidence: Literal["chain", "verbatim", "quoted", "counted", "none"] = "chain"
    noise: Count = 2
    prompt_tokens: Positive = 768
    max_relations = 5
    min_chars = 10
    max_chars = 1000
    min_words = 10
    alarm_patience = 5

    @property
    def temperature(self) -> float:
        """Of the verifier's answers."""
        return 0.0 if self.samples == 1 else 1.0

    @property
    def answer_tokens(self) -> int:
        """Tokens of the verifier's answer, which quotes a part of its prompt."""
        return max(1, self.prompt_tokens // 12)


@dataclass
class JudgeConfig:
    """Who decides whether an answer is right. An exact match after normalisation always is. A judge
    has `concurrency` requests under way, tries each for `timeout` seconds, and keeps `cache`
    verdicts.

    `kind`: of the rest: exact (all wrong), llm (an OpenAI-compatible endpoint). `url`: its base
    URL, with /v1 (key: SSP_JUDGE_KEY). `model`: its model. `format`: word: Correct or Wrong, in 16
    tokens. json: {"rationale", "judgement"}, in 256. thought: a word after the model's thoughts, in
    4,096. score: {"rationale", "score"}, from 0 to 1, in 256; from 0.5 on it is right. A text file:
    a rubric for a score; `rubric` of a question's row follows it."""

    kind: Literal["exact", "llm"] = "exact"
    url: str = ""
    model: str = ""
    format: str = "word"
    timeout = 30.0
    retries = 4
    concurrency = 32
    cache = 100_000

    @property
    def longest(self) -> int:
        """Tokens of a verdict."""
        return {"word": 16, "thought": 4096}.get(self.format, 256)

    @property
    def scores(self) -> bool:
        """Whether a verdict is a number."""
        return self.format not in ("word", "json", "thought")


@dataclass
class WarmupConfig:
    """The warm start of `solver.model`, for every role with the same model: by `ssp warmup`, and by
    `ssp train` before the game.

    `data`: traces (a jsonl file, or world:english), or a run's folder with its good episodes ("" =
    none). `epochs`: passes at most; one that lowers the held-out nats a token no more is the last (0
    = no warm start: the traces are for rehearsal alone). `batch`: episodes an update. `lr`: 0 =
    `solver.learner.lr`."""

    data: str = ""
    epochs: Count = 1
    batch: Positive = 32
    lr: Amount = 0.0

    @property
    def warms(self) -> bool:
        """Whether there is a warm start."""
        return bool(self.data) and self.epochs > 0


@dataclass
class TelemetryConfig:
    """`wandb`: Weights & Biases: offline (files in the run folder, for `wandb sync`), online (with
    its own environment variables)."""

    wandb: Literal["none", "offline", "online"] = "none"


@dataclass
class Config:
    """Keys of the run.

    `seed`: of all random draws. `steps`: updates of the solver. `resume`: auto from the last
    checkpoint, step:N from a kept one, or a run folder. `protocol`: an id, or a .yaml file
    (docs/protocols.md)."""

    __pydantic_config__ = STRICT
    seed: Annotated[int, Within(0, 2**63 - 1)] = 0
    steps: Positive = 60
    resume: str = "never"
    protocol: str = "mini"
    run: RunConfig = field(default_factory=RunConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    save: SaveConfig = field(default_factory=SaveConfig)
    void: VoidConfig = field(default_factory=VoidConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    health: HealthConfig = field(default_factory=HealthConfig)
    game: GameConfig = field(default_factory=GameConfig)
    league: LeagueConfig = field(default_factory=LeagueConfig)
    referee: RefereeConfig = field(default_factory=RefereeConfig)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    data: DataConfig = field(default_factory=DataConfig)
    warmup: WarmupConfig = field(default_factory=WarmupConfig)
    retriever: RetrieverConfig = field(default_factory=RetrieverConfig)
    placement: PlacementConfig = field(default_factory=PlacementConfig)
    ray: RayConfig = field(default_factory=RayConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    defaults: RoleConfig = field(default_factory=RoleConfig)
    blocks: dict[str, RoleConfig] = field(default_factory=dict)
    """The settings of each role. In a file they stand beside the other keys."""

    def __post_init__(self) -> None:
        """Each role of the game has its settings. A start may take as long as a call, and a minute.
        Episodes of the torch engine run on their own where weights may come within a turn, or
        agents play. The engine of who answers is also the verifier's, on a shared base
        everybody's."""
        spec = self.spec
        self.league.every = self.save.every
        blocks, players, bounds = self.blocks, self.placement.players, self.schedule.max_staleness
        self.blocks = {role: blocks.get(role) or RoleConfig() for role in spec.role_blocks}
        self.placement.players = {role: players.get(role, PLAYERS) for role in self.blocks}
        self.schedule.max_staleness = {role: bounds.get(role, 0) for role in self.blocks}
        for role, block in self.blocks.items():
            asks = role == spec.asker or role not in spec.roles  # who has no part would ask
            block.reward = block.reward or ("1-acc" if asks else "em")
            if block.rehearsal.share:
                block.rehearsal.data = block.rehearsal.data or self.warmup.data
            live = self.schedule.in_flight and self.schedule.max_staleness[role] > 0
            block.engine.continuous = live or bool(block.agent)
        self.ray.start_timeout = max(SHORTEST_START, self.placement.call_timeout)
        if spec.asker:
            proof = self.referee.prompt_tokens + self.referee.answer_tokens
            lengths = [self.blocks[role].limits.longest for role in spec.roles]
            self.blocks[spec.answerer].engine.longest = max(proof, *lengths)

    @property
    def spec(self) -> GameSpec:
        """The game that is played."""
        return games.find(games.kind(self.game.kind, self.game.questions))

    @property
    def roles(self) -> tuple[str, ...]:
        """Who plays and learns, in the order of their steps."""
        return self.spec.roles

    @property
    def answering(self) -> RoleConfig:
        """The block of the role that answers questions, which an evaluation measures."""
        return self.block(self.spec.answerer)

    @property
    def rows(self) -> str:
        """The file, folder or world that the rows of the game come from; "" for none."""
        places = {
            TARGETS: self.data.targets,
            QUESTIONS: self.data.questions,
            DOCUMENTS: self.data.documents,
        }
        return places.get(self.spec.rows, "")

    @property
    def asks(self) -> bool:
        """Whether somebody writes questions; else they are given."""
        return self.spec.asking is not None

    @property
    def asking(self) -> RoleConfig:
        """The block of the role that writes questions; the defaults where nobody does."""
        return self.block(self.spec.asker) if self.asks else self.defaults

    def block(self, role: str) -> RoleConfig:
        """The block of one role."""
        return self.blocks[role]

    def __getattr__(self, role: str) -> RoleConfig:
        """The block of one role, by its name."""
        blocks = self.__dict__.get("blocks", {})
        if role not in blocks:
            raise AttributeError(f"no setting and no role of the game: {role}")
        block: RoleConfig = blocks[role]
        return block
