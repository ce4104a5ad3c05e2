"""`ssp download` against a hub on this machine: whole, cut, corrupted, refused and unreachable."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpfakes
import huggingface_hub.constants
import pytest
from huggingface_hub.utils import close_session

from launch.main import main as console
from ssp.base.published import PUBLISHED, PublishedFile
from ssp.data import hub

SENTINEL = "hf_SENTINEL"
COMMIT = "c0ffee" + "0" * 34
BIG = bytes(range(256)) * 1000
FILES = {"README.md": b"# hello\n", "part_aa": BIG, "part_ab": b"tail", "nq/train.jsonl.gz": gzip.compress(b"{}\n")}


class Hub:
    """One repository, org/name, as a data set; `cut`, `corrupt`, `answers` make it misbehave."""

    def __init__(self) -> None:
        self.files, self.commit, self.address = dict(FILES), COMMIT, ""
        self.cut: dict[str, list[int]] = {}
        self.corrupt: set[str] = set()
        self.answers: dict[str, tuple[int, str]] = {}
        self.redirect = False
        self.seen: list[tuple[str, str | None, str | None]] = []

    def gets(self, name: str) -> list[str | None]:
        """The Range headers of the requests for a file's bytes."""
        return [ranges for path, ranges, _ in self.seen if path.endswith(f"/{name}")]

    def listing(self) -> dict[str, object]:
        siblings = []
        for name, data in self.files.items():
            row: dict[str, object] = {"rfilename": name, "size": len(data)}
            row["blobId"] = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            if name != "README.md":
                row["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            siblings.append(row)
        return {"id": "org/name", "sha": self.commit, "siblings": siblings, "private": False, "tags": []}

    def reply(self, asked: httpfakes.Asked) -> tuple[int, dict[str, str], bytes]:
        path, auth = unquote(urlsplit(asked.path).path), asked.headers.get("Authorization")
        self.seen.append((path, asked.headers.get("Range"), auth))
        for start, (status, code) in self.answers.items():
            if path.startswith(start):
                said = f"you sent {auth}"
                return status, {"X-Error-Code": code, "X-Error-Message": said}, said.encode()
        api, resolve = "/api/datasets/org/name/revision/", f"/datasets/org/name/resolve/{self.commit}/"
        if path.startswith(api):
            return 200, {"Content-Type": "application/json"}, json.dumps(self.listing()).encode()
        if path.startswith(resolve) and self.redirect:
            elsewhere = self.address.replace("127.0.0.1", "localhost")
            return 302, {"Location": f"{elsewhere}/blobs/{path.removeprefix(resolve)}"}, b""
        for prefix in (resolve, "/blobs/"):
            if path.startswith(prefix) and path.removeprefix(prefix) in self.files:
                return self.file(path.removeprefix(prefix), asked.headers.get("Range") or "bytes=0-")
        return 404, {"X-Error-Code": "RepoNotFound"}, b""

    def file(self, name: str, ranges: str) -> tuple[int, dict[str, str], bytes]:
        data = self.files[name]
        headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": self.commit}
        if name in self.corrupt:
            data = data[:-1] + b"!"
        first = int(ranges.removeprefix("bytes=").partition("-")[0])
        headers["Content-Length"] = str(len(data) - first)
        if first:
            headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        cuts = self.cut.get(name)
        return (206 if first else 200), headers, data[first:][: cuts.pop(0)] if cuts else data[first:]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 500)  # 10 MB: what a cut may lose
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    monkeypatch.setenv("HF_TOKEN", SENTINEL)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    made = Hub()
    with httpfakes.server(made.reply) as made.address:
        monkeypatch.setenv("HF_ENDPOINT", made.address)
        yield made
        close_session()


