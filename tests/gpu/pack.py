"""Packs what a bare GPU machine lacks for kit.py, in parts of at most 52 MiB.

python3.12 tests/gpu/pack.py OUT     # on x86-64 Linux with the network, after ssp download smollm2-135m

Wheels of what `setup.cfg` asks for and the machine has not (for the Python that runs this), DeepSpeed without what it
compiles, the packages of the English text as they are published, and the model as a folder: one archive, cut by bytes. A part's name says which one it is, of how
many, and its SHA-256. Carry OUT and the repository there: kit.py takes the parts one by one, or all together.
"""

from __future__ import annotations

import configparser
import email
import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from ssp.base import models  # noqa: E402

MODEL, PART, PYTHON = "smollm2-135m", 52 * 2**20, (3, 12)
THERE = {"torch", "transformers", "tokenizers", "huggingface-hub", "safetensors", "peft", "numpy", "pyarrow"}
"""What the machine has; everything else comes along, whether or not it has that too."""


def asked() -> tuple[list[str], list[str]]:
    """What the package needs beside `THERE`, and what comes without its own needs: DeepSpeed, and the packages whose text
    alone is read."""
    read = configparser.ConfigParser()
    read.read(ROOT / "setup.cfg", encoding="utf-8")
    needs = read["options"]["install_requires"].split("\n")
    extras = read["options.extras_require"]
    alone = [line for line in extras["deepspeed"].split("\n") if line]
    alone += [line for line in extras["english"].split("\n") if "==" in line and "gguf" not in line]
    return missing(line for line in needs if line.strip() and not line.startswith("#")), alone


def missing(needs: Iterable[str]) -> list[str]:
    """Those that the machine has not."""
    return [need for need in needs if plain(re.split(r"[\[<>=~!; ]", need)[0]) not in THERE]


def needs_of(wheel: Path) -> list[str]:
    """What a wheel itself asks for beside `THERE`."""
    with zipfile.ZipFile(wheel) as packed:
        (name,) = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        told = email.message_from_bytes(packed.read(name))
    return missing(need for need in told.get_all("Requires-Dist") or () if "extra ==" not in need)


def plain(name: str) -> str:
    """A package's name as the index has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wheels(folder: Path) -> None:
    """Download or build them all into `folder`."""
    needs, alone = asked()
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(folder)]
    # With its needs DeepSpeed would bring torch, which is gigabytes.
    subprocess.run([*pip, "--no-deps", *alone], check=True)
    (deepspeed,) = folder.glob("deepspeed-*.whl")
    subprocess.run([*pip, *needs, *needs_of(deepspeed)], check=True)
    for wheel in folder.glob("*.whl"):
        if plain(wheel.name.split("-")[0]) in THERE:
            wheel.unlink()


def cut(whole: Path, out: Path, size: int = PART) -> list[Path]:
    """The parts of a file."""
    count, made = -(-whole.stat().st_size // size), []
    with whole.open("rb") as stream:
        for number in range(1, count + 1):
            block = stream.read(size)
            made.append(out / f"part-{number}-of-{count}-{hashlib.sha256(block).hexdigest()}")
            made[-1].write_bytes(block)
    return made


def main() -> int:
    """Pack; prints what there is."""
    if sys.version_info[:2] != PYTHON or len(sys.argv) != 2:
        print(f"python3.12 {sys.argv[0]} OUT: the wheels are those of the Python that packs", file=sys.stderr)
        return 2
    model = models.folder(MODEL, "the model")
    out = Path(sys.argv[1])
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=out) as made:
        whole, found = Path(made) / "whole.tar.xz", Path(made) / "wheels"
        found.mkdir()
        wheels(found)
        with tarfile.open(whole, "w:xz", preset=0) as tar:
            tar.add(found, "wheels")
            tar.add(model, f"cache/hub/{MODEL}")
        parts = cut(whole, out)
        print(
            f"{len(list(found.iterdir()))} wheels and {MODEL}: {len(parts)} parts, {whole.stat().st_size / 1e6:.0f} MB"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
