"""The adversarial questions of `adversarial.jsonl`, put to the referee, and how often it errs.

A row: `about` (the rule that it tries), `expect` (the verdict that a careful reader gives: `valid`, or the rule that is
broken), `lang`, and what differs from a proposal without fault: `question` or `turn` (the proposer's last turn), `target`,
`queries`, `hits`, `documents` (id → title and text), `output` (the verifier's), `cfg`, `world` (generated world).
`note` says what is tricky.

    python tests/referee/adversarial.py           # the table of docs/referee.md
    python tests/referee/adversarial.py errors    # the rows on which the referee errs
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from proposals import MINI, NOISE, POTA, VURE, Line, behind, proposal, referee

from ssp.base.episode import PROPOSER, Document, Episode
from ssp.game.referee import CHECKS, RULES

FILE = Path(__file__).with_name("adversarial.jsonl")
VALID = "valid"
WORLD_RULES = ["empty", "not_a_question", "too_many_relations", "leakage", "no_search"]
NATURAL_RULES = [id for id in RULES if id not in WORLD_RULES[1:3]]
QUESTION = "Which river flows past the old harbour that the painter drew in 1871?"
FACTS = ["lemo capital vure", "vure mayor bino", "bino mentor kabu", "kabu mentor fami", "fami mentor duze"]
WORLD = (POTA, VURE, Document("d3", '"Lemo"\n' + " . ".join(FACTS) + " ."))


@dataclass(frozen=True)
class Rates:
    """How a rule fares: questions that break it, of these accepted; questions near it that do not, of these rejected."""

    violations: int
    accepted: int
    near: int
    rejected: int


def rows() -> list[dict[str, Any]]:
    """The questions, in the file's order."""
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def verdict(row: dict[str, Any]) -> str:
    """What the referee says to a row: `valid`, or the id of a rule."""
    target = row.get("target", "the Glomma")
    ask = _in_world if row.get("world") else _in_nature
    (said,) = ask(row, target)
    assert not said.void_cause
    return said.rule or VALID


def rates(found: Sequence[tuple[dict[str, Any], str]]) -> dict[str, Rates]:
    """Rates by rule, of (row, verdict) pairs."""
    table = {}
    for id in (*RULES, *CHECKS):
        bad = [said for row, said in found if row["expect"] == id]
        near = [said for row, said in found if row["expect"] == VALID and row["about"] == id]
        table[id] = Rates(len(bad), bad.count(VALID), len(near), sum(said != VALID for said in near))
    return table


def markdown(table: dict[str, Rates]) -> str:
    """The table of docs/referee.md."""
    lines = [
        "| rule | violations | falsely accepted | near misses | falsely rejected |",
        "|---|---|---|---|---|",
    ]
    for id, rate in table.items():
        shares = [f"{n} ({n / of:.0%})" for n, of in ((rate.accepted, rate.violations), (rate.rejected, rate.near))]
        lines.append(f"| `{id}` | {rate.violations} | {shares[0]} | {rate.near} | {shares[1]} |")
    total = Rates(*(sum(getattr(rate, name) for rate in table.values()) for name in Rates.__dataclass_fields__))
    shares = [f"{n} ({n / of:.1%})" for n, of in ((total.accepted, total.violations), (total.rejected, total.near))]
    lines.append(f"| all | {total.violations} | {shares[0]} | {total.near} | {shares[1]} |")
    return "\n".join(lines)


def _in_nature(row: dict[str, Any], target: str) -> Any:
    documents = row.get("documents", {"d1": f"Notes\nThe passage names {target} in so many words."})
    output = f'<quote id="d1">The passage names {target} in so many words</quote> <answer>{target}</answer>'
    line = Line(lambda prompt: row.get("output", output))
    judge = behind(
        line, evidence="quoted", rules=NATURAL_RULES, prompt_tokens=4000, **{"min_searches": 2, **row.get("cfg", {})}
    )
    shown = [Document(id, f'"{text}'.replace("\n", '"\n', 1)) for id, text in documents.items()]
    return judge.check([_episode(row, shown)], [target], lambda episode: NOISE)


def _in_world(row: dict[str, Any], target: str) -> Any:
    judge = referee(lambda prompt: row.get("output", ""), evidence="chain", rules=WORLD_RULES)
    return judge.check([_episode(row, WORLD)], [target], lambda episode: NOISE)


def _episode(row: dict[str, Any], documents: Sequence[Document]) -> Episode:
    final = MINI.final(PROPOSER, row["turn"]) if "turn" in row else row.get("question", QUESTION)
    hits = row.get("hits")
    queries = row.get("queries", [f"search {i}" for i in range(2 if hits is None else len(hits))])
    return proposal("a", final, documents, queries, [1] * len(queries) if hits is None else hits)


if __name__ == "__main__":
    judged = [(row, verdict(row)) for row in rows()]
    if sys.argv[1:] == ["errors"]:
        for row, said in judged:
            if said != row["expect"]:
                print(said, json.dumps(row, ensure_ascii=False))
    else:
        print(markdown(rates(judged)))
