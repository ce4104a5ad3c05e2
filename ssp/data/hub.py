"""Downloads from the Hugging Face hub into a folder of their own. The hub's client moves the bytes;
it keeps no partial file between processes, so that is done here. A file gets its final name only
when its checksum is right, and no message holds a token, a header or what a server sent."""

import contextlib
import fcntl
import gzip
import hashlib
import json
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import urlsplit

from huggingface_hub import HfApi, constants, get_token, hf_hub_url
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    OfflineModeIsEnabled,
)
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers, filter_repo_objects

from ssp.base.errors import Fault, InputError, hold, holding
from ssp.base.files import whole
from ssp.base.published import PublishedFile

NOTE = ".ssp-download.json"
"""Says which repository a folder was filled from; the process that fills it keeps it locked."""
SECONDS = 30.0
"""Wait for the list of files."""
_BLOCK = 1 << 22
_AGAIN = "what was fetched is kept; run the command again to go on"


@dataclass(frozen=True)
class HubFile:
    """One file of a repository: sha256 of its bytes when it is stored as LFS, else git's sha1 of it
    as a blob."""

    name: str
    size: int
    digest: str

    def part(self, folder: Path) -> Path:
        """Where it is until it is whole and right."""
        path = folder / self.name
        return path.with_name(f".{path.name}.{self.digest[:12]}.part")

    def sound(self, path: Path) -> bool:
        """True when `path` has this size and checksum."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        lfs = len(self.digest) == 64
        check = hashlib.sha256() if lfs else hashlib.sha1(b"blob %d\0" % self.size)
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, lambda: check).hexdigest() == self.digest


def download(
    item: PublishedFile, folder: Path, unpack: bool = False, say: Callable[[str], None] = print
) -> None:
    """Fetch what `item` names into `folder`; with `unpack` also join its parts and unpack its .gz
    files there. Files that are there and sound stay. InputError for a bad name, revision, login or
    folder, and for a full disk. Fault when the hub cannot be reached or a file's checksum is wrong
    (the file is deleted)."""
    token = get_token() or ""
    if not (token.isascii() and token.isprintable()):
        odd = "HF_TOKEN, or the saved login, has other characters"
        raise InputError("a token is plain text", odd, "set it again")
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or constants.ENDPOINT
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        rule = "HF_ENDPOINT is an http(s) address"
        raise InputError(rule, "one without http:// or a host", "correct or unset it")
    host = parts.netloc.rpartition("@")[2]
    with _explained(item, host):
        commit, files = _list(item, endpoint, host)
        with _claimed(folder, item, commit):
            _check_space(item, files, folder, unpack)
            for number, file in enumerate(files, 1):
                done = "is there"
                if not file.sound(folder / file.name):
                    done = "fetched"
                    url = hf_hub_url(
                        item.repo,
                        file.name,
                        repo_type=item.type,
                        revision=commit,
                        endpoint=endpoint,
                    )
                    _fetch(url, file, folder)
                place = f"{number}/{len(files)} {file.name}"
                say(f"{place}: {done}, {file.size:,} bytes, checksum right")
            if unpack:
                for path in _products(item, files, folder):
                    say(f"made {path.relative_to(folder)}: {path.stat().st_size:,} bytes")


def _list(item: PublishedFile, endpoint: str, host: str) -> tuple[str, list[HubFile]]:
    """The commit that the revision means, and the files that `item` takes of it."""
    api = HfApi(endpoint=endpoint, library_name="ssp")
    try:
        info: Any = api.repo_info(
            item.repo,
            repo_type=item.type,
            revision=item.revision,
            files_metadata=True,
            timeout=SECONDS,
        )
    except HFValidationError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        # the answer is a page, or another service's
        reason = f"{item.repo}: what {host} answers is no list of files; check HF_ENDPOINT"
        raise Fault("hub_failed", reason) from error
    listed = {sibling.rfilename: sibling for sibling in info.siblings or ()}
    wanted = sorted(filter_repo_objects(listed, allow_patterns=list(item.files) or None))
    rule = f"{item.repo} has files like {', '.join(item.files) or 'any'}"
    hold(wanted, rule, ", ".join([*listed][:8]) or "none", "give --only")
    return info.sha, [_checked(item, listed[name], host) for name in wanted]


def _checked(item: PublishedFile, sibling: Any, host: str) -> HubFile:
    """One file of the hub's list. InputError for one that cannot be fetched safely."""
    name = sibling.rfilename
    path = PurePosixPath(name)
    digest = (sibling.lfs.sha256 if sibling.lfs else sibling.blob_id) or ""
    what = f"{item.repo}, {name!r}, at {host}"
    ours = path.name == NOTE or path.name.endswith(".part")
    if path.is_absolute() or ".." in path.parts or ours:
        rule = "a file of a repository stays in its folder"
        raise InputError(rule, what, "use another repository")
    if sibling.size is None or not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", digest):
        raise InputError("the hub says size and checksum of each file", what, "unset HF_ENDPOINT")
    if sibling.size > constants.MAX_HTTP_DOWNLOAD_SIZE:
        raise InputError("a file of up to 50 GB is fetched", what, f"hf download {item.repo}")
    pinned = item.sha256.get(name, digest)
    if pinned != digest:
        rule = "the hub has the file that was published"
        step = "unset HF_ENDPOINT, or give --revision"
        raise InputError(rule, f"{what}: {digest}, not {pinned}", step)
    return HubFile(name, sibling.size, digest)


