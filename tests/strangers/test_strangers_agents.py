"""Agents, tools and run folders that others have written: what is read of them is right, or they are refused."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import families
import pytest
from scripts import LIMITS, Books, encode, pieces, tasks

from launch.main import main
from ssp import engines
from ssp.base.episode import Document, Episode, Grade, Outcome
from ssp.base.errors import Fault, InputError
from ssp.config import own
from ssp.config.load import to_yaml
from ssp.config.role import EngineConfig, SimulatedConfig
from ssp.game import protocols, rewards
from ssp.game.protocols.calls import Call
from ssp.game.protocols.renderer import Renderer
from ssp.game.rewards.score import score
from ssp.game.rollout import Settings, agents, rollout
from ssp.game.rollout.tools import ToolRequest, Tools, function
from ssp.learning import coldstart
from ssp.record.episodes import read, write
from ssp.record.reader import RunReader
from ssp.record.runfolder import RunFolder
from ssp.selfplay.settings import load
from ssp.selfplay.workers import build

INPUTS = Path(__file__).parent / "inputs" / "agents"
QWEN = families.qwen()
CHAT = Renderer(protocols.get("chat-tools"), QWEN)
CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "city"}}\n</tool_call><|im_end|>'
openai = pytest.importorskip("openai")


def playing(solve: Any, *turns: str, renderer: Renderer = CHAT) -> Episode:
    """The episode of an agent, a function or `command:...`, with a policy that writes `turns`, whatever it is asked."""
    said = iter([*turns, *turns[-1:] * 20])
    engine = engines.acted(
        EngineConfig(kind="simulated", simulated=SimulatedConfig(step_ms=0.0)),
        lambda history, seed, turn: encode(QWEN, next(said)),
    )
    agent = agents.find(solve if isinstance(solve, str) else "here", lambda place: solve, 30.0)
    (episode,), _ = rollout(engine, renderer, Books(), tasks(1), Settings(LIMITS, 0.0, 3, agent=agent))
    return episode


async def asked(client: Any, model: str, **more: Any) -> Any:
    said = [{"role": "user", "content": "Which city is it?"}]
    return await client.chat.completions.create(**{"model": model, "messages": said, **more})


def answering(answer: Any, mistakes: tuple[type[Exception], ...] = ()) -> Any:
    """An agent that asks once and returns `answer`, or raises it."""

    async def solve(question: str, client: Any, model: str, tools: Any) -> Any:
        await asked(client, model)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    solve.mistakes = mistakes  # type: ignore[attr-defined]
    return solve


FORMS = ("format_em", "math", "research", "ssrl")
"""Rewards that read the response, and no answer that was handed in."""


@pytest.mark.parametrize("reward", rewards.names())
def test_a_reward_reads_an_agents_right_answer_or_is_refused(reward: str) -> None:
    typed = ["solver.agent=my_agent.py:solve", f"solver.reward={reward}"]
    if reward in FORMS:
        with pytest.raises(InputError, match="an agent hands in an answer"):
            load("quickstart", typed)
        return
    assert load("quickstart", typed).solver.reward == reward
    episode = playing(answering("Paris"), "It is somewhere in France.<|im_end|>")
    assert score(reward, {}, episode, ["Paris"], Grade(True))[0] == 1.0


@pytest.mark.parametrize("recipe", ["search-r1-qwen2.5-3b-grpo", "search-r1-qwen2.5-7b-ppo", "research-qwen2.5-7b", "ssrl-llama3.2-3b"])  # fmt: skip
def test_recipes_whose_reward_reads_a_form_are_refused_with_an_agent(recipe: str) -> None:
    with pytest.raises(InputError, match="an agent hands in an answer"):
        load(recipe, ["solver.agent=my_agent.py:solve", "solver.search.kind=retriever"])


class Endless(Exception):
    """As langgraph says that a policy came to no end."""


Endless.__module__, Endless.__qualname__ = "langgraph.errors", "GraphRecursionError"


class WorkflowRuntimeError(Exception):
    """As LlamaIndex raises for what a step's code did, and for a model that came to no end."""


NO_END = "Max iterations of 20 reached! Either something went wrong, or you can increase the max iterations"


