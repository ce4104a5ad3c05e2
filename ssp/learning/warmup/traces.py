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

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from ssp.base.episode import PROPOSER, ROLES, SOLVER, Document, Episode, Outcome, Task
from ssp.base.errors import InputError, hold
from ssp.config.role import LimitsConfig
from ssp.config.schema import RefereeConfig
from ssp.data.containers import rows
from ssp.data.rows import Row, show
from ssp.engines import StopWords
from ssp.engines.simulated import ScriptedEngine
from ssp.game.protocols.renderer import Renderer
from ssp.game.referee.referee import VERIFIERS, asked, speaks
from ssp.game.rewards import SEARCH_COST
from ssp.game.rollout import Settings, rollout
from ssp.record.runfolder import RunFolder

LEAST_REWARD = 1.0
"""What a solver's episode of a run has earned at least where it is good, less what its searches cost
there (`search_cost`)."""
KEY = "warmup.data"
"""The setting that names traces, where nothing else is said."""
ROUNDING = 1e-9
"""Of what searches cost in all."""
_STEP = "mend the line, or take it out"


@dataclass
class Trace:
    """One line of a file. `line` counts from 1. `results`: documents of each query, in order.
    `read`: documents of a verifier's prompt. `alone`: no policy of several roles learns it."""

    line: int
    role: str
    fields: dict[str, str]
    turns: list[str]
    results: list[list[Document]]
    read: list[Document]
    alone: bool = False


def read(path: Path, key: str = KEY) -> list[Trace]:
    """Every trace of a jsonl file. `key`: the setting that names it. InputError naming the line that
    is none, or a file without any."""
    is_file = path.is_file() and path.suffix != ".parquet"
    hold(is_file, f"{key} is a jsonl file of traces", path, "give another file")
    traces = [_trace(row) for row in rows(path)]
    hold(traces, f"{key} holds at least one trace", path, "see docs/warmup.md for the format")
    return traces


def kinds(traces: Sequence[Trace]) -> str:
    """Whose the traces are, in words."""
    named = {f"{trace.role}, alone" if trace.alone else trace.role for trace in traces}
    return ", ".join(sorted(named))


def verifies(cfg: RefereeConfig) -> LimitsConfig:
    """The limits of a verifier's one turn."""
    prompt = cfg.prompt_tokens
    answer = cfg.answer_tokens
    return LimitsConfig(
        searches=0, turn_tokens=answer, prompt_tokens=prompt, total_tokens=prompt + answer
    )


def episodes(
    traces: Sequence[Trace], renderer: Renderer, limits: LimitsConfig, topk: int
) -> list[Episode]:
    """The episodes of `traces` (all of one role), in order, as the rollout plays them; outcome
    scored. `limits`: those of the role, or what `verifies` gives.

    InputError naming the line of a trace that has other results than queries, invalid turns, text
    after the end of a turn, or no final answer within `limits`."""
    verifier = bool(traces) and traces[0].role in VERIFIERS
    renderer = speaks(renderer, traces[0].role) if verifier else renderer
    stops = renderer.stops(traces[0].role) if traces else ((), None)
    spoken = []
    for trace in traces:
        spoken.append([_turn(renderer, stops, text) for text in trace.turns])

    def script(ids: list[int], seed: int, turn: int) -> list[int]:
        return spoken[seed][turn] if turn < len(spoken[seed]) else []

    tasks = []
    for place, trace in enumerate(traces):
        name = f"trace-{trace.line}"
        fields = trace.fields
        if verifier:
            fields = asked(renderer.protocol, trace.read, fields["question"])
        try:
            renderer.protocol.messages(trace.role, fields)
        except InputError as error:
            raise _bad(trace.line, error.rule, error.found) from error
        tasks.append(Task(name, name, trace.role, 0, place, fields, str(place)))
    longest = max((len(ids) for turns in spoken for ids in turns), default=1)
    roomy = replace(limits, turn_tokens=max(limits.turn_tokens, longest))
    settings = Settings(roomy, 0.0, topk)
    played, _ = rollout(ScriptedEngine(script), renderer, _Recorded(traces), tasks, settings)
    for trace, turns, episode in zip(traces, spoken, played, strict=True):
        _check(trace, turns, episode, limits)
        episode.outcome = Outcome.SCORED
    return played


