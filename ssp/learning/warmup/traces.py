"""What a warm start learns from: traces of a file, played back, or the good episodes of an earlier
run.

A trace is one JSON object a line, {"role": "solver" (default) or "proposer", "fields": {"question":
...} or {"target": ...}, "turns": [text of each turn], "results": [documents of each query, in the
order of the queries]}, a document as {"id", "contents"} (title line, text). A verifier's is
{"role": "verifier" or "quoting", "fields": {"question": ...}, "documents": [what it reads],
"turns": [its answer]}. A proposer's with "alone": true is for a policy that plays no other role.
Prompts, observations, stops and masks are those of the rollout and of the referee (law 8), because
a scripted engine speaks the turns there; a trace which play would not have ended with a final
answer is refused by its line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ssp.base.episode import PROPOSER, ROLES, SOLVER, Document, Episode, Outcome, Task
from ssp.base.errors import InputError, hold
from ssp.config.role import LimitsConfig
from ssp.config.schema import RefereeConfig
from ssp.data.rows import Row, rows, show
from ssp.engines.simulated import ScriptedEngine
from ssp.game.protocols.renderer import Renderer
from ssp.game.referee.referee import VERIFIERS, asked, speaks
from ssp.game.rollout import Settings, rollout
from ssp.record.runfolder import RunFolder

LEAST_REWARD = 1.0
"""Of a run's episodes of the solver those are good that earned as much."""
_STEP = "mend the line, or take it out"


@dataclass
class Trace:
    """One line. `results`: documents of each query, in order; `read`: those of a verifier's prompt;
    `line` counts from 1; `alone`: no policy of several roles learns it."""

    line: int
    role: str
    fields: dict[str, str]
    turns: list[str]
    results: list[list[Document]]
    read: list[Document]
    alone: bool = False


def read(path: Path) -> list[Trace]:
    """Every trace of a jsonl file. InputError naming the line that is none, or a file without
    any."""
    hold(
        path.is_file() and path.suffix != ".parquet",
        "warmup.data is a jsonl file of traces",
        path,
        "give another file",
    )
    traces = [_trace(row) for row in rows(path)]
    hold(traces, "warmup.data holds at least one trace", path, "see docs/warmup.md for the format")
    return traces


def verifies(cfg: RefereeConfig) -> LimitsConfig:
    """The limits of a verifier's one turn."""
    prompt, answer = cfg.prompt_tokens, cfg.answer_tokens
    return LimitsConfig(
        searches=0, turn_tokens=answer, prompt_tokens=prompt, total_tokens=prompt + answer
    )


def episodes(
    traces: Sequence[Trace], renderer: Renderer, limits: LimitsConfig, topk: int
) -> list[Episode]:
    """The episodes of `traces` (all of one role), in order, as the rollout plays them; outcome
    scored. `limits`: those of the role, of a verifier `verifies`.

    InputError naming the line of a trace that has other results than queries, invalid turns, text
    after the end of a turn, or no final answer within `limits`."""
    verifier = bool(traces) and traces[0].role in VERIFIERS
    renderer = speaks(renderer, traces[0].role) if verifier else renderer
    spoken = [[_turn(renderer, trace.role, text) for text in trace.turns] for trace in traces]
    engine = ScriptedEngine(
        lambda ids, seed, turn: spoken[seed][turn] if turn < len(spoken[seed]) else []
    )
    tasks = []
    for place, trace in enumerate(traces):
        id, fields = f"trace-{trace.line}", trace.fields
        if verifier:
            fields = asked(renderer.protocol, trace.read, fields["question"])
        try:
            renderer.protocol.messages(trace.role, fields)
        except InputError as error:
            raise _bad(trace.line, error.rule, error.found) from error
        tasks.append(Task(id, id, trace.role, 0, place, fields, str(place)))
    most = max((len(ids) for turns in spoken for ids in turns), default=1)
    roomy = replace(limits, turn_tokens=max(limits.turn_tokens, most))
    played, _ = rollout(engine, renderer, _Given(traces), tasks, Settings(roomy, 0.0, topk))
    for trace, turns, episode in zip(traces, spoken, played, strict=True):
        _check(trace, turns, episode, limits)
        episode.outcome = Outcome.SCORED
    return played


class _Given:
    """Answers the searches of each trace with what its line says was found; `corpus` is the trace's
    place."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        self._left = {
            str(place): (trace, iter(trace.results)) for place, trace in enumerate(traces)
        }

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        trace, left = self._left[corpus]
        found = [documents[:k] for _, documents in zip(queries, left, strict=False)]
        if len(found) < len(queries):
            raise _bad(
                trace.line,
                "results hold the documents of each query, in order",
                f"none for {queries[-1]!r}",
            )
        return found


def _turn(renderer: Renderer, role: str, text: str) -> list[int]:
    """Ids of a turn; one that none of the stops ends is closed by the model's end of turn."""
    (ids,) = renderer.encode([text])
    stop_ids, words = renderer.stops(role)
    ended = ids[-1:] and (ids[-1] in stop_ids or (words is not None and words.hit(ids)))
    return ids if ended or not renderer.ends else [*ids, renderer.ends[0]]


