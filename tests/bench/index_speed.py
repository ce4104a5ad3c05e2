"""Indexes of vectors side by side: build seconds, MB, recall@10, ms a query at batch 1, 32 and 128, wall and CPU.

    OMP_WAIT_POLICY=PASSIVE python tests/bench/index_speed.py --rows 200000 --vectors passages.npy --queries queries.npy

--vectors, --queries: embeddings [rows, d] of real passages and questions, length 1 (an index's embedding.npy). With fewer
than --rows they are paired: row = passage i beside one of its 10 nearest, so 2 d wide, plus noise of --noise a value; a
query is put beside itself. Both are scaled to length 1 again. Without --vectors: clustered points (--dim, 200 clusters).
--encoder FOLDER makes real vectors instead: texts are the docstrings of .py files and the text of .md, .rst and .txt files
under --texts, in a seeded order; a row is a sentence beside the next distinct one of its text (2 d wide, length 1, no
noise), and 1000 rows drawn at random are the queries and not in the index. --keep FILE.npy keeps these vectors.
Prints a table, and one line `RESULT {json}` for each index, knob, batch and number of threads. The load of the machine is
printed too: figures taken beside other work are too high.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import statistics
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ssp.search.dense import FaissIndex, FlatIndex, faiss  # noqa: E402
from ssp.search.encoders.encoder import TextEncoder  # noqa: E402
from ssp.search.encoders.families import detect  # noqa: E402
from ssp.search.hits import NO_ROW, Hits, Knobs  # noqa: E402
from ssp.search.index.vectors import CONSTRUCTION  # noqa: E402

FACTORIES = "Flat HNSW32 IVF1024,Flat IVF1024,SQ8 IVF1024,PQ96 SQfp16"
BATCHES = (1, 32, 128)
QUERIES = 1000
SUFFIXES = (".py", ".md", ".rst", ".txt")
K = 10


def clustered(rows: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Points around 200 centres, of length 1."""
    centres = np.random.default_rng(0).standard_normal((200, width), dtype=np.float32)
    points = centres[rng.integers(0, 200, rows)] + 0.8 * rng.standard_normal((rows, width), dtype=np.float32)
    return unit(points)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scaled to length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def paired(vectors: np.ndarray, rows: int, noise: float, rng: np.random.Generator) -> np.ndarray:
    """`rows` vectors [.., 2 d]: each real one beside each of its nearest, and noise."""
    each = -(-rows // len(vectors))
    nearest = FlatIndex(vectors).search(vectors, each + 1).rows[:, 1:]
    pairs = np.concatenate([np.repeat(vectors, each, axis=0), vectors[nearest.ravel()]], axis=1)
    pairs = pairs[rng.permutation(len(pairs))[:rows]]
    return unit(pairs + noise * rng.standard_normal(pairs.shape, dtype=np.float32))


def texts(folders: list[str]) -> Iterator[str]:
    """Docstrings and pages below `folders`, files in a seeded order."""
    files = sorted({path for folder in folders for path in Path(folder).rglob("*") if path.suffix in SUFFIXES})
    for i in np.random.default_rng(2).permutation(len(files)):
        text = files[i].read_text(errors="ignore") if files[i].is_file() else ""
        if files[i].suffix != ".py":
            yield text
            continue
        with suppress(SyntaxError, ValueError, RecursionError):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (found := ast.get_docstring(node)):
                    yield found


def consecutive(args: argparse.Namespace) -> np.ndarray:
    """`rows` + QUERIES vectors [.., 2 d]: sentences, each beside the next of its text; no sentence comes in twice."""
    sentences, pairs = sentences_of(args)
    folder = Path(args.encoder)
    encoder = TextEncoder(folder, detect(folder, args.encoder), "bfloat16")
    vectors = np.concatenate([encoder.encode_passages(sentences[i : i + 4096]) for i in range(0, len(sentences), 4096)])
    return unit(np.concatenate([vectors[pairs], vectors[pairs + 1]], axis=1))


def sentences_of(args: argparse.Namespace) -> tuple[list[str], np.ndarray]:
    """Different sentences of 5 to 24 words, letters for the most part, and the places of those whose next one is of the
    same text."""
    sentences, seen, pairs = list[str](), set[str](), list[int]()
    for text in texts(args.texts):
        before = len(sentences)
        for part in re.split(r"(?<=[.!?])\s+|\n\s*\n", text):
            sentence = " ".join(part.split())
            letters = sum(c.isalpha() or c == " " for c in sentence)
            if 4 <= sentence.count(" ") < 24 and letters > 0.8 * len(sentence) and sentence.lower() not in seen:
                seen.add(sentence.lower())
                sentences.append(sentence)
        if len(sentences) == before + 1:
            sentences.pop()
        pairs += range(before, len(sentences) - 1)
        if len(pairs) >= args.rows + QUERIES:
            break
    return sentences, np.array(pairs[: args.rows + QUERIES])


def data(args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Vectors and queries."""
    rng = np.random.default_rng(1)
    if args.encoder:
        keep = Path(args.keep) if args.keep else None
        vectors = np.load(keep) if keep and keep.exists() else consecutive(args)
        if keep and not keep.exists():
            np.save(keep, vectors)
        order = rng.permutation(len(vectors))[: args.rows + QUERIES]
        return vectors[np.sort(order[QUERIES:])], vectors[order[:QUERIES]]
    if not args.vectors:
        return clustered(args.rows, args.dim, rng), clustered(1000, args.dim, rng)
    vectors, queries = (np.load(path).astype(np.float32) for path in (args.vectors, args.queries))
    if len(vectors) >= args.rows:
        return vectors[: args.rows], queries
    return paired(vectors, args.rows, args.noise, rng), unit(np.concatenate([queries, queries], axis=1))


def knobs_for(factory: str) -> list[Knobs]:
    """What is tried."""
    if "HNSW" in factory:
        return [Knobs(ef_search=n) for n in (16, 32, 64, 128, 256, 512)]
    if "IVF" in factory:
        return [Knobs(nprobe=n) for n in (1, 4, 8, 16, 32, 64)]
    return [Knobs()]


def build(factory: str, vectors: np.ndarray, construction: int) -> tuple[Any, float, float]:
    """The index, seconds, MB (10**6 bytes) that it takes."""
    if factory == "Flat":
        index = FlatIndex(vectors)
        index.warm()
        return index, 0.0, vectors.nbytes / 1e6
    start = time.perf_counter()
    inner = faiss.index_factory(vectors.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
    if isinstance(inner, faiss.IndexHNSW):
        inner.hnsw.efConstruction = construction
    inner.train(vectors[np.random.default_rng(0).permutation(len(vectors))[:50_000]])
    inner.add(vectors)
    seconds = time.perf_counter() - start
    return FaissIndex([inner], [0]), seconds, len(faiss.serialize_index(inner)) / 1e6


def recall(found: Hits, exact: Hits) -> float:
    """Share of the exact rows that were found."""
    both = zip(found.rows.tolist(), exact.rows.tolist(), strict=True)
    return statistics.fmean(len((set(a) & set(b)) - {NO_ROW}) / len(b) for a, b in both)


def measure(
    search: Callable[[np.ndarray], object], queries: np.ndarray, batch: int, seconds: float
) -> tuple[float, float]:
    """Medians of wall and CPU ms a query."""
    walls, cpus, at, end = [], [], 0, time.perf_counter() + seconds
    while len(walls) < 5 or (time.perf_counter() < end and len(walls) < 400):
        asked = queries[np.arange(at, at + batch) % len(queries)]
        wall, cpu = time.perf_counter(), time.process_time()
        search(asked)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
        at += batch
    return statistics.median(walls) * 1e3 / batch, statistics.median(cpus) * 1e3 / batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--vectors", default="")
    parser.add_argument("--queries", default="")
    parser.add_argument("--encoder", default="", help="a sentence-transformers folder")
    parser.add_argument("--texts", nargs="*", default=[sysconfig.get_path("purelib"), sysconfig.get_path("stdlib")])
    parser.add_argument("--keep", default="")
    parser.add_argument("--noise", type=float, default=0.01)
    parser.add_argument("--factories", default=FACTORIES, help="with blanks between")
    parser.add_argument("--construction", type=int, default=CONSTRUCTION, help="efConstruction of HNSW")
    parser.add_argument("--threads", default="1 2", help="with blanks between; builds use the most")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each figure")
    args = parser.parse_args()
    threads = [int(n) for n in args.threads.split()]
    faiss.omp_set_num_threads(max(threads))
    vectors, queries = data(args)
    exact = FlatIndex(vectors).search(queries, K)
    print(f"{vectors.shape[0]} x {vectors.shape[1]}, {len(queries)} queries, load {os.getloadavg()[0]:.1f}", flush=True)
    print("index            build s     MB  knobs            recall  threads  batch  ms/query  CPU ms/query  queries/s")
    for factory in args.factories.split():
        faiss.omp_set_num_threads(max(threads))
        index, seconds, size = build(factory, vectors, args.construction)
        for knobs in knobs_for(factory):
            share = recall(index.search(queries, K, knobs), exact)
            for n in threads:
                faiss.omp_set_num_threads(n)
                for batch in BATCHES:
                    wall, cpu = measure(lambda q, i=index, s=knobs: i.search(q, K, s), queries, batch, args.seconds)
                    text = f"ef_search={knobs.ef_search}" if knobs.ef_search else f"nprobe={knobs.nprobe}"
                    line = f"{factory:15s} {seconds:8.1f} {size:6.0f}  {text:15s} {share:7.3f} {n:8d} {batch:6d}"
                    print(f"{line} {wall:9.3f} {cpu:13.3f} {1e3 / wall:10.0f}", flush=True)
                    row = {
                        "index": factory,
                        "rows": len(vectors),
                        "dim": vectors.shape[1],
                        "build_s": seconds,
                        "mb": size,
                    }
                    row |= {"ef_search": knobs.ef_search, "nprobe": knobs.nprobe, "recall": share, "threads": n}
                    row |= {"batch": batch, "ms": wall, "cpu_ms": cpu, "load": os.getloadavg()[0]}
                    print("RESULT", json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
