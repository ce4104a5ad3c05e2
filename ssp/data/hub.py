"""Downloads from the Hugging Face hub: resumable, checked, in a folder of their own.

Owns the transfer of one repository's files, their checksums, and joining and unpacking them. Promises that a file has its
final name only when its checksum is right, that an interrupted one goes on where it stopped, also in another process,
and that no message holds a token or a header. Refuses to know what the files are for.

The hub's own client lists the files and moves the bytes (its retries, its progress bar); since it keeps no partial file
between processes, the partial file is ours.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
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
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers, filter_repo_objects

from ssp.base.errors import Fault, InputError
from ssp.base.files import whole
from ssp.data.published import Published

NOTE = ".ssp-download.json"
"""Says which repository a folder was filled from; the process that fills it keeps it locked."""

SECONDS = 30.0
"""Wait for the list of files."""

_BLOCK = 1 << 22


@dataclass(frozen=True)
class HubFile:
    """One file of a repository: sha256 of its bytes when it is stored as LFS, else git's sha1 of it as a blob."""

    name: str
    size: int
    digest: str

    def sound(self, path: Path) -> bool:
        """True when `path` has this size and checksum."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        check = hashlib.sha256() if len(self.digest) == 64 else hashlib.sha1(b"blob %d\0" % self.size)
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                check.update(block)
        return check.hexdigest() == self.digest


def download(item: Published, folder: Path, unpack: bool = False, say: Callable[[str], None] = print) -> None:
    """Fetch what `item` names into `folder`; with `unpack` also join its parts and unpack its .gz files there.

    Files that are there and sound stay. InputError for a name, revision, login, folder or disk that does not do; Fault
    when the hub cannot be reached or a file's checksum is wrong (the file is deleted).
    """
    token = get_token() or ""
    if not (token.isascii() and token.isprintable()):
        raise InputError("a token is plain text", "HF_TOKEN, or the saved login, has other characters", "set it again")
    with _explained(item):
        commit, files = _list(item)
        with _claimed(folder, item, commit):
            _check_space(item, files, folder, unpack)
            for number, file in enumerate(files, 1):
                path = folder / file.name
                kept = file.sound(path)
                if not kept:
                    _fetch(item, commit, file, path)
                done = "is there" if kept else "fetched"
                say(f"{number}/{len(files)} {file.name}: {done}, {file.size:,} bytes, checksum right")
            for path in _products(item, files, folder) if unpack else ():
                say(f"made {path.relative_to(folder)}: {path.stat().st_size:,} bytes")


def _endpoint() -> str:
    """`$HF_ENDPOINT`, or the hub's own address."""
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or constants.ENDPOINT
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError("HF_ENDPOINT is an http(s) address", "one without http:// or a host", "correct or unset it")
    return endpoint


def _host() -> str:
    parts = urlsplit(_endpoint())
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def _list(item: Published) -> tuple[str, list[HubFile]]:
    """The commit that the revision means, and the files that `item` takes of it."""
    api = HfApi(endpoint=_endpoint(), library_name="ssp")
    try:
        info: Any = api.repo_info(
            item.repo, repo_type=item.type, revision=item.revision, files_metadata=True, timeout=SECONDS
        )
    except HFValidationError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # of a page, or of another service
        raise Fault(
            "hub_failed", f"{item.repo}: what {_host()} answers is no list of files; check HF_ENDPOINT"
        ) from error
    names = [sibling.rfilename for sibling in info.siblings or ()]
    wanted = set(filter_repo_objects(names, allow_patterns=list(item.files) or None))
    files = [_checked(item, sibling) for sibling in info.siblings or () if sibling.rfilename in wanted]
    if not files:
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise InputError(f"{item.repo} has files like {', '.join(item.files) or 'any'}", shown or "none", "give --only")
    return info.sha, sorted(files, key=lambda file: file.name)


def _checked(item: Published, sibling: Any) -> HubFile:
    name, path = sibling.rfilename, PurePosixPath(sibling.rfilename)
    if path.is_absolute() or ".." in path.parts or path.name == NOTE or path.name.endswith(".part"):
        raise InputError(
            "a file of a repository stays in its folder", f"{item.repo}: {name!r}", "use another repository"
        )
    digest = sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
    if sibling.size is None or not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", digest or ""):
        found = f"{item.repo}, {name}, at {_host()}"
        raise InputError(
            "the hub says size and checksum of each file", found, "unset HF_ENDPOINT, or use another mirror"
        )
    if sibling.size > constants.MAX_HTTP_DOWNLOAD_SIZE:
        raise InputError(
            "a file of up to 50 GB is fetched", f"{name}: {sibling.size:,} bytes", f"hf download {item.repo}"
        )
    if item.sha256.get(name, digest) != digest:
        found = f"{item.repo}, {name}: {digest[:12]}..., not {item.sha256[name][:12]}..."
        raise InputError("the hub has the file that was published", found, "unset HF_ENDPOINT, or give --revision")
    return HubFile(name, sibling.size, digest)


@contextlib.contextmanager
def _claimed(folder: Path, item: Published, commit: str) -> Iterator[None]:
    """`folder`, made when absent, for this repository and this process alone."""
    note, mine = folder / NOTE, {"repo": item.repo, "type": item.type}
    rule = "a download needs a folder of its own: new, empty, or filled from the same repository"
    if folder.exists() and not note.is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(rule, folder, "give another folder: --to")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = note.open("a+")
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        raise InputError("the folder can be written", f"{folder}: {error.strerror}", "give another: --to") from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError("one download at a time fills a folder", folder, "wait for the other one") from error
        stream.seek(0)
        before = stream.read()
        if before and before.partition(', "revision"')[0] != json.dumps(mine)[:-1]:
            raise InputError(rule, f"{folder} has {' '.join(before.split())}", "give another folder: --to")
        stream.truncate(0)
        stream.write(json.dumps({**mine, "revision": commit}) + "\n")
        stream.flush()
        yield


