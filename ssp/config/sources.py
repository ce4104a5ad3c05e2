"""What is read and searched: the files of a run, and how its corpora are asked."""

from dataclasses import dataclass, field

from ssp.config.fields import Actors, Amount, Count, Positive, Seconds


@dataclass
class EvalSet:
    """An evaluation set.

    `name`: what the figures call it. `file`: its questions. `corpus`: what is searched (`none`:
    finds nothing)."""

    name: str = "heldout"
    file: str = "world:heldout"
    corpus: str = "world:heldout"


@dataclass
class DataConfig:
    """Files (docs/data.md has the formats), or `world:train` and `world:heldout`, which are
    generated.

    `corpus`: what is searched. `targets`: answers that the proposer asks about. `documents`: a
    corpus whose passages a game asks about ("" = those of `corpus`). `questions`: for
    game.questions=dataset a question file; for bank a run folder whose accepted questions are asked
    again, or an export of them by `ssp bank`; for game.given a question file. `eval`:
    evaluation sets. The first one is asked during the run, all of them at the end."""

    corpus: str = "world:train"
    targets: str = "world:train"
    documents: str = ""
    questions: str = ""
    eval: list[EvalSet] = field(
        default_factory=lambda: [
            EvalSet(),
            EvalSet("train", "world:train", "world:train"),
            EvalSet("nosearch", "world:heldout", "none"),
        ]
    )


@dataclass
class OnlineConfig:
    """A search engine of the web in place of data.corpus. docs/search.md names the environment
    variable of each engine's key. Answers are kept for a day, in a file of each machine.

    `engine`: serper, serpapi (of which google is asked), such as serpapi:bing, or google_cse:ID
    with the id of the search engine ("" = none); `retriever.url` stands for its own address. With
    +pages behind the name the pages that were found are read, and the paragraph around each snippet
    is kept. With +vary it gives a random number of the results, 1 to topk, drawn from (seed, query,
    topk)."""

    engine: str = ""
    ttl = 86400.0


@dataclass
class RetrieverConfig:
    """How each corpus is searched: a file (BM25 in memory) or an index folder of `ssp index`. A
    folder that holds both kinds of index is searched by both (hybrid). Requests that come within
    `window` seconds are merged, up to `max_batch` queries. Each player keeps the last answers.

    `shards`: parts of a corpus, each with an actor. `replicas`: actors of each shard, and for dense
    search as many more that encode queries, with float16 weights on a GPU. `url`: a search server
    in place of data.corpus, or the address of an online engine. `topk`: documents a query.
    `timeout`: seconds that one search may take (of a `url` or an engine: one request); after a
    quarter of it another replica is asked too. An answer is of the whole corpus, or void. `effort`:
    efSearch of HNSW, nprobe of IVF (0 = as built). `reranker`: folder of a cross-encoder, which
    reads `rerank` candidates a query ("" = none). `gpus`: GPUs that each shard and encoder asks Ray
    for."""

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
    effort: Count = 0
    reranker: str = ""
    rerank = 10
    gpus: Amount = 0.0
    online: OnlineConfig = field(default_factory=OnlineConfig)