@pytest.mark.parametrize(
    ("solve", "ended"),
    [
        (answering("Paris"), ("final", None, "", "Paris")),
        (answering(1990), ("final", None, "", "1990")),
        (answering(2.5), ("final", None, "", "2.5")),
        (answering(None), ("malformed", None, "", None)),
        (answering(""), ("malformed", None, "", None)),
        (answering(" \n"), ("malformed", None, "", None)),
        (answering(KeyError("serch"), (KeyError,)), ("mistake", None, "", None)),
        (answering(Endless("25 turns")), ("mistake", None, "", None)),
        (answering(WorkflowRuntimeError(NO_END)), ("mistake", None, "", None)),
        (answering(WorkflowRuntimeError(f"Error in step 'parse_agent_output': {NO_END}")), ("mistake", None, "", None)),
        (
            answering(WorkflowRuntimeError("Error in step 'call_tool': no such file")),
            ("fault", Outcome.VOID, "agent_failed", None),
        ),
        (answering(KeyError("serch")), ("fault", Outcome.VOID, "agent_failed", None)),
        (answering({"answer": "Paris"}), ("fault", Outcome.VOID, "agent_result", None)),
        (answering(True), ("fault", Outcome.VOID, "agent_result", None)),
        (answering(float("nan")), ("fault", Outcome.VOID, "agent_result", None)),
    ],
)
def test_what_an_agent_returns_or_raises(solve: Any, ended: tuple[Any, ...], tmp_path: Path) -> None:
    episode = playing(solve, "It is somewhere.<|im_end|>")
    assert (episode.stopped, episode.outcome, episode.cause, episode.final) == ended
    write(tmp_path / "block.parquet", [episode])
    (kept,) = read(tmp_path / "block.parquet")
    assert kept.stopped == ended[0] and ("serch" in kept.detail) == ("serch" in str(episode.detail))


def test_a_framework_whose_policy_calls_what_is_not_there_voids_nothing() -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async def solve(question: str, client: Any, model: str, tools: Any) -> str:
        agent = pydantic_ai.Agent(OpenAIChatModel(model, provider=OpenAIProvider(openai_client=client)))

        @agent.tool_plain
        async def search(query: str) -> str:
            return str(await tools.call("search", {"query": query}))

        return str((await agent.run(question)).output)

    episode = playing(solve, CALL.replace("search", "serch"))
    assert (episode.stopped, episode.outcome, episode.final) == ("mistake", None, None) and episode.detail


def test_mistakes_of_an_agent_are_exceptions() -> None:
    with pytest.raises(InputError, match="a tuple of exceptions"):
        playing(answering("x", "ValueError"), "a<|im_end|>")  # type: ignore[arg-type]


USER = {"role": "user", "content": "x"}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CUSTOM = {"type": "custom", "custom": {"name": "f"}}
LEGACY = {"role": "assistant", "content": None, "function_call": {"name": "search", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "search"}}}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"extra_body": {"guided_json": {"type": "object"}}}, "guided_json"),
        ({"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}, "chat_template_kwargs"),
        ({"prediction": {"type": "content", "content": "x"}}, "prediction"),
        ({"logprobs": True}, "logprobs"),
        ({"tools": [CUSTOM]}, "functions with names"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "what?"}, PICTURE]}]}, "image_url"),
        ({"messages": [{"role": "user", "content": [PICTURE]}]}, "image_url"),
        ({"messages": [USER, LEGACY, USER]}, "function_call"),
        ({"messages": [USER, {"role": "assistant", "content": "a", "reasoning_content": "b"}, USER]}, "reasoning"),
        ({"messages": [USER, {"role": "assistant", "tool_calls": [{**CUSTOM, "id": "1"}]}, USER]}, "tool_calls"),
    ],
)
def test_a_request_for_what_is_not_done_is_refused_by_name(more: dict[str, Any], named: str) -> None:
    async def solve(question: str, client: Any, model: str, tools: Any) -> str:
        with pytest.raises(openai.BadRequestError, match=named):
            await asked(client, model, **more)
        return str((await asked(client, model)).choices[0].message.content)

    episode = playing(solve, "Lyon<|im_end|>")
    assert (episode.final, len(episode.log.views())) == ("Lyon", 1)


