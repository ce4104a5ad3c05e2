"""The page as one file and over HTTP: needs nothing else, and a question's text stays text."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient

from launch import board as command
from launch.cli import bind
from launch.main import COMMANDS, run
from ssp.views.board.saved import NOTHING, PAGE, leave_page, save
from ssp.views.board.server import application
from tests.board.boarded import HOSTILE, by_hand, looked
from tests.selfplay import fakes

SVG = "http://www.w3.org/2000/svg"


class Parsed(HTMLParser):
    """Scripts of a page by class, its metas, and every address that an element names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.blocks: dict[str, list[str]] = {}
        self.addresses: list[str] = []
        self.policy = ""
        self._inside: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.addresses += [str(found[name]) for name in ("src", "href", "action", "data", "srcset") if name in found]
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = str(found["content"])
        if tag in ("script", "style"):
            self._inside = found.get("class") or tag
            self.blocks.setdefault(self._inside, []).append("")

    def handle_data(self, data: str) -> None:
        if self._inside is not None:
            self.blocks[self._inside][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._inside = None


@pytest.fixture(scope="module")
def page(stage: fakes.Stage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("page") / "board.html"
    assert save(looked(stage.folder), made) > 20
    return made


def test_a_saved_page_asks_nobody(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    parsed = Parsed(text)
    assert parsed.addresses == ["data:,"], "the empty icon, which keeps a browser from asking for one"
    assert set(re.findall(r"https?://[^\s\"'`]+", text)) == {SVG}, "a name, which nobody fetches"
    assert not re.search(r"@import|url\((?!#)|@font-face|WebSocket|EventSource|XMLHttpRequest|sendBeacon", text)
    assert set(re.findall(r"fetch\(`([^`]+)`", text)) == {
        "data.json?since=${SSP.seq}",
        "question.json?id=${encodeURIComponent(id)}",
    }


def test_only_our_scripts_run_in_it(page: Path) -> None:
    """The policy names each script and style by its hash, and lets nothing be loaded from anywhere."""
    parsed = Parsed(page.read_text(encoding="utf-8"))
    own = [*parsed.blocks["style"], *parsed.blocks["script"]]
    assert len(own) == len(list(PAGE.glob("*.css"))) + len(list(PAGE.glob("*.js")))
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in own]
    assert parsed.policy.startswith("default-src 'none'") and "connect-src" not in parsed.policy
    assert all(f"'sha256-{each}'" in parsed.policy for each in hashes) and "unsafe" not in parsed.policy


def test_a_saved_page_holds_the_document(page: Path, stage: fakes.Stage) -> None:
    parsed = Parsed(page.read_text(encoding="utf-8"))
    found = [row for block in parsed.blocks["rows"] for row in json.loads(block)["rows"]]
    assert found == json.loads(json.dumps(looked(stage.folder).since(0, None)["rows"]))
    details = {value["id"]: value for value in map(json.loads, parsed.blocks["detail"])}
    (newest,) = [row[2] for row in found if row[0] == "duels"]
    assert set(newest) <= set(details) and all(value["plays"] for value in details.values())


@pytest.mark.parametrize("target", ["t", "<b onclick=x>"])
def test_hostile_text_is_never_markup(tmp_path: Path, target: str) -> None:
    hostile = looked(by_hand(tmp_path / "run", [HOSTILE, "one ?"], target))
    save(hostile, tmp_path / "board.html")
    text = (tmp_path / "board.html").read_text(encoding="utf-8")
    plain = by_hand(tmp_path / "plain", ["why ?", "one ?"], "t")
    save(looked(plain), tmp_path / "plain.html")
    tags = [re.findall(r"<[a-zA-Z!/]", part) for part in (text, (tmp_path / "plain.html").read_text(encoding="utf-8"))]
    assert tags[0] == tags[1], "the same markup whatever is asked"
    found = [row for block in Parsed(text).blocks["rows"] for row in json.loads(block)["rows"]]
    assert [HOSTILE, target] in [row[2][:2] for row in found if row[0] == "questions"], "and shown as it was"
    assert "\u2028" not in text


def test_scripts_put_text_into_text_nodes_only() -> None:
    for path in PAGE.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), (
            path.name
        )


def test_there_is_room_for_some_transcripts_only(
    stage: fakes.Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ssp.views.board.saved.KEPT", 5)
    assert save(looked(stage.folder), tmp_path / "few.html") == 5
    monkeypatch.setattr("ssp.views.board.saved.BYTES", 10_000)
    assert 1 <= save(looked(stage.folder), tmp_path / "fewer.html") < 5


def test_a_run_ends_with_its_page(tmp_path: Path) -> None:
    run = by_hand(tmp_path / "run", ["why ?"])
    assert leave_page(run) == [f"report: {run.path}/report.html", f"board: ssp board {run.path}"]
    assert "why ?" in (run.path / "report.html").read_text()
    run.metrics.write_text("torn\n")
    said, board = leave_page(run)
    assert said.startswith("report: not written: every finished line") and board.startswith("board:")


# the command


def asked(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str]:
    code = run(command.main, [str(word) for word in argv])
    out, err = capsys.readouterr()
    return code, out + err


def test_the_command_writes_a_file(stage: fakes.Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path for path in stage.folder.path.rglob("*")}
    assert "board" in COMMANDS
    code, said = asked(capsys, stage.folder.path, "--save", tmp_path / "b.html")
    assert code == 0 and re.search(r"b\.html: \d+ questions with their transcripts", said)
    assert (tmp_path / "b.html").stat().st_size > 50_000
    after = {path for path in stage.folder.path.rglob("*")}
    assert {path.name for path in after ^ before} <= {"ledger.db-shm", "ledger.db-wal"}


def test_bad_input_is_one_paragraph(stage: fakes.Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = bind("127.0.0.1", 0)
    for argv, wanted in (
        ([tmp_path / "nowhere"], "existing folder"),
        ([tmp_path], "a run's folder holds"),
        ([stage.folder.path, "--save", tmp_path / "b.pdf"], "let the name end in .html"),
        ([stage.folder.path, "--port", "99999"], "0 to 65535"),
        ([stage.folder.path, "--port", taken.getsockname()[1]], "the server's port must be free"),
        ([], "no RUN"),
    ):
        code, said = asked(capsys, *argv)
        assert code == 2 and wanted in said and said.count("\n") == 1, said
    taken.close()
    assert list(tmp_path.iterdir()) == []


# over HTTP


def get(server: str, path: str, host: str = "127.0.0.1") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(urlsplit(server).netloc, timeout=20)
    connection.request("GET", path, headers={"Host": host})
    reply = connection.getresponse()
    body = reply.read()
    connection.close()
    return reply.status, dict(reply.getheaders()), body


@pytest.mark.ray
def test_routes(address: str, stage: fakes.Stage) -> None:
    status, headers, body = get(address, "/")
    assert status == 200 and body == (PAGE / "index.html").read_bytes()
    assert headers["content-security-policy"].startswith(NOTHING) and headers["cache-control"] == "no-store"
    for named in Parsed(body.decode()).addresses:
        if named != "data:,":
            status, headers, _ = get(address, f"/{named}")
            assert status == 200 and headers["content-type"].startswith(("text/css", "text/javascript")), named
    document = json.loads(get(address, "/data.json")[2])
    assert document["rows"] == json.loads(json.dumps(looked(stage.folder).since(0)["rows"])) and not document["more"]
    assert json.loads(get(address, f"/data.json?since={document['seq']}")[2])["rows"] == []
    (newest,) = [row[2][-1] for row in document["rows"] if row[0] == "duels"]
    assert json.loads(get(address, f"/question.json?id={newest}")[2])[newest]["id"] == newest
    assert get(address, "/question.json?id=q0")[0] == 404
    assert (
        get(address, "/data.json?since=-1")[0] == 400
        and "since" in json.loads(get(address, "/data.json?since=x")[2])["error"]
    )
    for path in ("/no.html", "/../data.py", "/%2e%2e/data.py", "/page/index.html", "//etc/passwd"):
        assert get(address, path)[0] == 404, path


@pytest.mark.ray
def test_only_this_machines_names_are_answered(address: str) -> None:
    """So that a page of the web, whose name was made to mean 127.0.0.1, reads nothing here."""
    for host, status in (("localhost", 200), (urlsplit(address).netloc, 200), ("evil.example", 403), ("", 403)):
        assert get(address, "/data.json", host)[0] == status, host


def test_a_broken_file_is_told_to_the_page(tmp_path: Path) -> None:
    folder = by_hand(tmp_path / "run", ["why ?"])
    client = TestClient(application(looked(folder)), base_url="http://localhost")
    folder.metrics.write_text("nonsense\n")
    reply = client.get("/data.json")
    assert reply.status_code == 400 and "metrics" in reply.json()["error"]
    assert client.post("/data.json").status_code == 405


@pytest.mark.ray
def test_the_command_serves_until_it_is_told_to_end(stage: fakes.Stage) -> None:
    args = [sys.executable, "-m", "launch.board", str(stage.folder.path), "--port", "0"]
    with subprocess.Popen(
        args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, line
        with socket.create_connection(("127.0.0.1", int(found[1])), timeout=10) as client:
            client.sendall(b"GET /data.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
        process.terminate()
        assert process.wait(20) == 0 and process.stderr.read() == ""