class _Recorded:
    """Answers the searches of each trace with the results on its line; `corpus` is the trace's
    place."""

    def __init__(self, traces: Sequence[Trace]) -> None:
        self._traces = traces
        self._left = [iter(trace.results) for trace in traces]

    def search(self, queries: list[str], k: int, corpus: str) -> list[list[Document]]:
        place = int(corpus)
        results = [documents[:k] for documents in islice(self._left[place], len(queries))]
        if len(results) < len(queries):
            rule = "results hold the documents of each query, in order"
            raise _bad(self._traces[place].line, rule, f"none for {queries[-1]!r}")
        return results


def _turn(
    renderer: Renderer, stops: tuple[tuple[int, ...], StopWords | None], text: str
) -> list[int]:
    """Ids of a turn; one that none of the stops ends is closed by the model's end of turn."""
    (ids,) = renderer.encode([text])
    stop_ids, words = stops
    ended = ids[-1:] and (ids[-1] in stop_ids or (words is not None and words.hit(ids)))
    return ids if ended or not renderer.ends else [*ids, renderer.ends[0]]


def _check(trace: Trace, turns: list[list[int]], episode: Episode, limits: LimitsConfig) -> None:
    """InputError naming the line of a trace that play would not have ended with a final answer."""
    size = len(episode.log)
    spoken = int(episode.log.mask.sum())
    prompt = size - spoken
    longest = max(map(len, turns))
    answer = len(turns[0])
    long = prompt > limits.prompt_tokens or answer > limits.turn_tokens
    if trace.role in VERIFIERS and long:
        rule = f"a verifier's prompt fits referee.prompt_tokens={limits.prompt_tokens}"
        rule += ", its answer a twelfth"
        counts = f"{prompt} and {answer} tokens"
        raise _bad(trace.line, rule, counts, "raise it, or take it out")
    if size > limits.total_tokens or longest > limits.turn_tokens:
        sizes = f"turn_tokens={limits.turn_tokens}, total_tokens={limits.total_tokens}"
        rule = f"a trace fits {trace.role}.limits ({sizes})"
        counts = f"{size} tokens, the longest turn {longest}"
        raise _bad(trace.line, rule, counts, "raise them, or take it out")
    if episode.invalid or episode.stopped != "final":
        rule = "the turns of a trace search, and the last one hands in"
        ended = f"{episode.invalid} turns that neither search nor answer, ended by"
        raise _bad(trace.line, rule, f"{ended} `{episode.stopped}`")
    if sum(map(len, turns)) != spoken:
        rule = "a turn ends where the policy would stop, and nothing follows the last"
        raise _bad(trace.line, rule, trace.turns[-1][-80:])
    results = trace.results
    queries = len(episode.searches)
    if any(results) and len(results) != queries:
        counts = f"{len(results)} lists for {queries} queries"
        raise _bad(trace.line, "results hold one list of documents a query", counts)


