"""The index: its formula, what it skips, exact shards, ties, threads, building from a stream."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from localsearch import local

from ssp.base.episode import Document
from ssp.base.errors import InputError
from ssp.base.words import CHARACTER, fold, words
from ssp.search import bm25, postings
from ssp.search.bm25 import Bm25Index, at_least, build, fingerprint, top
from ssp.search.hits import Hits, merge
from ssp.search.postings import tokenise
from ssp.search.shard import in_memory

WORDS = ["pota", "vure", "bino", "seat", "founder", "Ünï", "city", "."]
texts = st.lists(st.sampled_from(WORDS), min_size=0, max_size=12).map(" ".join)
corpora = st.lists(texts, min_size=1, max_size=24).filter(lambda ts: any(tokenise(t) for t in ts))
queries = st.lists(st.one_of(st.sampled_from(WORDS), texts, st.text(max_size=8)), min_size=1, max_size=4)


def same(a: Hits, b: Hits) -> bool:
    return np.array_equal(a.rows, b.rows) and np.array_equal(a.scores, b.scores)


def zipf(n: int, length: int, vocabulary: int, seed: int = 0) -> list[str]:
    """Texts in which a few words are everywhere and most are rare, as in language."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, vocabulary + 1)
    draws = rng.choice(vocabulary, size=(n, length), p=weights / weights.sum())
    return [" ".join(f"w{w}" for w in row[: int(m)]) for row, m in zip(draws, rng.integers(1, length, n), strict=True)]


def summed(index: Bm25Index, query: str, k: int) -> list[tuple[int, float]]:
    """Every row's score, float32 in the order of the query's tokens; best first, ties by row."""
    scores = np.zeros(index.rows, dtype=np.float32)
    for token in tokenise(query):
        if (column := index.vocabulary.get(token)) is not None:
            span = slice(index.indptr[column], index.indptr[column + 1])
            scores[index.local[span]] += index.data[span]
    best = np.lexsort((np.arange(index.rows), -scores))[:k]
    return [(int(row), float(scores[row])) for row in best if scores[row] > 0]


@pytest.mark.covers("SR-41")
@pytest.mark.parametrize("documents, vocabulary", [(60, 40), (bm25.SMALL + 900, 3000)])
def test_ranking_equals_the_formula(documents, vocabulary):
    k1, b, k = 1.2, 0.25, 20
    corpus = zipf(documents, 30, vocabulary)
    index = build(corpus, k1, b)
    counts = [Counter(tokenise(text)) for text in corpus]
    lengths = [sum(count.values()) for count in counts]
    average = sum(lengths) / len(lengths)
    df = Counter(token for count in counts for token in count)
    idf = {token: math.log(1 + (len(corpus) - n + 0.5) / (n + 0.5)) for token, n in df.items()}
    rng = np.random.default_rng(1)
    for _ in range(50):
        words = corpus[int(rng.integers(len(corpus)))].split()
        query = [str(word) for word in rng.choice(words, 6)]
        expected = {}
        for row, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            norm = k1 * (1 - b + b * length / average)
            if score := sum(idf[t] * count[t] / (count[t] + norm) for t in query):
                expected[row] = score
        found = index.search([" ".join(query)], k).lists()[0]
        assert len(found) == min(k, len(expected))
        for (row, score), (_, best) in zip(
            found, sorted(expected.items(), key=lambda item: (-item[1], item[0])), strict=False
        ):
            assert score == pytest.approx(expected[row], abs=1e-4) and score == pytest.approx(best, abs=1e-4)
        assert found == sorted(found, key=lambda hit: (-hit[1], hit[0]))


@settings(max_examples=300, deadline=None)
@given(st.data(), st.integers(1, 9), st.sampled_from([0, 1, 3, 1 << 20]), st.booleans())
def test_what_is_skipped_is_not_among_the_best(data, k, wide, roomy):
    words = [f"w{i}" for i in range(data.draw(st.integers(2, 12)))]
    some = st.lists(st.sampled_from(words), max_size=14).map(" ".join)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bm25, "SMALL", 0)
        patch.setattr(bm25, "WIDE", wide)
        patch.setattr(bm25, "WIDE_BYTES", 1 << 20 if roomy else 200)
        index = build(data.draw(st.lists(some, min_size=1, max_size=60).filter(any)))
        for query in data.draw(st.lists(some, min_size=1, max_size=5)):
            assert index.search([query], k).lists() == [summed(index, query, k)]


@pytest.mark.parametrize("k", [1, 3, 10, 200, 7000])
def test_what_is_skipped_in_a_larger_corpus_is_not_among_the_best(k):
    corpus = zipf(6000, 40, 2000)
    index = build(corpus)
    rng = np.random.default_rng(2)
    asked = [" ".join(str(w) for w in rng.choice(corpus[int(rng.integers(6000))].split(), 8)) for _ in range(40)]
    asked += ["w0 w1", "w0 w1 w2 w3", "w0 w0 w0 w5", "w1999 w0", "w700 w700", " ".join(f"w{i}" for i in range(300))]
    for query in asked:
        assert index.search([query], k).lists() == [summed(index, query, k)]


