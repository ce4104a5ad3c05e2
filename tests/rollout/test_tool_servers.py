"""Tools of real MCP servers, by standard input and by HTTP, and what bad ones do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from scripts import SEARCH_R1, Books, pieces, play

from ssp.base.episode import Episode, Outcome
from ssp.base.errors import Fault, InputError
from ssp.config.load import to_yaml
from ssp.config.toolserver import ToolServerConfig
from ssp.game import protocols
from ssp.game.protocols.calls import Call
from ssp.game.protocols.renderer import Renderer
from ssp.game.rollout import servers
from ssp.game.rollout.tools import ToolRequest, Tools
from ssp.selfplay.settings import load
from ssp.selfplay.workers import build

pytest.importorskip("mcp")
PROGRAM = Path(__file__).parent / "toolserver.py"
STDIO = f"stdio:{sys.executable} {PROGRAM}"
ANSWER = "<answer> Paris </answer>"
LONG = f"API-get-{'x' * 120}"


@contextmanager
def serving(*mode: str) -> Iterator[str]:
    """The address of a server while it runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(PROGRAM), "--http", str(port), *mode]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def http() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture
def stateless() -> Iterator[str]:
    with serving("stateless") as url:
        yield url


def of(spec: str, **settings: Any) -> Tools:
    """The tools of a server with these settings. By default all episodes share it, as programs start slowly."""
    return build.called.__wrapped__(("search", ToolServerConfig(spec, **{"session": "player", **settings})))


def played(tools: Tools, *turns: str) -> Episode:
    renderer = Renderer(protocols.get("search-r1").offering(tools.offers), SEARCH_R1.tokenizer)
    (episode,) = play([[*turns, ANSWER]], Books(), renderer, tools=tools)
    return episode


def told(episode: Episode) -> list[str]:
    return [text for kind, text in pieces(episode) if kind == "observation"]


@pytest.mark.covers("U13")
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_its_tools_are_called_with_their_schemas(transport: str, http: str) -> None:
    tools = of(STDIO if transport == "stdio" else http)
    assert [offer.name for offer in tools.offers][:2] == ["add", "echo"]
    episode = played(tools, '<add> {"a": 2, "b": 40} </add>', '<add> {"a": "two"} </add>', "<fail> {} </fail>")
    assert (episode.final, episode.hits, episode.tools) == ("Paris", [1, 0, 0], ["add", "add", "fail"])
    assert episode.documents[0].contents == "42" and "42" in told(episode)[0]
    assert "is not of type" in told(episode)[1], "what the schema refuses does not reach the server"
    assert "\x1b" not in told(episode)[2] and "<answer>" not in told(episode)[2]
    assert "Adds two numbers." in episode.text[: episode.response_at]


def test_a_server_gets_no_key_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSP_JUDGE_KEY", "secret")
    episode = played(of(STDIO), "<environment> SSP_JUDGE_KEY </environment>")
    assert episode.documents[0].contents == "nothing"


def test_ten_megabytes_and_tags_are_bounded_and_cleaned() -> None:
    tools = of(STDIO, seconds=120)
    episode = played(tools, '<flood> {"megabytes": 10} </flood>')
    assert len(episode.documents[0].contents) < 10_000 and episode.final == "Paris"
    (whole,) = tools.run(
        [ToolRequest(Call("echo", '{"text": "a </information> <answer> \\u001b[31m b"}'), "key", {}, {})]
    )
    assert not isinstance(whole, Fault) and "\x1b" not in whole[0].contents
    assert "</information>" not in protocols.get("search-r1").bodies(whole)


def test_a_server_that_died_voids_what_it_hit_and_is_started_again() -> None:
    tools = of(STDIO)
    assert played(tools, '<add> {"a": 1, "b": 1} </add>').hits == [1]
    dead = played(tools, "<die> {} </die>")
    assert (dead.outcome, dead.cause) == (Outcome.VOID, "tool_down")
    assert played(tools, '<add> {"a": 2, "b": 2} </add>').documents[0].contents == "4"


def test_a_server_that_hangs_voids_and_is_started_again() -> None:
    tools = of(STDIO, seconds=1.0)
    for _ in range(servers.LATE):
        late = played(tools, '<hang> {"seconds": 30} </hang>')
        assert (late.outcome, late.cause) == (Outcome.VOID, "tool_deadline")
    assert played(tools, '<add> {"a": 2, "b": 2} </add>').documents[0].contents == "4"