def _part(file: HubFile, path: Path) -> Path:
    return path.with_name(f".{path.name}.{file.digest[:12]}.part")


def _check_space(item: Published, files: list[HubFile], folder: Path, unpack: bool) -> None:
    def there(path: Path) -> int:
        return path.stat().st_size if path.is_file() else 0

    needed = sum(f.size - min(f.size, max(there(folder / f.name), there(_part(f, folder / f.name)))) for f in files)
    if unpack and item.join and not (folder / item.join).exists():
        needed += sum(file.size for file in files if _is_part(file))
    if unpack and any(f.name.endswith(".gz") and not (folder / f.name).with_suffix("").exists() for f in files):
        needed += item.unpacked
    free = shutil.disk_usage(folder).free
    if needed > free:
        found = f"{free / 1e9:,.2f} GB at {folder}"
        raise InputError(f"{item.repo} needs {needed / 1e9:,.2f} GB of free space", found, "free some, or give --to")


def _fetch(item: Published, commit: str, file: HubFile, path: Path) -> None:
    """Get one file, going on with what an earlier try left; goes on again as long as bytes arrive."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _part(file, path)
    for other in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        if other != part:
            other.unlink()  # of an older revision
    url = hf_hub_url(item.repo, file.name, repo_type=item.type, revision=commit, endpoint=_endpoint())
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
        raise Fault(
            "corrupted", f"{item.repo}, {file.name}: its checksum is wrong, it is deleted; run the command again"
        )
    os.replace(part, path)


def _is_part(file: HubFile) -> bool:
    return PurePosixPath(file.name).name.startswith("part_")


def _products(item: Published, files: list[HubFile], folder: Path) -> Iterator[Path]:
    """Make what is joined or unpacked of `files`, unless it is there and newer than these."""
    pieces = [folder / file.name for file in files if _is_part(file)]
    if item.join and pieces and not _newer(folder / item.join, pieces):
        with whole(folder / item.join) as aside, aside.open("wb") as out:
            for piece in pieces:
                with piece.open("rb") as stream:
                    shutil.copyfileobj(stream, out, _BLOCK)
        yield folder / item.join
    for path in (folder / file.name for file in files if file.name.endswith(".gz")):
        target = path.with_suffix("")
        if not _newer(target, [path]):
            with whole(target) as aside, aside.open("wb") as out:
                _unpack(path, out)
            yield target


def _newer(target: Path, sources: list[Path]) -> bool:
    return target.is_file() and target.stat().st_mtime_ns >= max(path.stat().st_mtime_ns for path in sources)


def _unpack(path: Path, out: IO[bytes]) -> None:
    """The bytes of a .gz; when they are a tar, those of the one file in it (the published wiki-18.jsonl.gz is such)."""
    try:
        with gzip.open(path, "rb") as stream:
            is_tar = stream.read(512)[257:262] == b"ustar"
            stream.seek(0)
            if not is_tar:
                shutil.copyfileobj(stream, out, _BLOCK)
                return
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                count = 0
                for count, member in enumerate((m for m in archive if m.isfile()), 1):
                    if count > 1:
                        raise InputError("a tar of one file is unpacked", f"{path} has more", f"tar -xzf {path}")
                    inner = archive.extractfile(member)
                    assert inner is not None  # of a regular file there is one
                    shutil.copyfileobj(inner, out, _BLOCK)
    except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError) as error:
        raise Fault("corrupted", f"{path} cannot be unpacked: {error}") from error


@contextlib.contextmanager
def _explained(item: Published) -> Iterator[None]:
    """The hub client's errors as ours. Their own texts may hold addresses and what the server sent: they stay inside."""
    what = f"the {item.type} {item.repo} at {_host()}"
    again = "what was fetched is kept; run the command again to go on"
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise InputError("a download needs the network", "HF_HUB_OFFLINE is set", "unset HF_HUB_OFFLINE") from error
    except HFValidationError as error:
        raise InputError("a repository is called org/name", item.repo, "see ssp download --list") from error
    except GatedRepoError as error:
        rule = "its owner has given you access (terms accepted on its page)"
        raise InputError(rule, f"{what}: HTTP {_status(error)}", "accept them, then set HF_TOKEN") from error
    except RepositoryNotFoundError as error:
        next_step = "check the name and --type; for a private one set HF_TOKEN"
        raise InputError(
            "the repository exists and you may read it", f"{what}: HTTP {_status(error)}", next_step
        ) from error
    except RevisionNotFoundError as error:
        raise InputError("the revision exists", f"{what}: {item.revision}", "give --revision main") from error
    except HfHubHTTPError as error:
        if 400 <= _status(error) < 500 and _status(error) not in (408, 429):
            found = f"{what}: HTTP {_status(error)}"
            raise InputError("the hub answers such a request", found, "check the name, --type and HF_TOKEN") from error
        raise Fault("hub_failed", f"{what}: HTTP {_status(error)}; {again}") from error
    except HTTPError as error:
        raise Fault("hub_unreachable", f"{what}: {type(error).__name__}; {again}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise Fault("hub_failed", f"{what}: a file came with another size than the hub says; {again}") from error


def _status(error: HfHubHTTPError) -> int:
    return int(error.response.status_code)