@contextlib.contextmanager
def _claimed(folder: Path, item: PublishedFile, commit: str) -> Iterator[None]:
    """Around what fills `folder`, which is made when absent, and is this repository's and this
    process's alone."""
    note = folder / NOTE
    mine = {"repo": item.repo, "type": item.type}
    rule = "a download needs a folder of its own: new, empty, or filled from the same repository"
    if folder.exists() and not note.is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(rule, folder, "give another folder: --to")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = note.open("a+")
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        reason = f"{folder}: {error.strerror}"
        raise InputError("the folder can be written", reason, "give another: --to") from error
    with stream:
        alone = "one download at a time fills a folder"
        with holding(BlockingIOError, alone, lambda _: folder, "wait for the other one"):
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        stream.seek(0)
        before = stream.read()
        if before and not before.startswith(json.dumps(mine)[:-1]):
            raise InputError(rule, f"{folder} has {before.strip()}", "give another folder: --to")
        stream.truncate(0)
        stream.write(json.dumps({**mine, "revision": commit}) + "\n")
        stream.flush()
        yield


def _check_space(item: PublishedFile, files: list[HubFile], folder: Path, unpack: bool) -> None:
    """InputError where the disk has less room than the download, and what is made of it, needs."""
    needed = 0
    for file in files:
        missing = file.size
        for path in (folder / file.name, file.part(folder)):
            if path.is_file():
                missing -= path.stat().st_size
        needed += max(0, missing)
    if unpack and item.join and not (folder / item.join).exists():
        needed += sum(file.size for file in files)
    if unpack and any(not (folder / file.name).with_suffix("").exists() for file in files):
        needed += item.unpacked
    free = shutil.disk_usage(folder).free
    rule = f"{item.repo} needs {needed / 1e9:,.2f} GB of free space"
    hold(needed <= free, rule, f"{free / 1e9:,.2f} GB at {folder}", "free some, or give --to")


def _fetch(url: str, file: HubFile, folder: Path) -> None:
    """Get one file. It goes on with what an earlier try left, and tries again as long as bytes
    arrive."""
    part = file.part(folder)
    part.parent.mkdir(parents=True, exist_ok=True)
    headers = {**build_hf_headers(library_name="ssp"), "Accept-Encoding": "identity"}
    while True:
        with part.open("ab") as stream:
            if stream.tell() > file.size:
                stream.truncate(0)
            had = stream.seek(0, os.SEEK_END)
            try:
                http_get(url, stream, resume_size=had, headers=headers, expected_size=file.size)
                break
            except HTTPError:
                if stream.tell() <= had:
                    raise
    if not file.sound(part):
        part.unlink()
        reason = f"{file.name}: its checksum is wrong, it is deleted; run the command again"
        raise Fault("corrupted", reason)
    os.replace(part, folder / file.name)


def _products(item: PublishedFile, files: list[HubFile], folder: Path) -> Iterator[Path]:
    """Make what is joined or unpacked of `files`, unless it is there and newer than these. Gives
    the path of each file that was made."""
    paths = [folder / file.name for file in files]
    products = {path.with_suffix(""): [path] for path in paths if path.suffix == ".gz"}
    joined = folder / item.join if item.join else None
    if joined:
        products[joined] = paths
    for target, sources in products.items():
        newest = max(path.stat().st_mtime_ns for path in sources)
        if target.is_file() and target.stat().st_mtime_ns >= newest:
            continue
        with whole(target) as aside, aside.open("wb") as out:
            for path in sources:
                if target == joined:
                    with path.open("rb") as stream:
                        shutil.copyfileobj(stream, out, _BLOCK)
                else:
                    _unpack(path, out)
        yield target


def _unpack(path: Path, out: IO[bytes]) -> None:
    """Write the bytes of a .gz to `out`. When they are a tar, write those of the one file in it:
    the published wiki-18.jsonl.gz is such."""
    try:
        with gzip.open(path, "rb") as stream:
            is_tar = stream.read(512)[257:262] == b"ustar"
            stream.seek(0)
            if not is_tar:
                shutil.copyfileobj(stream, out, _BLOCK)
                return
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                files = (member for member in archive if member.isfile())
                for count, member in enumerate(files):
                    rule = "a tar of one file is unpacked"
                    hold(not count, rule, f"{path} has more", f"tar -xzf {path}")
                    shutil.copyfileobj(archive.extractfile(member), out, _BLOCK)  # type: ignore[arg-type]
    except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError) as error:
        raise Fault("corrupted", f"{path} cannot be unpacked: {error}") from error


@contextlib.contextmanager
def _explained(item: PublishedFile, host: str) -> Iterator[None]:
    """Around what asks the hub: its client's errors become ours. Their own texts may hold addresses
    and what the server sent, so they are not shown."""
    what = f"the {item.type} {item.repo} at {host}"
    try:
        yield
    except OfflineModeIsEnabled as error:
        rule = "a download needs the network"
        raise InputError(rule, "HF_HUB_OFFLINE is set", "unset HF_HUB_OFFLINE") from error
    except HFValidationError as error:
        rule = "a repository is called org/name"
        raise InputError(rule, item.repo, "see ssp download --list") from error
    except HfHubHTTPError as error:
        status = int(error.response.status_code)
        if not 400 <= status < 500 or status in (408, 429):
            raise Fault("hub_failed", f"{what}: HTTP {status}; {_AGAIN}") from error
        step = (
            "check name, --type and --revision main; for a private or gated one accept its terms,"
            " then set HF_TOKEN"
        )
        rule = "the repository exists and you may read it"
        raise InputError(rule, f"{what}: HTTP {status}", step) from error
    except HTTPError as error:
        raise Fault("hub_unreachable", f"{what}: {type(error).__name__}; {_AGAIN}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        reason = f"{what}: a file came with another size than the hub says; {_AGAIN}"
        raise Fault("hub_failed", reason) from error