@pytest.fixture
def run(server: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Run the command into tmp_path/data; gives exit code and what it said, in which no token is."""

    def call(*words: str, name: str = "org/name", to: Path | None = None) -> tuple[int, str]:
        kind = ["--type", "dataset"] if "/" in name else []
        code = console(["download", name, *kind, "--to", str(to or tmp_path / "data"), *words])
        said = capsys.readouterr()
        text = said.out + said.err
        kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
        assert SENTINEL not in text and not any(SENTINEL.encode() in data for data in kept)
        assert "Traceback" not in text
        return code, text

    return call


def found(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != hub.NOTE)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_everything_arrives(run, server: Hub, tmp_path: Path):
    code, said = run()
    assert code == 0 and found(tmp_path / "data") == FILES
    assert f"2/4 nq/train.jsonl.gz: fetched, {len(FILES['nq/train.jsonl.gz'])} bytes, checksum right" in said
    assert json.loads((tmp_path / "data" / hub.NOTE).read_text())["revision"] == COMMIT
    assert {auth for *_, auth in server.seen} == {f"Bearer {SENTINEL}"}, "the token goes to the hub"


def test_names_from_the_hub_are_printed_cleaned(run, server: Hub, tmp_path: Path):
    server.files = {"a\x1b]0;owned\x07\u202e.txt": b"x"}
    _, said = run()
    assert "owned" in said and not {"\x1b", "\x07", "\u202e"} & {*said}


def test_what_is_there_is_not_fetched_again(run, server: Hub, tmp_path: Path):
    run()
    server.seen.clear()
    code, said = run()
    assert code == 0 and "part_aa: is there" in said
    assert [path for path, *_ in server.seen] == ["/api/datasets/org/name/revision/main"]
    (tmp_path / "data" / "part_ab").write_bytes(b"taiL")
    assert run()[0] == 0 and found(tmp_path / "data") == FILES, "an altered file is fetched again"


def test_a_later_command_goes_on_where_the_first_one_stopped(run, server: Hub, tmp_path: Path):
    server.cut["part_aa"] = [100_000]
    listing = "/datasets/org/name/resolve/"

    class Failing(dict):
        """No answer but the first for the big file."""

        def items(self):
            return [(listing, (503, ""))] if server.gets("part_aa")[1:] else []

    server.answers = Failing()
    code, said = run()
    assert code == 1 and "HTTP 503" in said and "run the command again" in said
    parts = [name for name in found(tmp_path / "data") if name.endswith(".part")]
    assert len(parts) == 1 and found(tmp_path / "data")[parts[0]] == BIG[:100_000]
    server.answers = {}
    server.seen.clear()
    assert run()[0] == 0
    assert server.gets("part_aa") == ["bytes=100000-"] and found(tmp_path / "data") == FILES


@pytest.mark.parametrize("name", ["part_aa", "README.md"])
def test_a_corrupted_file_is_deleted(run, server: Hub, tmp_path: Path, name: str):
    """README.md has git's sha1, as files outside LFS."""
    server.corrupt = {name}
    code, said = run("--only", name)
    assert code == 1 and f"{name}: its checksum is wrong, it is deleted" in said
    assert found(tmp_path / "data") == {}
    server.corrupt = set()
    assert run("--only", name)[0] == 0


def test_the_token_stays_with_the_hub(run, server: Hub, tmp_path: Path):
    """Large files come from another host, which gets no token."""
    server.redirect = True
    assert run()[0] == 0 and found(tmp_path / "data") == FILES
    assert {auth for path, _, auth in server.seen if path.startswith("/blobs/")} == {None}


def test_parts_are_joined_and_gz_unpacked(run, server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(PUBLISHED, "tiny", PublishedFile("org/name", "dataset", files=("part_*",), join="whole.index"))
    code, said = run("--unpack", name="tiny")
    assert code == 0 and found(tmp_path / "data")["whole.index"] == BIG + b"tail"
    assert "made whole.index: 256,004 bytes" in said
    assert "made" not in run("--unpack", name="tiny")[1], "nothing is made twice"
    run("--unpack", "--only", "nq/*", to=tmp_path / "gz")
    assert found(tmp_path / "gz")["nq/train.jsonl"] == b"{}\n"
    run("--unpack", "--only", "part_aa", name="tiny", to=tmp_path / "some")
    assert set(found(tmp_path / "some")) == {"part_aa"}, "some of the parts make no whole"
    server.files["part_ab"] = b"TAIL"
    run("--unpack", name="tiny")
    assert found(tmp_path / "data")["whole.index"] == BIG + b"TAIL"


def test_a_tar_that_is_called_gz(run, server: Hub, tmp_path: Path):
    """The published wiki-18.jsonl.gz: a tar, with a long path, inside the gz."""

    def archive(*names: str) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size = len(BIG)
                tar.addfile(member, io.BytesIO(BIG))
        return out.getvalue()

    server.files = {"wiki.jsonl.gz": archive("data/deep/wiki_dump.jsonl")}
    assert run("--unpack")[0] == 0 and found(tmp_path / "data")["wiki.jsonl"] == BIG
    server.files = {"two.gz": archive("a", "b")}
    code, said = run("--unpack", to=tmp_path / "two")
    assert code == 2 and "tar -xzf" in said and set(found(tmp_path / "two")) == {"two.gz"}
    server.files = {"broken.gz": FILES["nq/train.jsonl.gz"][:-6]}
    code, said = run("--unpack", to=tmp_path / "broken")
    assert code == 1 and "cannot be unpacked" in said and set(found(tmp_path / "broken")) == {"broken.gz"}


@pytest.mark.parametrize(
    "status, error, code, words",
    [
        (404, "RepoNotFound", 2, "org/name at 127.0.0.1"),
        (403, "GatedRepo", 2, "accept its terms, then set HF_TOKEN"),
        (404, "RevisionNotFound", 2, "--revision main"),
        (500, "", 1, "HTTP 500"),
        (429, "", 1, "HTTP 429"),
    ],
)
@pytest.mark.parametrize("where", ["/api/", "/datasets/"])
def test_refusals_of_the_hub(
    run, server: Hub, tmp_path: Path, status: int, error: str, code: int, words: str, where: str
):
    """Its own text, which may repeat what was sent, is not shown."""
    server.answers = {where: (status, error)}
    got, said = run()
    assert got == code and words in said and "you sent" not in said
    assert len(said.strip().splitlines()) == 1
    assert not set(found(tmp_path / "data")) & set(FILES)


def test_no_network(run, server: Hub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_ENDPOINT", f"http://user:{SENTINEL}@127.0.0.1:1")
    code, said = run()
    assert code == 1 and "127.0.0.1:1: ConnectError" in said
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    code, said = run()
    assert code == 2 and "unset HF_HUB_OFFLINE" in said


def test_the_folder_is_its_own(run, server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "README.md").write_text("my notes")
    code, said = run(to=mine)
    assert code == 2 and "folder of its own" in said and (mine / "README.md").read_text() == "my notes"
    run()
    (tmp_path / "data" / hub.NOTE).write_text('{"repo": "other/name", "type": "dataset", "revision": "x"}\n')
    code, said = run()
    assert code == 2 and "other/name" in said
    (tmp_path / "file").write_text("")
    assert run(to=tmp_path / "file")[0] == 2


def test_pinned_checksums(run, server: Hub, monkeypatch: pytest.MonkeyPatch):
    """A mirror that offers another file under the published name is refused before anything is fetched."""
    right = hashlib.sha256(BIG).hexdigest()
    item = PublishedFile("org/name", "dataset", files=("part_aa",), sha256={"part_aa": right})
    monkeypatch.setitem(PUBLISHED, "tiny", item)
    assert run(name="tiny")[0] == 0
    monkeypatch.setitem(PUBLISHED, "tiny", replace(item, sha256={"part_aa": "0" * 64}))
    code, said = run(name="tiny")
    assert code == 2 and "not 000000000000" in said
    assert run("--revision", "main", name="tiny")[0] == 0


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", hub.NOTE, "x.part"])
def test_file_names_that_leave_the_folder(run, server: Hub, tmp_path: Path, name: str):
    server.files = {name: b"evil"}
    assert run()[0] == 2
    assert not (tmp_path / "data").exists() and not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "takes a name"),
        (["org/name"], "--type dataset or --type model"),
        (["nq"], "--list"),
        (["a/b/c"], "--list"),
        (["bad-/..", "--type", "model"], "org/name"),
        (["org/name", "--type", "space"], "invalid choice"),
    ],
)
def test_wrong_names(server: Hub, capsys: pytest.CaptureFixture[str], words: list[str], said: str):
    assert console(["download", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_list(capsys: pytest.CaptureFixture[str]):
    assert console(["download", "--list"]) == 0
    shown = capsys.readouterr().out
    assert all(name[:9] in shown for name in PUBLISHED)
    for item in PUBLISHED.values():
        if item.type == "adapter":
            assert PUBLISHED[item.repo].type == "package" and item.installed().is_file()
            continue
        packed = item.type == "package"
        assert packed or (item.type in ("dataset", "model") and item.repo.count("/") == 1 and item.files)
        assert not packed or (len(item.files) == 1 and {*item.sha256} == {*item.files} and item.revision[0].isdigit())
        assert all(len(digest) == 64 for digest in item.sha256.values())
    assert len(PUBLISHED["flashrag"].files) == 7
