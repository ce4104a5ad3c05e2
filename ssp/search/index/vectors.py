"""Vectors of a corpus and the dense index over them, made or taken over from files. A killed build
goes on after what is on disk, and with one thread comes to the same index."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ssp.base.errors import InputError, hold, holding
from ssp.base.files import sync, whole
from ssp.search.bm25 import shard_rows
from ssp.search.dense import ADDED, FaissIndex, faiss, inside, open_index
from ssp.search.documents import MappedDocuments, place
from ssp.search.hits import Vectors
from ssp.search.index.store import FLAT, part_name

SAVE_SECONDS = 10.0
"""Seconds of encoding that a kill may cost."""
TRAIN_BYTES = 2**30
"""Vectors that an index is trained on, at most: a seeded sample of the whole corpus."""
SEED = 20
CONSTRUCTION = 200
"""Candidates that HNSW keeps while it links a row (efConstruction; faiss's 40 costs recall). It
does not hold for the quantiser of an IVF."""

UNIT = 1e-6
"""The difference below which two nearnesses count as equal; also the least norm that is divided
by."""
LOOKED_AT = 8
"""Passages whose vectors in an index file are compared with the encoder's."""

Encode = Callable[[Sequence[str]], Vectors]
Report = Callable[[int, int], None]


def embed(
    documents: MappedDocuments, encode: Encode, target: Path, block: int, report: Report
) -> None:
    """Write the vectors of all documents to `target` (.npy, float32, row order), `block` texts at a
    time. A file beside it counts the rows that are on disk; encoding goes on there. InputError for
    a vector that is not finite."""
    counter = target.with_suffix(".rows")
    total = documents.rows
    row = int(counter.read_text()) if counter.exists() else 0
    table = np.lib.format.open_memmap(target, "r+") if row else None
    saved = time.monotonic()
    while row < total:
        passages = documents.gather(np.arange(row, min(row + block, total)))
        vectors = encode([passage.contents for passage in passages])
        if table is None:
            table = np.lib.format.open_memmap(target, "w+", np.float32, (total, vectors.shape[1]))
        _check_finite(vectors, row)
        table[row : row + len(passages)] = vectors
        row += len(passages)
        if row == total or time.monotonic() - saved > SAVE_SECONDS:
            table.flush()
            with whole(counter) as aside:
                aside.write_text(str(row))
            saved = time.monotonic()
        report(row, total)


def take_embedding(source: Path, target: Path, rows: int, dim: int, report: Report) -> int:
    """Bring vectors that were made before to `target`, and return their width. `source` is .npy
    (float32, float16), or plain float32 as Search-R1 saves them. `dim` 0: any width. InputError for
    another number of rows, another width, a value that is not finite."""
    rule = "an embedding is one table of float32 or float16 (.npy), or plain float32"
    step = "check the file"
    size = source.stat().st_size
    numpys = source.suffix == ".npy"
    with holding((OSError, ValueError, EOFError), rule, source, step):
        if numpys:
            table: npt.NDArray[Any] = np.load(source, mmap_mode="r")
        else:
            table = np.memmap(source, np.float32, "r", shape=(rows, size // (4 * rows)))
            if table.nbytes != size:
                raise ValueError(f"{size:,} bytes are not {rows:,} rows of float32")
    numbers = table.dtype in (np.float32, np.float16)
    if table.ndim != 2 or not numbers or not table.flags.c_contiguous:
        raise InputError(rule, f"{source}: {table.dtype} {table.shape}", step)
    held, width = table.shape
    if held != rows or (dim and width != dim):
        rule = f"an embedding has the corpus's {rows:,} rows of {dim or 'any'} numbers"
        raise InputError(rule, f"{source}: {held:,} rows of {width}", step)

    copy = None
    if numpys and table.dtype == np.float32:
        place(source, target)
    else:
        copy = np.lib.format.open_memmap(target, "w+", np.float32, table.shape)
    for start in range(0, rows, ADDED):
        block = np.asarray(table[start : start + ADDED], dtype=np.float32)
        _check_finite(block, start)
        if copy is not None:
            copy[start : start + len(block)] = block
        report(min(start + ADDED, rows), rows)
    if copy is not None:
        copy.flush()
    return int(width)


def _check_finite(vectors: npt.NDArray[Any], first: int) -> None:
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        rule = "every vector of a corpus is finite"
        step = "encode with --dtype float32, or check that row"
        raise InputError(rule, f"row {first + bad[0]} (from 0)", step)


def check_factory(factory: str, dim: int) -> None:
    """InputError for a factory that faiss does not make for vectors of this width."""
    with _refused(factory):
        faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)


def build_parts(
    table: npt.NDArray[np.float32],
    factory: str,
    parts: int,
    scratch: Path,
    out: Path,
    report: Report,
) -> None:
    """Write the index that faiss's `index_factory` makes of `factory` (inner product) to `out`, in
    `parts` files of consecutive rows. HNSW is built with efConstruction `CONSTRUCTION`. All parts
    share one training, so that parts of IVF find together what one index finds. InputError for a
    factory that faiss refuses, for this width or this few rows."""
    total = len(table)
    trained = scratch / "trained.faiss"
    with _refused(factory):
        if not trained.exists():
            _write(_trained(table, factory), trained)
        for part in range(parts):
            target = out / Path(part_name(part)).name
            if target.exists():
                continue
            first, last = shard_rows(total, part, parts)
            index = faiss.read_index(str(trained))
            graph = _graph(index)
            for row in range(first, last, ADDED):
                if graph:  # a file does not keep its generator
                    graph.rng = faiss.RandomGenerator(SEED + row)
                block = table[row : min(row + ADDED, last)]
                index.add(np.ascontiguousarray(block, dtype=np.float32))
                report(first + index.ntotal, total)
            _write(index, target)


def _trained(table: npt.NDArray[np.float32], factory: str) -> Any:
    """The empty index, trained on a sample of `table` where it needs that."""
    rows, width = table.shape
    index = faiss.index_factory(width, factory, faiss.METRIC_INNER_PRODUCT)
    graph = _graph(index)
    if graph:
        graph.efConstruction = CONSTRUCTION
    if not index.is_trained:
        count = min(rows, max(1, TRAIN_BYTES // (4 * width)))
        sample = np.random.default_rng(SEED).choice(rows, count, replace=False)
        index.train(np.ascontiguousarray(table[np.sort(sample)], dtype=np.float32))
    return index


def _write(index: Any, path: Path) -> None:
    # always the same name: what a kill leaves beside the parts is written over
    aside = path.with_suffix(".aside")
    faiss.write_index(index, str(aside))
    sync(aside)
    aside.replace(path)


def _graph(index: Any) -> Any | None:
    """HNSW's graph, inside wrappers too; `index` must outlive it."""
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexHNSW):
        return index.hnsw
    inner = inside(index)
    return None if inner is None else _graph(inner)


def _refused(factory: str) -> AbstractContextManager[None]:
    """Around what raises where faiss refuses `factory`."""
    return holding(
        RuntimeError,
        "--faiss is an index that faiss's index_factory makes of this corpus",
        lambda error: f"{factory}: {' '.join(str(error).split())[-300:]}",
        "choose another, e.g. Flat, HNSW32, IVF1024,SQ8",
    )


def adopted(source: Path, rows: int, dim: int, factory: str) -> tuple[str, int]:
    """The factory and width of an index file: for Flat and HNSW what the file says, for others
    `factory`. InputError unless it ranks the corpus's `rows` by inner product, in the encoder's
    `dim` (0: any), and `factory` makes such an index."""
    index = open_index(source)
    FaissIndex([index], [0])  # refuses another measure
    if index.ntotal != rows or (dim and index.d != dim):
        rule = f"an index has the corpus's {rows:,} rows and its encoder's {dim or 'any'} numbers"
        shape = f"{source}: {index.ntotal:,} rows of {index.d}"
        raise InputError(rule, shape, "take the corpus and the encoder that it was made with")
    if isinstance(index, faiss.IndexFlat):
        return FLAT, index.d
    if isinstance(index, faiss.IndexHNSWFlat):
        return f"HNSW{index.hnsw.nb_neighbors(1)}", index.d
    with _refused(factory):
        named = faiss.index_factory(index.d, factory, faiss.METRIC_INNER_PRODUCT)
    if type(named) is not type(index):
        rule = "an index file is named by the factory that it was made with"
        kinds = f"{type(index).__name__}, --faiss {factory}: {type(named).__name__}"
        raise InputError(rule, f"{source}: {kinds}", "set --faiss to that")
    return factory, index.d


def check_rows(source: Path, documents: MappedDocuments, encode: Encode) -> None:
    """InputError unless most of a few passages are encoded nearest to their own vectors in an index
    file, among the vectors of them all: in another order, or by another encoder, few are. An index
    that gives no vectors back is not refused."""
    owner = open_index(source)  # what it holds lives as long as it does
    index = faiss.downcast_index(owner.index) if isinstance(owner, faiss.IndexIDMap) else owner
    rows = np.unique(np.linspace(0, documents.rows - 1, LOOKED_AT).astype(np.int64))
    lists = faiss.try_extract_index_ivf(index)
    if lists is not None and isinstance(faiss.downcast_index(lists), faiss.IndexIVFFastScan):
        return  # faiss crashes where it is asked
    try:
        if lists is not None:
            lists.make_direct_map()
        held = np.stack([index.reconstruct(int(row)) for row in rows])
    except RuntimeError:
        return
    encoded = encode([document.contents for document in documents.gather(rows)])
    norms = np.maximum(np.linalg.norm(held, axis=1, keepdims=True), UNIT)
    nearness = encoded @ (held / norms).T
    right = np.count_nonzero(nearness.diagonal() >= nearness.max(axis=1) - UNIT)
    hold(
        2 * right > len(rows),
        "the vectors of an index are those of the corpus's rows, in their order",
        f"{source}: {right} of {len(rows)} passages are nearest to their own",
        "take the corpus and the encoder that it was made with; ids of one's own must be the rows",
    )
