"""What is read and searched: the files of a run, and how its corpora are asked."""

from dataclasses import dataclass, field

from ssp.config.fields import Actors, Amount, Positive, Seconds


@dataclass
class EvalSet:
    """An evaluation set.

    `name`: what the figures call it. `file`: its questions. `corpus`: none finds nothing."""

    name: str = "heldout"
    file: str = "world:heldout"
    corpus: str = "world:heldout"


@dataclass
class DataConfig:
    """Files (docs/data.md), or the generated `world:train` and `world:heldout`.

    `corpus`: what is searched. `targets`: what the proposer asks about; for a game about passages a corpus
    (as it is, `corpus`). `questions`: a question file
    (game.questions=dataset, game.given), or for bank a run folder with accepted questions, or an
    export by `ssp bank`. `eval`: sets (corpus none: finds nothing); the first one is asked during
    the run, all at the end."""

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

    @property
    def documents(self) -> str:
        """The corpus whose passages a game asks about."""
        return self.corpus if self.targets == DataConfig.targets else self.targets


@dataclass
class OnlineConfig:
    """A search engine of the web in place of data.corpus (docs/search.md). Answers are kept for a
    day, in a file of each machine.

    `engine`: serper, serpapi (google; or serpapi:bing and others), google_cse:ID ("" = none), at
    its own address or `retriever.url`. +pages behind the name reads the pages, and keeps the
    paragraph around each snippet; +vary gives 1 to topk results, by (seed, query, topk)."""

    engine: str = ""
    ttl = 86400.0


@dataclass
class RetrieverConfig:
    """How each corpus is searched: a file (BM25 in memory) or a folder of `ssp index`; one with
    both kinds of index by both (hybrid). Requests within `window` seconds are merged, up to
    `max_batch` queries. Each player keeps the last answers.

    `shards`: parts of a corpus, each with an actor. `replicas`: actors of each shard, and for dense
    search as many that encode queries (float16 on a GPU). `url`: a search server in place of
    data.corpus, or an online engine's address. `topk`: documents a query. `timeout`: seconds of a
    search (of a `url` or an engine: of a request); after a quarter another replica is asked too.
    `reranker`: folder of a cross-encoder,
    which reads `rerank` candidates a query ("" = none). `gpus`: of each shard and encoder."""

    shards: Actors = 2
    replicas: Actors = 1
    url: str = ""
    topk: Positive = 3
    k1 = 1.2
    b = 0.25
    timeout: Seconds = 20.0
    window = 0.002
    max_batch = 64
    cache = 8192
    reranker: str = ""
    rerank = 10
    gpus: Amount = 0.0
    online: OnlineConfig = field(default_factory=OnlineConfig)