def test_a_query_that_fails_leaves_nothing_behind(monkeypatch):
    index = build(zipf(6000, 40, 2000))
    expected = index.search(["w3 w40 w500"], 5)
    with monkeypatch.context() as patch:
        patch.setattr(bm25, "at_least", lambda scores, k: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            index.search(["w3 w40 w500"], 5)
    assert same(index.search(["w3 w40 w500"], 5), expected)
    index.shard(0, 2).search(["w3 w40"], 5)  # a smaller one takes the same buffer
    assert same(index.search(["w3 w40 w500"], 5), expected)


@settings(max_examples=150, deadline=None)
@given(corpora, queries, st.integers(1, 8), st.integers(1, 6))
def test_merged_shards_equal_the_single_index(corpus, asked, shards, k):
    whole = build(corpus)
    cut = [whole.shard(i, shards) for i in range(shards)]
    assert same(merge([s.search(asked, k) for s in cut], k), whole.search(asked, k))
    documents = [Document(f"d{i}", text) for i, text in enumerate(corpus)]
    one, several = (local("c", in_memory(documents, shards=n)).search(asked, k, "c") for n in (1, shards))
    assert list(several) == list(one)


def test_a_stream_gives_the_matrix_of_bm25s_bit_for_bit(monkeypatch):
    corpus = ["", *zipf(400, 30, 200), "one more . . one"]
    whole = build(iter(corpus), 0.9, 0.4)
    monkeypatch.setattr(postings, "IN_MEMORY", 97)
    index = build(iter(corpus), 0.9, 0.4)
    assert index.data.tobytes() == whole.data.tobytes() and index.local.tolist() == whole.local.tolist()
    reference = bm25s.BM25(k1=0.9, b=0.4, method="lucene", dtype="float32")
    ids = [[index.vocabulary[token] for token in tokenise(text)] for text in corpus]
    reference.index((ids, index.vocabulary), create_empty_token=False, show_progress=False)
    scores = reference.scores
    columns = np.repeat(np.arange(len(index.vocabulary)), np.diff(scores["indptr"]))
    order = np.lexsort((scores["indices"], columns))
    assert index.indptr.tolist() == scores["indptr"].tolist()
    assert index.local.tolist() == scores["indices"][order].tolist()
    assert index.data.tobytes() == scores["data"][order].astype(np.float32).tobytes()


def test_ties_go_by_row_and_strangers_find_nothing():
    index = build(["same text", "other", "same text", "same text"])
    assert [row for row, _ in index.search(["same"], 2).lists()[0]] == [0, 2]
    assert index.search(["unknown", "", " . ! ", "\ud800"], 3).lists() == [[], [], [], []]
    assert [len(h) for h in index.search(["SAME, text!"], 9).lists()] == [3]


def test_tokeniser_keeps_every_script_and_is_stable():
    assert tokenise('"Straße" déjà-vu\tİ 東京、大阪府 हिन्दी\x00x_y 3.5 Talvik\'s') == [
        "strasse", "déjà", "vu", "i̇", "東", "京", "東京", "大", "阪", "府", "大阪", "阪府", "हिन्दी", "x", "y", "3", "5",
        "talvik", "s",
    ]  # fmt: skip
    assert tokenise("ﬁne") == tokenise("FINE") == tokenise("fi\u00adne") == ["fine"]
    assert tokenise("e\u0301") == tokenise("\u00e9")


def plainly(text):
    """Tokens of a text in scripts with spaces, by their categories one by one."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(char if unicodedata.category(char)[0] in "LNM" else " " for char in folded).split()


LATIN = st.characters(max_codepoint=0x058F, exclude_categories=["Cn"], exclude_characters="\xad\u034f")


@given(st.text(LATIN, max_size=60) | st.text("aB é–.,'\u2028\u0301ﬁ\t-", max_size=40))
def test_tokens_are_folded_and_cut_at_what_is_no_letter_mark_or_digit(text):
    assert tokenise(text) == plainly(text)


@given(st.text("aBé –.,'/7東京タ・กรุฯ가ក្រုང\u0f0b\u200b\u00ad\ud800\ufdd0\ue000ﬁÜ", max_size=60))
def test_tokens_are_the_words_of_the_referee_and_pairs_of_characters(text):
    ours = [token for token in tokenise(text) if len(CHARACTER.findall(token)) < 2]
    parts = [part for word in words(text) for part in re.split("[.,]", word)]
    assert list(map(fold, ours)) == parts


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=1, max_size=700), st.integers(1, 40))
def test_top_is_exact_at_ties(values, k):
    scores = np.array(values, dtype=np.float32)
    assert top(scores, k).tolist() == sorted(range(len(values)), key=lambda i: (-values[i], i))[:k]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 9000), st.integers(1, 80), st.integers(0, 5), st.integers(1, 400))
def test_at_least_is_never_above_the_kth(size, k, seed, levels):
    scores = np.random.default_rng(seed).integers(0, levels, size).astype(np.float32)
    assert at_least(scores, k) <= (np.sort(scores)[-k] if k <= size else 0)


def test_a_shard_gives_its_own_rows_alone():
    documents = [Document(f"d{i}", f"word{i}") for i in range(10)]
    with pytest.raises(IndexError):
        in_memory(documents, shards=2)[0].fetch(np.array([7]))


@pytest.mark.parametrize("corpus, k1, b", [([], 1.2, 0.25), (["..", ""], 1.2, 0.25), (["a"], -1, 0.2), (["a"], 1, 2)])
def test_bad_input_is_refused(corpus, k1, b):
    with pytest.raises(InputError):
        build(corpus, k1, b)


def test_fingerprint_tells_ids_contents_and_order():
    a, b = Document("1", "x"), Document("2", "y")
    assert fingerprint([a, b]) == fingerprint([Document("1", "x", 9.0), b])
    assert len({fingerprint(c) for c in ([a, b], [b, a], [a], [Document("1x", "")], [Document("", "1x")])}) == 5