def _check(trace: Trace, turns: list[list[int]], episode: Episode, limits: LimitsConfig) -> None:
    prompt = len(episode.log) - int(episode.log.mask.sum())
    if trace.role in VERIFIERS and (
        prompt > limits.prompt_tokens or len(turns[0]) > limits.turn_tokens
    ):
        rule = (
            f"a verifier's prompt fits referee.prompt_tokens={limits.prompt_tokens}, its answer a"
            " twelfth"
        )
        raise _bad(
            trace.line, rule, f"{prompt} and {len(turns[0])} tokens", "raise it, or take it out"
        )
    if len(episode.log) > limits.total_tokens or any(
        len(ids) > limits.turn_tokens for ids in turns
    ):
        sizes = f"turn_tokens={limits.turn_tokens}, total_tokens={limits.total_tokens}"
        found = f"{len(episode.log)} tokens, the longest turn {max(map(len, turns))}"
        raise _bad(
            trace.line,
            f"a trace fits {trace.role}.limits ({sizes})",
            found,
            "raise them, or take it out",
        )
    if episode.invalid or episode.stopped != "final":
        found = (
            f"{episode.invalid} turns that neither search nor answer, ended by `{episode.stopped}`"
        )
        raise _bad(trace.line, "the turns of a trace search, and the last one hands in", found)
    if sum(map(len, turns)) != int(episode.log.mask.sum()):
        rule = "a turn ends where the policy would stop, and nothing follows the last"
        raise _bad(trace.line, rule, trace.turns[-1][-80:])
    if sum(map(len, trace.results)) and len(trace.results) != len(episode.searches):
        found = f"{len(trace.results)} lists for {len(episode.searches)} queries"
        raise _bad(trace.line, "results hold one list of documents a query", found)


def _trace(row: Row) -> Trace:
    if not row.has("fields") or not row.has("turns"):
        rule, step = (
            "a trace has fields, turns and results",
            "write it in the form of docs/warmup.md, Traces",
        )
        row.fail("fields", rule, f"not there, but {show(list(row.fields), 300)}", step)
    turns = row.fields["turns"]
    if not isinstance(turns, list) or not turns:
        row.fail("turns", "turns is a list of at least one string", show(turns), _STEP)
    role, fields = row.label("role") or SOLVER, row.inside("fields")
    if role not in (*ROLES, *VERIFIERS):
        row.fail("role", f"role is one of {', '.join((*ROLES, *VERIFIERS))}", show(role), _STEP)
    if not fields.fields:
        row.fail("fields", 'fields fill the prompt, e.g. {"question": "..."}', "none", _STEP)
    texts = {name: fields.text(name, empty=True) for name in fields.fields}
    results = row.fields.get("results", [])
    if not isinstance(results, list) or not all(isinstance(found, list) for found in results):
        row.fail("results", "results hold one list of documents a query", show(results), _STEP)
    read = row.fields.get("documents", [])
    if role in VERIFIERS and (not isinstance(read, list) or not read or "question" not in texts):
        row.fail(
            "documents",
            "a verifier is shown a list of documents, and a question",
            show(read),
            _STEP,
        )
    alone = row.fields.get("alone", False)
    if not isinstance(alone, bool) or (alone and role != PROPOSER):
        row.fail(
            "alone",
            "alone is true or false, and true only of a proposer's trace",
            show(alone),
            _STEP,
        )
    documents = [_documents(row, "results", found) for found in results]
    shown = _documents(row, "documents", read) if role in VERIFIERS else []
    return Trace(
        int(row.place.removeprefix("line ")),
        role,
        texts,
        row.texts("turns"),
        documents,
        shown,
        alone,
    )


def _documents(row: Row, name: str, found: list[Any]) -> list[Document]:
    for document in found:
        if not isinstance(document, dict) or not isinstance(document.get("contents"), str):
            row.fail(
                name, 'a document is {"id": ..., "contents": "title\\ntext"}', show(document), _STEP
            )
    inner = [replace(row, fields={"id": "", **document}, prefix=f"{name}.") for document in found]
    return [
        Document(one.key("id") if one.fields["id"] != "" else "", one.text("contents", empty=True))
        for one in inner
    ]


def _bad(line: int, rule: str, found: object, step: str = _STEP) -> InputError:
    return InputError(rule, f"line {line}: {found}", step)


def of_run(folder: Path, renderers: Mapping[str, Renderer]) -> list[Episode]:
    """The good episodes of the roles of `renderers` in the run `folder`, as they were played
    (rejection-sampling fine-tuning), in order of their ids; outcome scored.

    InputError: no run, none that is good, or transcripts of another tokenizer."""
    from ssp.record.reader import RunReader  # here, because it imports pyarrow

    run = RunFolder(folder)
    if not run.config.is_file() or not run.ledger.is_file():
        raise InputError(
            "warmup.data is a jsonl file of traces, or a run's folder", folder, "give another path"
        )
    reader = RunReader(run)
    with reader.ledger() as ledger:
        rows = [
            row
            for role in renderers
            for row in ledger.earned(
                role, 0.0 if role == PROPOSER else LEAST_REWARD, answered=role == PROPOSER
            )
        ]
    good = {
        SOLVER: f"rewards >= {LEAST_REWARD:g}",
        PROPOSER: "accepted questions that an attempt answered",
    }
    rule = f"the run holds episodes of the {' or '.join(renderers)} to learn from"
    hold(
        rows,
        rule,
        f"no {' and no '.join(good[role] for role in renderers)} in {folder}",
        "take another",
    )
    # a file is read once
    chosen = [reader.episode(row) for row in sorted(rows, key=lambda row: row["file"] or "")]
    for episode in chosen:
        if renderers[episode.role].decode(episode.log.ids) != episode.text:
            rule = "a run's episodes are in the tokens of the policy that learns from them"
            raise InputError(
                rule, f"episode {episode.id} reads otherwise", "take a run of this model's family"
            )
    return [
        replace(episode, outcome=Outcome.SCORED) for episode in sorted(chosen, key=lambda e: e.id)
    ]