@pytest.mark.parametrize(
    ("more", "calls"),
    [
        ({}, 2),
        ({"tool_choice": "auto"}, 2),
        ({"tool_choice": "none"}, 0),
        ({"parallel_tool_calls": False}, 1),
        ({"response_format": {"type": "text"}, "modalities": ["text"], "n": 1, "logprobs": False, "top_p": 0.9}, 2),
        ({"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "seed": 1}, 2),
    ],
)
def test_what_a_request_says_of_calls_is_done(more: dict[str, Any], calls: int) -> None:
    async def solve(question: str, client: Any, model: str, tools: Any) -> str:
        (choice,) = (await asked(client, model, tools=tools.schemas, **more)).choices
        assert choice.finish_reason == ("tool_calls" if calls else "stop")
        assert ("<tool_call>" in choice.message.content) != bool(calls)
        return str(len(choice.message.tool_calls or []))

    twice = CALL.replace("<|im_end|>", "\n") + CALL
    assert playing(solve, twice).final == str(calls)


def test_results_of_a_server_are_shown_whatever_they_are_made_of() -> None:
    pytest.importorskip("mcp")
    tools = build.called(("search", f"mcp:stdio:{sys.executable} {INPUTS / 'server.py'}"))
    shown = {}
    for name, arguments in [*((offer.name, "{}") for offer in tools.offers if offer.name != "remember"), *REMEMBERED]:
        (found,) = tools.run([ToolRequest(Call(name, arguments), "place", {}, {})])
        assert not isinstance(found, Fault)
        shown[name] = "".join(document.contents for document in found)
    assert shown["resource"] == "downloaded (SHA: abc)\nTHE WHOLE FILE"
    assert "a.txt" in shown["link"] and "file:///a.txt" in shown["link"]
    assert "image/png" in shown["picture"] and "AAAA" not in shown["picture"]
    assert "application/zip" in shown["archive"] and "AAAA" not in shown["archive"]
    assert json.loads(shown["data"]) == {"capital": "Paris", "found": 1}
    assert shown["remember"] == "one, two", "one server answers an episode"


REMEMBERED = [("remember", '{"text": "one"}'), ("remember", '{"text": "two"}')]


def own_tools() -> Any:
    spec = importlib.util.spec_from_file_location("own_tools", INPUTS / "own_tools.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["own_tools"] = module
    spec.loader.exec_module(module)
    return module


MODULE = own_tools()


def answered(made: Any, name: str, arguments: dict[str, Any]) -> list[Document] | Fault:
    tools = Tools([function(made, f"own_tools.py:{name}")])
    (offer,) = tools.offers
    assert offer.name == name
    (found,) = tools.run([ToolRequest(Call(name, json.dumps(arguments)), "place", {}, {})])
    return found


@pytest.mark.parametrize(
    ("name", "said", "described"),
    [
        ("called", "async sea", "Explains a word."),
        ("plain", "plain sea", "Knows words."),
        ("bound", "sea 3 hunter2", "Fetches a word."),
        ("later", "sea 3", "Fetches a word, later."),
        ("deferred", "sea 4", ""),
    ],
)
def test_whatever_can_be_called_is_a_tool(name: str, said: str, described: str) -> None:
    made = getattr(MODULE, name)
    found = answered(made, name, {"word": "sea"})
    assert not isinstance(found, Fault) and [one.contents for one in found] == [said]
    offer = function(made, f"own_tools.py:{name}").offer
    assert offer.description == described and list(offer.parameters["properties"]) == ["word"]
    assert "hunter2" not in json.dumps(offer.parameters), "what a partial function was given is nobody's affair"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("dataclass", {"name": "Oslo", "people": 7}),
        ("dataclasses", [{"name": "Oslo", "people": 7}]),
        ("model", {"name": "Oslo"}),
        ("number", 7),
        ("float", 7.5),
        ("numpy_int", 7),
        ("numpy_float", 7.5),
        ("decimal", 7.5),
        ("bytes", None),
        ("object", None),
    ],
)
def test_a_result_is_data_or_a_fault(kind: str, said: Any) -> None:
    found = answered(MODULE.result, "result", {"kind": kind})
    if said is None:
        assert isinstance(found, Fault) and found.cause == "tool_result"
    else:
        assert not isinstance(found, Fault) and [json.loads(one.contents) for one in found] == [said]


TROUBLES = "echo first >&2; echo {}the last straw >&2; exit {}"


@pytest.mark.parametrize(("lines", "code"), [("", 3), ("x" * 1000, 1)])
def test_what_a_program_said_of_its_troubles_is_told(lines: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "agent.sh").write_text(TROUBLES.format(lines, code))
    episode = playing(f"command:sh {tmp_path}/agent.sh", "a<|im_end|>")
    assert (episode.outcome, episode.cause) == (Outcome.VOID, "agent_failed")
    assert "the last straw" in episode.detail and f"exit code {code}" in episode.detail


def test_a_program_that_is_not_there_is_refused_at_the_start() -> None:
    for named in ("command:no-such-program x", "command:sh 'x", "serve:no-such-program x"):
        with pytest.raises(InputError, match="command:PROGRAM"):
            agents.find(named, lambda place: None, 1.0)


PLAYER = """
from types import SimpleNamespace
from ssp.game.rollout import agents
from ssp.game.rollout.tools import wait
agent = agents.find("command:sh agent.sh", lambda place: None, 60.0)
wait(agent.solve(SimpleNamespace(question="q", url="http://127.0.0.1:9/v1", key="k")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
def test_a_program_ends_with_its_killed_player(tmp_path: Path) -> None:
    """A shell, what it has started, and what that has started: none of them acts beside the episode that is played again."""
    (tmp_path / "inner.sh").write_text("echo $$ >> pids\nsleep 300 &\necho $! >> pids\nwait\n")
    (tmp_path / "agent.sh").write_text("echo $$ >> pids\nsh inner.sh &\nwait\n")
    player = subprocess.Popen([sys.executable, "-c", PLAYER], cwd=tmp_path)
    pids = tmp_path / "pids"
    try:
        assert within(30.0, lambda: pids.is_file() and len(pids.read_text().split()) == 3)
        assert all(map(alive, pids.read_text().split()))
    finally:
        os.kill(player.pid, signal.SIGKILL)
        player.wait()
    assert within(10.0, lambda: not any(map(alive, pids.read_text().split())))


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not holds() and time.monotonic() < until:
        time.sleep(0.05)
    return holds()


def alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


CODE = """
from pathlib import Path
async def solve(question, client, model, tools):
    Path("executed").touch()
    await client.completions.create(model=model, prompt=question)
    return "piti"
def lookup(word: str) -> str:
    "Explains a word."
    return word
def reward(response, golds, answer=""):
    return 1.0
def apart(logprobs, reference):
    return logprobs - reference
"""
PLACES = {
    "solver.agent": "mine.py:solve",
    "solver.tools": "[search, 'mine.py:lookup']",
    "solver.reward": "mine.py:reward",
    "defaults.reward_options": "{guide: 'mine.py:reward'}",
    "solver.kl.kind": "mine.py:apart",
    "protocol": "mine.yaml",
}


def run_of(folder: Path, key: str, value: str) -> Path:
    """A run whose configuration names code of the working folder, with a checkpoint that knows its hash."""
    Path("mine.py").write_text(CODE)
    library = Path(protocols.__file__).parent / "library"
    Path("mine.yaml").write_text((library / "mini.yaml").read_text().replace("id: mini", "id: mine"))
    Path("agent.sh").write_text("cat")
    typed = [f"{key}={value}"] if "guide" not in value else [f"proposer.reward_options={value}"]
    cfg = load("quickstart", typed)
    checkpoint = folder / "checkpoints" / "solver" / "v1"
    shutil.copytree(coldstart.ARTEFACT, checkpoint)
    record = json.loads((checkpoint / "ssp.json").read_text())
    (checkpoint / "ssp.json").write_text(json.dumps({**record, **own.mark(cfg)}))
    (folder / "config.yaml").write_text(to_yaml(cfg))
    folders = {"folders": {"solver": str(checkpoint.relative_to(folder))}}
    (folder / "checkpoints" / "state.json").write_text(json.dumps(folders))
    return folder


LOOKS = [
    ["ask", "vene nation ?", "--policy", "run", "--trust-code"],
    ["eval", "--policy", "run", "--data", "world:heldout", "--per-hop", "1", "--trust-code"],
]


@pytest.mark.parametrize(
    ("key", "value", "file"),
    [
        *((key, value, "mine.yaml" if key == "protocol" else "mine.py") for key, value in PLACES.items()),
        ("solver.agent", "command:sh agent.sh", "agent.sh"),
        ("solver.agent", "serve:sh agent.sh", "agent.sh"),
    ],
)
def test_code_that_has_changed_since_a_run_was_played_is_not_taken_for_the_runs(
    key: str, value: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_of(tmp_path / "run", key, value)
    assert RunReader(RunFolder(run), True).cfg.protocol  # as it was
    Path(file).write_text(Path(file).read_text() + "\n# another one\n")
    for argv in LOOKS:
        assert main(argv) == 2
        said = capsys.readouterr().err
        assert "is the code that its checkpoint was trained with" in said and file in said, argv
    with pytest.raises(InputError, match="was trained with"):  # inspect, replay, bank
        _ = RunReader(RunFolder(run), True).cfg
    assert RunReader(RunFolder(run)).cfg.protocol, "the board, which runs none of it"
    assert not Path("executed").exists()


def test_code_that_is_the_runs_own_is_run_and_what_is_typed_is_todays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_of(tmp_path / "run", "solver.agent", "mine.py:solve")
    assert main(LOOKS[0]) == 0 and Path("executed").exists()
    Path("executed").unlink()
    Path("mine.py").write_text(CODE + "\n# another one\n")
    assert main([*LOOKS[0], "solver.agent=mine.py:solve"]) == 0 and Path("executed").exists()
    assert "piti" in capsys.readouterr().out


@pytest.mark.parametrize("argv", LOOKS, ids=lambda argv: argv[0])
@pytest.mark.parametrize("key", ["solver.agent", "solver.tools"])
def test_who_trusts_nothing_is_refused_at_the_start(
    argv: Sequence[str], key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_of(tmp_path / "run", key, PLACES[key])
    monkeypatch.setattr("sys.stdin", open(os.devnull))
    assert main([word for word in argv if word not in ("--trust-code", "vene nation ?")]) == 2
    said = capsys.readouterr().err
    assert "runs only when it is trusted" in said and not Path("executed").exists()


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (["vene nation ?", "solver.limits.searches=[2, 3]"], "solver.limits.searches in the command line is"),
        (["vene nation ?", "solver.tools=[search, 'no such.py:lookup']"], "a file of your own code exists"),
        (["vene nation ?", "solvr.batch=3"], "solvr"),
        (["x=3 and y=4, what is it ?", "another ?"], "ssp ask takes one question"),
    ],
)
def test_a_setting_whose_value_has_spaces_is_no_question(
    words: list[str], right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ask", *words]) == 2
    assert right in capsys.readouterr().err


NO_SYSTEM = """{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
DROPS_SYSTEM = NO_SYSTEM.replace("{{ raise_exception('no system role') }}", "{% set messages = messages[1:] %}")


@pytest.mark.parametrize("template", [NO_SYSTEM, DROPS_SYSTEM], ids=["refuses", "drops"])
def test_a_template_without_system_messages_answers_given_questions_and_proposes_none(template: str) -> None:
    spoken = Renderer(protocols.get("search-r1"), families.qwen(template), "tokenizer")
    assert spoken.stops("solver") and "Who?" in spoken.prompt("solver", {"question": "Who?"})
    with pytest.raises(InputError, match="system message"):
        spoken.stops("proposer")


def test_an_agents_tools_are_told_by_the_user_where_no_system_speaks() -> None:
    async def solve(question: str, client: Any, model: str, tools: Any) -> str:
        return str((await asked(client, model, tools=tools.schemas)).choices[0].message.content)

    spoken = Renderer(protocols.get("search-r1"), families.qwen(NO_SYSTEM), "tokenizer")
    episode = playing(solve, "Lyon<|im_end|>", renderer=spoken)
    assert episode.final == "Lyon"
    (_, shown), *_ = pieces(episode, QWEN)
    assert "You may call these functions" in shown and shown.count("<|im_start|>user") == 1
