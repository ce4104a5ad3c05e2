"""What stems change for BM25: recall@3 and @10 on 200 questions of real English, with and without.

    python tests/bench/stems.py                  # one core, about a minute

The questions are drawn from the evaluation of world:english, whose corpus is searched with the question itself. A question counts
when a right answer stands in the documents as whole words, as `recall@k` of `ssp eval`. Brackets hold Wilson's 95 % interval;
of a difference, the interval over the questions that both were asked. One line `RESULT {json}` at the end.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from ssp.base import intervals  # noqa: E402
from ssp.data.readers import read_corpus, read_questions  # noqa: E402
from ssp.game.evaluation.rows import found  # noqa: E402
from ssp.game.world import files  # noqa: E402
from ssp.search.bm25 import build  # noqa: E402

QUESTIONS = 200
PARAMETERS = {"our default": (1.2, 0.25), "Pyserini's": (0.9, 0.4)}


def main() -> None:
    """Print a line for each setting, and the difference that stems make."""
    corpus = [document.contents for document in read_corpus(files.resolve("world:english", "corpus"))]
    questions = read_questions(files.resolve("world:english", "eval"))
    asked = random.Random(0).sample(questions, QUESTIONS)
    print(f"{len(corpus):,} passages, {len(asked)} of {len(questions):,} questions")
    result: dict[str, list[float]] = {}
    for name, (k1, b) in PARAMETERS.items():
        hits = {}
        for stemmer in ("", "porter"):
            ranked = build(corpus, k1, b, stemmer).search([question.question for question in asked], 10)
            for k in (3, 10):
                shown = [[corpus[row] for row in rows[:k] if row >= 0] for rows in ranked.rows.tolist()]
                hits[stemmer, k] = [
                    float(found(texts, question.answers)) for texts, question in zip(shown, asked, strict=True)
                ]
        for k in (3, 10):
            pairs = zip(hits["porter", k], hits["", k], strict=True)
            estimates = [intervals.of_shares(hits[stemmer, k]) for stemmer in ("", "porter")]
            estimates.append(intervals.of_differences([with_stems - without for with_stems, without in pairs]))
            said = [f"{each.mean:.3f} [{each.low:.3f}, {each.high:.3f}]" for each in estimates]
            print(f"{name} (k1 {k1:g}, b {b:g}), recall@{k}: without {said[0]}, porter {said[1]}, difference {said[2]}")
            result[f"{k1:g}/{b:g}@{k}"] = [estimates[0].mean, estimates[1].mean]
    print("RESULT", json.dumps(result))


if __name__ == "__main__":
    main()
