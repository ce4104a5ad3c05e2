"""Dense indexes: exact inner product over plain vectors, with the bits of a brute force in double
precision, and any index that faiss made. Knobs of one request never reach another."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from ssp.base.errors import InputError, hold, holding
from ssp.search.hits import NO_ROW, Hits, Knobs, Rows, Vectors, merge

SLACK = 8
"""Candidates that are scored again beyond the `k` that are asked."""
BLOCK = 1 << 23
"""Bytes that one step of a search may make."""
UNIT = 2.0**-24
"""Half the gap between 1 and the next float32: the relative error of one rounding."""
ADDED = 2**14
"""Rows that are added to an index at once."""

AS_BUILT = Knobs()

faiss: Any = import_module("faiss")  # its type stubs lack much of what it has
# Queries times width from which faiss multiplies matrices; below it goes query by query, which
# reads the rows for each but does not copy them first. The two meet at about 4 queries; by default
# (128,000) faiss changes over far too late.
faiss.cvar.distance_compute_blas_threshold = 2400


def exact_scores(vectors: Vectors, queries: Vectors) -> npt.NDArray[np.float32]:
    """Inner products `[..., m] float32` of `vectors [..., m, d]` and `queries [..., d]`. A pair has
    the same bits whatever is scored beside it."""
    products = np.multiply(vectors, queries[..., None, :], dtype=np.float64)
    return products.sum(axis=-1).astype(np.float32)


def error_bound(queries: Vectors, norm: float) -> npt.NDArray[np.float64]:
    """How far a float32 score of each of `queries [n, d]` may be from the exact one, in any order
    of summation (Higham, 3.5), for rows of at most this Euclidean `norm`."""
    roundings = queries.shape[1] + 4
    relative = roundings * UNIT / (1 - roundings * UNIT)
    norms = np.sqrt(np.square(queries, dtype=np.float64).sum(axis=1))
    return relative * norms * norm * 1.001 + roundings * 2.0**-149


def top_rows(rows: Rows, scores: npt.NDArray[np.float32], k: int) -> Hits:
    """The best `k` of each line of `rows [n, m]` and `scores [n, m]`, ties by row, filled up to
    `k`. `NO_ROW` goes last."""
    absent = rows == NO_ROW
    scores = np.where(absent, np.float32(-np.inf), scores)
    order = np.lexsort((rows, absent, -scores), axis=-1)[:, :k]
    hits = Hits.none(len(rows), k)
    hits.rows[:, : order.shape[1]] = np.take_along_axis(rows, order, 1)
    hits.scores[:, : order.shape[1]] = np.take_along_axis(scores, order, 1)
    return hits


class FlatIndex:
    """Exact inner product over `vectors [rows, d]` (float32, may be memory-mapped), rows `first`
    and on. faiss finds candidates in float32, and their `exact_scores` decide. Where a row that is
    no candidate could still belong to the best `k`, within the error bound of float32, all rows
    above that bound are scored."""

    knobs: tuple[str, ...] = ()

    def __init__(self, vectors: Vectors, first: int = 0) -> None:
        # a slice of a plain array costs less than one of a memmap
        self.vectors: Vectors = vectors.view(np.ndarray)
        self.first = first
        self._norm: float | None = None

    def warm(self) -> float:
        """Read all rows once, and return the largest Euclidean norm of one. InputError for a vector
        that is not finite."""
        if self._norm is None:
            squares = [np.einsum("ij,ij->i", block, block).max() for _, block in self._blocks()]
            norm = float(np.sqrt(max(squares, default=0.0)))
            if not norm < 1e15:
                rule = "every vector of an index is finite"
                raise InputError(rule, f"a norm of {norm}", "embed the corpus again")
            self._norm = norm
        return self._norm

    def search(self, vectors: Vectors, k: int, knobs: Knobs = AS_BUILT) -> Hits:
        """Best `k` rows of each of `vectors [n, d]`. InputError for another width, a value that is
        not finite, any knob."""
        queries = _check(vectors, self.vectors.shape[1], self.knobs, knobs)
        if not len(queries) or not len(self.vectors):
            return Hits.none(len(queries), k)
        count = min(k + SLACK, len(self.vectors))
        rough, local = faiss.knn(queries, self.vectors, count, metric=faiss.METRIC_INNER_PRODUCT)
        hits = top_rows(local, self._scores(local, queries), k)

        if count < len(self.vectors):
            error = error_bound(queries, self.warm())
            least = hits.scores[:, k - 1]
            left_out = rough[:, -1].astype(np.float64) + error
            doubtful = np.flatnonzero(~(left_out < least))
            if len(doubtful):
                bounds = least[doubtful] - error[doubtful]
                again = self._scan(queries[doubtful], k, bounds)
                hits.rows[doubtful] = again.rows
                hits.scores[doubtful] = again.scores

        hits.rows[hits.rows != NO_ROW] += self.first
        return hits

    def _blocks(self) -> Iterator[tuple[int, Vectors]]:
        """First row and rows, block by block."""
        step = max(1, BLOCK // (4 * max(1, self.vectors.shape[1])))
        for start in range(0, len(self.vectors), step):
            yield start, self.vectors[start : start + step]

    def _scores(self, local: Rows, queries: Vectors) -> npt.NDArray[np.float32]:
        """Exact scores of the candidates `local [n, m]` of `queries [n, d]`."""
        step = max(1, BLOCK // (8 * local.shape[1] * queries.shape[1]))
        scores = []
        for start in range(0, len(local), step):
            some = slice(start, start + step)
            scores.append(exact_scores(self.vectors[local[some]], queries[some]))
        return np.concatenate(scores)

    def _scan(self, queries: Vectors, k: int, bounds: npt.NDArray[np.float64]) -> Hits:
        """The best `k` rows of each query among those whose float32 score reaches its bound."""
        cuts = np.nextafter(bounds.astype(np.float32), np.float32(-np.inf))
        best = [Hits.none(1, k)] * len(queries)
        for start, block in self._blocks():
            near = queries @ block.T >= cuts[:, None]
            for i in np.flatnonzero(near.any(axis=1)):
                kept = np.flatnonzero(near[i])
                scores = exact_scores(block[kept], queries[i])
                better = top_rows((kept + start)[None], scores[None], k)
                best[i] = merge([best[i], better], k)
        rows = np.concatenate([hits.rows for hits in best])
        return Hits(rows, np.concatenate([hits.scores for hits in best]))


class FaissIndex:
    """Faiss indexes over consecutive rows as one. InputError for one that ranks by another measure
    than inner product."""

    def __init__(self, parts: Sequence[Any], firsts: Sequence[int]) -> None:
        # the others are views: faiss frees an index with the object that made it
        self._owners = list(parts)
        self.parts = [faiss.downcast_index(part) for part in parts]
        self.firsts = list(firsts)
        for part in self.parts:
            if part.metric_type != faiss.METRIC_INNER_PRODUCT:
                rule = "a dense index ranks by inner product"
                measure = f"{type(part).__name__} with metric {part.metric_type}"
                raise InputError(rule, measure, "build it again: ssp index")
        self.knobs = knobs_of(self.parts[0])

    def search(self, vectors: Vectors, k: int, knobs: Knobs = AS_BUILT) -> Hits:
        """Best `k` rows of each of `vectors [n, d]`, as far as the index finds them. InputError as
        `FlatIndex.search`, and for a knob that the index has not."""
        queries = _check(vectors, self.parts[0].d, self.knobs, knobs)
        hits = []
        for part, first in zip(self.parts, self.firsts, strict=True):
            count = max(1, min(k, part.ntotal))
            scores, local = part.search(queries, count, params=parameters(part, knobs))
            hits.append(top_rows(np.where(local < 0, NO_ROW, local + first), scores, k))
        return merge(hits, k)


def _check(vectors: Vectors, width: int, held: Sequence[str], knobs: Knobs) -> Vectors:
    """`vectors` as contiguous float32. InputError for what the index cannot search with."""
    queries = np.ascontiguousarray(vectors, dtype=np.float32)
    step = "check the folder encoder in the index"
    if queries.ndim != 2 or queries.shape[1] != width:
        rule = "queries are encoded by the index's own encoder"
        raise InputError(rule, f"shape {queries.shape} for an index of width {width}", step)
    hold(np.isfinite(queries).all(), "query vectors are finite", "nan or infinity", step)
    for name, value in vars(knobs).items():
        if value and name not in held:
            rule = "a request sets knobs that the index has"
            odd = f"{name}={value} for an index that has {' and '.join(held) or 'none'}"
            raise InputError(rule, odd, f"leave {name} at 0")
    return queries


def knobs_of(index: Any) -> tuple[str, ...]:
    """The knobs that `parameters` can set for this index."""
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexHNSW):
        return ("ef_search",)
    if isinstance(index, faiss.IndexIVF):
        return tuple(sorted({"nprobe", *knobs_of(index.quantizer)}))
    if type(index).__name__.startswith("GpuIndexIVF"):
        return ("nprobe",)
    inner = inside(index)
    return () if inner is None else knobs_of(inner)


def inside(index: Any) -> Any | None:
    """The index inside a wrapper."""
    if isinstance(index, faiss.IndexRefine):
        return index.base_index
    if isinstance(index, (faiss.IndexPreTransform, faiss.IndexIDMap)):
        return index.index
    if isinstance(index, (faiss.IndexShards, faiss.IndexReplicas)):
        return index.at(0)
    return None


def parameters(index: Any, knobs: Knobs) -> Any | None:
    """faiss's search parameters for one request; what `knobs` leaves at 0 is as built. None for an
    index without knobs."""
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexHNSW):
        return faiss.SearchParametersHNSW(
            efSearch=knobs.ef_search or index.hnsw.efSearch,
            check_relative_distance=index.hnsw.check_relative_distance,
            bounded_queue=index.hnsw.search_bounded_queue,
        )
    if isinstance(index, faiss.IndexIVF):
        return faiss.SearchParametersIVF(
            nprobe=knobs.nprobe or index.nprobe,
            max_codes=index.max_codes,
            quantizer_params=parameters(index.quantizer, knobs),
        )
    if type(index).__name__.startswith("GpuIndexIVF"):
        return faiss.SearchParametersIVF(nprobe=knobs.nprobe or index.nprobe)
    wrapped = inside(index)
    inner = None if wrapped is None else parameters(wrapped, knobs)
    if inner is None:
        return None
    if isinstance(index, faiss.IndexRefine):
        return faiss.IndexRefineSearchParameters(k_factor=index.k_factor, base_index_params=inner)
    if isinstance(index, faiss.IndexPreTransform):
        return faiss.SearchParametersPreTransform(index_params=inner)
    return inner


def open_index(path: Path, mapped: bool = True) -> Any:
    """The faiss index in a file, `mapped` or loaded. InputError when it cannot be read, and for one
    that calls its vectors by other ids than the corpus's rows, which would show another passage for
    each hit."""
    rule = "an index file is one that faiss reads"
    with holding(
        RuntimeError,
        rule,
        lambda error: f"{path}: {_first_line(error)}",
        "build it again: ssp index",
    ):
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC if mapped else 0)
    _check_ids(path, index)
    return index


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][-200:]


def _check_ids(path: Path, index: Any) -> None:
    """InputError unless the ids that `index` answers are 0 to rows - 1, each once. What IndexIDMap
    holds was added in the order of the rows, so there its ids must be in order too."""
    index = faiss.downcast_index(index)
    rule = "the ids of an index are the corpus's rows, from 0, in their order"
    step = (
        "make it without ids of its own: index.add(vectors) in the corpus's order, not add_with_ids"
    )
    if isinstance(index, faiss.IndexIDMap):
        ids = faiss.vector_to_array(index.id_map)
        if not np.array_equal(ids, np.arange(index.ntotal)):
            shown = f"{path}: IndexIDMap with the ids {ids[:5].tolist()}..."
            raise InputError(rule, shown, f"take the index inside it (.index), or {step}")

    if isinstance(index, faiss.IndexIVF):
        among = f"among {index.ntotal:,} rows"
        seen = np.zeros(index.ntotal, bool)
        for number in range(index.nlist):
            size = index.invlists.list_size(number)
            if size:
                ids = faiss.rev_swig_ptr(index.invlists.get_ids(number), size)
                strange = ids[(ids < 0) | (ids >= index.ntotal)]
                hold(not len(strange), rule, f"{path}: id {strange[:1]} {among}", step)
                seen[ids] = True
        hold(seen.all(), rule, f"{path}: no id {np.flatnonzero(~seen)[:1]} {among}", step)

    inner = inside(index)
    if inner is not None:
        _check_ids(path, inner)


def flat_vectors(path: Path) -> npt.NDArray[np.float32]:
    """The vectors `[rows, d]` inside a faiss file, mapped: a flat index, or one of HNSW over a flat
    one. InputError as of `open_index`, for another kind of index and for one built for L2."""
    index = open_index(path)
    flat = faiss.downcast_index(index.storage if isinstance(index, faiss.IndexHNSW) else index)
    if not isinstance(flat, faiss.IndexFlat):
        rule = "vectors are read from a flat faiss index, or HNSW over one"
        step = "open the index as it is: it has no plain vectors"
        raise InputError(rule, f"{path}: {type(flat).__name__}", step)
    FaissIndex([index], [0])  # refuses another measure
    if not flat.ntotal:
        return np.empty((0, flat.d), np.float32)
    address = faiss.rev_swig_ptr(flat.get_xb(), 1).ctypes.data
    interface = {
        "data": (address, True),
        "shape": (flat.ntotal, flat.d),
        "typestr": "<f4",
        "version": 3,
    }
    # the array keeps the index alive
    return np.asarray(SimpleNamespace(__array_interface__=interface, index=index))


def to_gpu(index: Any) -> Any:
    """`index` on all GPUs that are visible, its rows divided among them, stored in 16 bits.
    InputError without a faiss that can, without a GPU, and for an index that has no GPU form
    (HNSW)."""
    if not getattr(faiss, "get_num_gpus", int)() or not hasattr(faiss, "StandardGpuResources"):
        rule = "an index on a GPU needs faiss-gpu and a GPU"
        step = "install faiss-gpu, or retriever.gpus=0"
        raise InputError(rule, f"faiss {faiss.__version__} without a GPU", step)
    options = faiss.GpuMultipleClonerOptions()
    options.shard = options.useFloat16 = True
    kind = type(faiss.downcast_index(index)).__name__
    with holding(
        RuntimeError,
        "faiss puts this index on a GPU",
        lambda error: f"{kind}: {_first_line(error)}",
        "use Flat or IVF, or retriever.gpus=0",
    ):
        return faiss.index_cpu_to_all_gpus(index, co=options)


def open_flat(
    table: npt.NDArray[np.float32], first: int, last: int, gpu: bool
) -> FlatIndex | FaissIndex:
    """Rows [first, last) of `table [rows, d]` (memory-mapped) as an exact index; on the GPUs in 16
    bits."""
    if not gpu:
        return FlatIndex(table[first:last], first)
    index = to_gpu(faiss.IndexFlatIP(table.shape[1]))
    for start in range(first, last, ADDED):
        index.add(np.ascontiguousarray(table[start : min(start + ADDED, last)]))
    return FaissIndex([index], [first])


def open_parts(held: Sequence[tuple[Path, tuple[int, int]]], dim: int, gpu: bool) -> FaissIndex:
    """The parts of an index: file, first row and last row + 1 of each. InputError for another
    number of rows or width."""
    parts = []
    for path, (first, last) in held:
        index = open_index(path, mapped=not gpu)
        if (index.ntotal, index.d) != (last - first, dim):
            rule = f"{path} holds {last - first:,} rows of {dim}"
            shape = f"{index.ntotal:,} rows of {index.d}"
            raise InputError(rule, shape, "build it again: ssp index")
        parts.append(to_gpu(index) if gpu else index)
    return FaissIndex(parts, [first for _, (first, _) in held])