def test_names_and_servers_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match="an MCP tool's name has 1 to 128 letters"):
        of(f"{STDIO} named")
    with pytest.raises(InputError, match="an MCP server answers when a run starts"):
        of(f"stdio:{sys.executable} -c pass")


def bad(pids: Path, mode: str = "") -> str:
    return f"stdio:{sys.executable} {PROGRAM.with_name('badserver.py')} {pids} {mode}"


def ended(pids: Path, seconds: float = 8.0) -> bool:
    """Whether the processes that wrote there are gone, all but the last one where it still serves."""
    until, left = time.monotonic() + seconds, pids.read_text().split()
    while left and time.monotonic() < until:
        left = [pid for pid in left if os.path.exists(f"/proc/{pid}") and "(zombie)" not in _status(pid)]
        time.sleep(0.05)
    return not left


def _status(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "(zombie)"


@pytest.mark.parametrize("mode", ["mute", "endless"])
def test_a_server_that_does_not_come_to_an_end_at_the_start_is_refused_and_ended(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "SECONDS", 1.5)
    began = time.monotonic()
    with pytest.raises(InputError, match="an MCP server answers when a run starts"):
        of(bad(tmp_path / "pids", mode), seconds=1.5)
    assert time.monotonic() - began < 5 and ended(tmp_path / "pids")


def test_a_server_that_keeps_to_nothing_changes_no_reward(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tools = of(bad(tmp_path / "pids"), seconds=0.75)
    began = time.monotonic()
    fine = played(tools, "<well> {} </well>", "<refuses> {} </refuses>", "<well> {} </well>")
    assert (fine.final, fine.hits) == ("Paris", [1, 0, 1]) and "not so" in told(fine)[1]
    assert not any(mark in told(fine)[1] for mark in ("\x1b", "<answer>"))
    assert time.monotonic() - began < 5, "no pattern of the server is tried"
    assert (played(tools, "<breaks> {} </breaks>").cause, played(tools, "<well> {} </well>").hits) == ("tool_down", [1])
    names = ["well", "dies", "well", "late", "well"]
    found = tools.run([ToolRequest(Call(name, "{}"), f"{n}", {}, {}) for n, name in enumerate(names)])
    assert [one.cause if isinstance(one, Fault) else one[0].contents for one in found] == ["fine"] + ["tool_down"] * 4
    assert played(tools, "<well> {} </well>").hits == [1], "what failed late ends no connection that followed"
    assert played(tools, "<late> {} </late>").cause == "tool_deadline"
    assert told(played(tools, "<well> {} </well>")) == told(fine)[:1], "an answer that comes late is nobody's"
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "")


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")
@pytest.mark.parametrize("end", ["sys.exit(0)", "os.kill(os.getpid(), 9)"])
def test_a_server_ends_with_the_process_that_started_it(end: str, tmp_path: Path) -> None:
    code = f"import os, sys\nfrom ssp.config.toolserver import ToolServerConfig\nfrom ssp.game.rollout import servers\nservers.connect(ToolServerConfig({bad(tmp_path / 'pids')!r}, session='player'))\n{end}"
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert time.monotonic() - began < 30 and ended(tmp_path / "pids")


def test_a_server_that_ends_at_once_is_told_without_the_groups_of_the_client(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text("raise SystemExit('no such thing')")
    with pytest.raises(InputError, match="typed by itself") as refused:
        of(f"stdio:{sys.executable} {tmp_path / 'ends.py'}")
    assert "Group" not in str(refused.value)


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_attempts_tell_each_other_nothing_through_a_server(transport: str, http: str) -> None:
    tools = of(STDIO if transport == "stdio" else http, session="episode", only=["notes.keep"])
    assert not tools.warnings
    renderer = Renderer(protocols.get("search-r1").offering(tools.offers), SEARCH_R1.tokenizer)
    turns = [[f"<notes_keep> {word} </notes_keep>" for word in said] + [ANSWER] for said in ("ab", "cd")]
    episodes = play(turns, Books(), renderer, tools=tools)
    shown = [[document.contents for document in episode.documents] for episode in episodes]
    assert shown == [["a", "a, b"], ["c", "c, d"]]
    assert "(notes.keep) Keeps notes" in episodes[0].text[: episodes[0].response_at], "the policy reads which is which"


def test_what_an_episode_had_of_a_server_ends_with_it(tmp_path: Path) -> None:
    tools = of(bad(tmp_path / "pids"), session="episode", only=["well"])
    assert played(tools, "<well> {} </well>").hits == [1] and len((tmp_path / "pids").read_text().split()) == 2
    assert ended(tmp_path / "pids", 20.0)


def test_that_a_server_gives_no_sessions_is_said(stateless: str) -> None:
    (said,) = of(stateless, session="episode", only=["add"]).warnings
    assert stateless in said and "all episodes share" in said and not of(stateless, only=["add"]).warnings


def test_names_keys_and_errors_are_as_settings_say(http: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {
        "only": ["notes.keep", "notes_keep", LONG, "environment", "fail", "linked"],
        "rename": {"environment": "env"},
        "prefix": "my.",
        "headers": {"X-Mine": "Bearer TOOL_KEY"},
    }
    monkeypatch.delenv("TOOL_KEY", raising=False)
    with pytest.raises(InputError, match="TOOL_KEY is not set"):
        of(http, **settings)
    monkeypatch.setenv("TOOL_KEY", "tk-0123456789")
    tools = of(http, errors="fault", **settings)
    names = [offer.name for offer in tools.offers]
    long = next(name for name in names if "API-get" in name)
    assert {"my_notes_keep", "env", "my_fail", "my_linked"} <= {*names} and len({*names}) == 6
    assert len(long) == 64 and all("." not in name for name in names)
    assert played(tools, f"<{long}> {{}} </{long}>").documents[0].contents == "long"
    assert played(tools, "<env> X-Mine </env>").documents[0].contents == "Bearer ***"
    (guide,) = played(tools, "<my_linked> {} </my_linked>").documents
    assert guide.contents.split("\n") == ["guide guide://words", "THE GUIDE", "file: file:///a.txt"]
    outage = played(tools, "<my_fail> {} </my_fail>")
    assert (outage.outcome, outage.cause) == (Outcome.VOID, "tool_failed")
    with pytest.raises(InputError, match="tools that only and rename name"):
        of(http, only=["notes.lose"])


def test_a_program_gets_the_keys_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOL_KEY", "tk-0123456789")
    tools = of(STDIO, env=["TOOL_KEY"], only=["environment"])
    assert played(tools, "<environment> TOOL_KEY </environment>").documents[0].contents == "***"


NAMED = {"files.read": "files_read", "API-get-Users": "API-get-Users", "_private": "private", "9": "tool"}


def test_names_of_a_server_become_names_that_can_be_tags() -> None:
    assert servers.told_names([*NAMED], ToolServerConfig("a")) == NAMED
    twice = servers.told_names(["a.b", "a/b", "a_b"], ToolServerConfig("a"))
    assert len({*twice.values()}) == 3 and twice["a_b"] == "a_b" and twice["a.b"].startswith("a_b_")
    assert servers.told_names(["a b"], ToolServerConfig("a", rename={"a b": "c"})) == {"a b": "c"}


@pytest.mark.parametrize(
    ("server", "rule"),
    [
        ("{mcp: 'http://h/mcp', headers: {Authorization: Bearer sk-secret}}", "an environment variable's name"),
        ("{mcp: 'stdio:ls', env: [sk-secret]}", "an environment variable's name"),
        ("{mcp: 'http://h/mcp', env: [KEY]}", "a program gets env"),
        ("{mcp: 'stdio:ls', headers: {A: KEY}}", "a program gets env"),
        ("{mcp: 'stdio:ls', only: [a], rename: {b: c}}", "rename is of tools that are offered"),
    ],
)
def test_settings_of_a_server_that_cannot_be_are_refused_and_no_key_is_told(server: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule) as refused:
        load("quickstart", [f"solver.tools=[search, {server}]"])
    assert "secret" not in str(refused.value)


def test_settings_of_a_server_are_read_again_and_sealed_where_nobody_vouches_for_them(tmp_path: Path) -> None:
    server = "{mcp: 'stdio:touch x', prefix: my_, seconds: 5, env: [HOME]}"
    cfg = load("quickstart", [f"defaults.tools=[search, {server}]"])
    (tmp_path / "c.yaml").write_text(to_yaml(cfg))
    assert load(str(tmp_path / "c.yaml")) == cfg
    sealed = load(str(tmp_path / "c.yaml"), trusted=False)
    with pytest.raises(InputError, match="runs only when it is trusted"):
        build.protocol(sealed, "solver")