def _trace(row: Row) -> Trace:
    """The trace on a line. InputError naming the field that is none."""
    if not row.has("fields") or not row.has("turns"):
        step = "write it in the form of docs/warmup.md, Traces, or make traces of transcripts:"
        step += " ssp data convert FILE --to traces --protocol ID --out NEW"
        row.fail("fields", "a trace has fields, turns and results", row.lacks(), step)

    def refuse(name: str, rule: str, value: object) -> NoReturn:
        row.fail(name, rule, show(value), _STEP)

    turns = row.fields["turns"]
    if not isinstance(turns, list) or not turns:
        refuse("turns", "turns is a list of at least one string", turns)
    role = row.label("role") or SOLVER
    fields = row.inside("fields")
    known = (*ROLES, *VERIFIERS)
    if role not in known:
        refuse("role", f"role is one of {', '.join(known)}", role)
    if not fields.fields:
        row.fail("fields", 'fields fill the prompt, e.g. {"question": "..."}', "none", _STEP)
    texts = {name: fields.text(name, empty=True) for name in fields.fields}
    results = row.fields.get("results", [])
    if not isinstance(results, list) or not all(isinstance(each, list) for each in results):
        refuse("results", "results hold one list of documents a query", results)
    read: Any = row.fields.get("documents", []) if role in VERIFIERS else []
    shows = isinstance(read, list) and read and "question" in texts
    if role in VERIFIERS and not shows:
        refuse("documents", "a verifier is shown a list of documents, and a question", read)
    alone = row.fields.get("alone", False)
    if not isinstance(alone, bool) or (alone and role != PROPOSER):
        refuse("alone", "alone is true or false, and true only of a proposer's trace", alone)
    return Trace(
        line=int(row.place.removeprefix("line ")),
        role=role,
        fields=texts,
        results=[_documents(row, "results", documents) for documents in results],
        read=_documents(row, "documents", read),
        turns=row.texts("turns"),
        alone=alone,
    )


def _documents(row: Row, name: str, listed: list[Any]) -> list[Document]:
    for document in listed:
        if not isinstance(document, dict) or not isinstance(document.get("contents"), str):
            form = 'a document is {"id": ..., "contents": "title\\ntext"}'
            row.fail(name, form, show(document), _STEP)
    documents = []
    for document in listed:
        inner = replace(row, fields={"id": "", **document}, prefix=f"{name}.")
        own = inner.key("id") if inner.fields["id"] != "" else ""
        documents.append(Document(own, inner.text("contents", empty=True)))
    return documents


def _bad(line: int, rule: str, value: object, step: str = _STEP) -> InputError:
    return InputError(rule, f"line {line}: {value}", step)


def of_run(folder: Path, renderers: Mapping[str, Renderer], key: str = KEY) -> list[Episode]:
    """The good episodes of a run, as they were played (rejection-sampling fine-tuning), in order of
    their ids; outcome scored. `renderers`: those of the roles that learn. `key`: the setting that
    names the run.

    InputError: no run, none that is good, or transcripts of another tokenizer."""
    from ssp.record.reader import RunReader  # here, because it imports pyarrow

    run = RunFolder(folder)
    rule = f"{key} is a jsonl file of traces, or a run's folder"
    hold(run.config.is_file() and run.ledger.is_file(), rule, folder, "give another path")
    reader = RunReader(run)
    good = {
        SOLVER: (LEAST_REWARD, f"rewards >= {LEAST_REWARD:g}"),
        PROPOSER: (0.0, "accepted questions that an attempt answered"),
    }
    cost = 0.0
    if SOLVER in reader.cfg.blocks:
        cost = reader.cfg.block(SOLVER).reward_options.get(SEARCH_COST, 0.0)
    entries = []
    with reader.ledger() as ledger:
        for role in renderers:
            least, _ = good[role]
            if role == SOLVER and cost:
                least = -math.inf
            entries += ledger.earned(role, least, answered=role == PROPOSER)
    entries.sort(key=lambda entry: entry["file"] or "")  # a file is read once
    episodes = []
    for entry in entries:
        episode = reader.episode(entry)
        least = LEAST_REWARD - cost * len(episode.searches) - ROUNDING
        if episode.role != SOLVER or (entry["reward"] or 0.0) >= least:
            episodes.append(episode)
    rule = f"the run holds episodes of the {' or '.join(renderers)} to learn from"
    none = " and no ".join(good[role][1] for role in renderers)
    hold(episodes, rule, f"no {none} in {folder}", "take another")
    for episode in episodes:
        rule = "a run's episodes are in the tokens of the policy that learns from them"
        same = renderers[episode.role].decode(episode.log.ids) == episode.text
        reads = f"episode {episode.id} reads otherwise"
        hold(same, rule, reads, "take a run of this model's family")
        episode.outcome = Outcome.SCORED
    return sorted(episodes, key=lambda episode: episode.id)
