"""The cross-encoder: pairs stay apart, lengths, outputs, against the plain route."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tinymodels import save
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

from ssp.base.episode import Document
from ssp.base.errors import InputError
from ssp.search.encoders.encoder import CrossEncoder

QUERIES = ["who founded the city of pota", "vure", "a river in the city of vure , a company ?"]
DOCUMENTS = [
    [Document(f"{q}.{i}", f'"pota"\n{text}') for i, text in enumerate(texts)]
    for q, texts in enumerate(
        [
            ["bino founded pota", "seat", "the river vure " * 30],
            [],
            ["", "a company in pota", "vure vure", "bino , seat"],
        ]
    )
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("cross"), "cross1")


def plain(folder: Path, query: str, text: str, length: int) -> np.ndarray:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    enc = tokenizer(query, text, truncation="longest_first", max_length=length, return_tensors="pt")
    with torch.inference_mode():
        logits: np.ndarray = model(input_ids=enc["input_ids"], token_type_ids=enc["token_type_ids"]).logits[0].numpy()
    return logits


@pytest.mark.covers("SR-46")
def test_queries_with_documents_of_their_own_score_together_as_alone(folder):
    encoder = CrossEncoder(folder, max_length=64, batch=3)
    together = encoder.scores(QUERIES, DOCUMENTS)
    assert [len(some) for some in together] == [3, 0, 4]
    for query, own, scores in zip(QUERIES, DOCUMENTS, together, strict=True):
        assert np.allclose(encoder.scores([query], [own])[0], scores, atol=1e-5)
        for document, score in zip(own, scores, strict=True):
            assert abs(encoder.scores([query], [[document]])[0][0] - score) < 1e-5
            assert abs(plain(folder, query, document.contents, 64)[0] - score) < 1e-5
    everything = [score for scores in together for score in scores]
    assert len({round(score, 4) for score in everything}) == len(everything)  # pairs that differ score differently
    assert encoder.scores([], []) == [] and encoder.scores(["x"], [[]]) == [[]]


def test_the_document_is_cut_and_the_query_kept(folder):
    encoder = CrossEncoder(folder, max_length=20)
    document = Document("d", "bino " * 50)
    for query in ("vure", "the city of the river in pota"):
        assert abs(encoder.scores([query], [[document]])[0][0] - plain(folder, query, "bino " * 50, 20)[0]) < 1e-5
    long = "pota " * 5000  # half of the tokens are the document's
    assert abs(encoder.scores([long], [[document]])[0][0] - plain(folder, long, "bino " * 50, 20)[0]) < 1e-5
    assert encoder.scores([""], [[Document("e", "\ud800")]])[0][0] == encoder.scores([""], [[Document("e", "?")]])[0][0]


def test_two_outputs_are_the_odds_of_the_second(tmp_path):
    folder = save(tmp_path, "cross2")
    score = CrossEncoder(folder, max_length=32).scores(["vure"], [[Document("d", "bino seat")]])[0][0]
    no, yes = plain(folder, "vure", "bino seat", 32)
    assert abs(score - (yes - no)) < 1e-5


def test_models_that_do_not_score_pairs_are_refused(tmp_path, folder):
    for family in ("bert", "cross3"):
        (tmp_path / family).mkdir()
        with pytest.raises(InputError):
            CrossEncoder(save(tmp_path / family, family), max_length=64)
    with pytest.raises(InputError):
        CrossEncoder(folder, max_length=65)
