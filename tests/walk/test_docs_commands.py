"""Every command that the pages show exists and takes the options that it is shown with; nothing is run."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docpages import ROOT, SHOWN, WALKED, Block, blocks, pages
from trainruns import REPO

from launch.cli import Parser
from launch.main import COMMANDS
from ssp.base.errors import InputError
from ssp.config.reading import Draft
from tests.bench.walk import Rules, commands

configs = importlib.import_module("ssp.config.load")

PLACEHOLDER = re.compile(r"\.\.\.|\b[A-Z]{2,}\b")
"""In a setting's value or for a number: a reader fills it in."""


class Parsed(BaseException):
    """The arguments were read: as far as this test lets a command come. No Exception, so that nobody treats it."""

    def __init__(self, found: argparse.Namespace) -> None:
        super().__init__()
        self.found = found


def every(*languages: str) -> list[Block]:
    return [block for page in pages() for block in blocks(page, *languages)]


def lines(block: Block) -> Iterator[str]:
    """Commands of a block; of a console those behind its prompt."""
    if block.language == "console":
        yield from (line[2:] for line in block.text.replace("\\\n", " ").splitlines() if line.startswith("$ "))
    else:
        yield from commands(block.text)


def typed(command: str) -> Iterator[tuple[str, list[str]]]:
    """Our commands in a line of shell: name and arguments."""
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars="&|;<>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    for word in [*lexer, ";"]:
        if not set(word) <= set("&|;<>"):
            words.append(word)
            continue
        for i, one in enumerate(words):
            if one in ("ssp", "bin/ssp", ".venv/bin/ssp") and all("=" in before for before in words[:i]):
                yield words[i + 1], words[i + 2 :]
            module = re.fullmatch(r"launch\.(\w+)", one)
            if module and words[i - 1 : i] == ["-m"]:
                yield module[1], words[i + 1 :]
            if one.endswith("launch/quickstart.sh"):
                yield "train", words[i + 1 :]
        words = []


def own(block: Block) -> dict[str, str]:
    """Code that the block writes: a game of one's own is read with the command line."""
    return {file: text for file, text in block.files.items() if file.endswith(".py")}


OURS = [
    pytest.param(name, arguments, own(block), id=f"{block.name} {name}")
    for block in every(WALKED, *SHOWN)
    for line in lines(block)
    for name, arguments in typed(line)
]


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("parse_args", "parse_intermixed_args"):
        read = getattr(argparse.ArgumentParser, name)

        def stop(self: Any, *args: Any, read: Any = read, **more: Any) -> Any:
            raise Parsed(read(self, *args, **more))

        monkeypatch.setattr(Parser, name, stop)
    known = argparse.ArgumentParser.parse_known_args

    def stop_migrate(self: Any, *args: Any, **more: Any) -> Any:  # the others' parsers call it too
        found = known(self, *args, **more)
        if self.prog == "ssp migrate":
            raise Parsed(found[0])
        return found

    monkeypatch.setattr(Parser, "parse_known_args", stop_migrate)


def test_the_pages_show_commands() -> None:
    assert {name for name, *_ in (param.values for param in OURS)} > {
        "train",
        "eval",
        "bank",
        "board",
        "serve",
        "index",
    }


def strange(settings: list[str]) -> list[str]:
    """What is said of keys that there are not."""
    draft = Draft(configs._parse_overrides(settings), ("proposer", "solver"), lambda place: (place, "the page"))
    draft.config()
    return list(draft.strange)


@pytest.mark.usefixtures("read_only")
@pytest.mark.parametrize(("name", "arguments", "code"), OURS)
def test_a_command_takes_what_the_page_types(
    name: str, arguments: list[str], code: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert name in COMMANDS
    for file, text in code.items():
        (tmp_path / file).write_text(text)
    if code:
        monkeypatch.chdir(tmp_path)
    given = [word for word in arguments if word not in ("...", "$@")]
    with pytest.raises(Parsed) as caught:
        importlib.import_module(f"launch.{name}").main(given)
    found = caught.value.found
    settings = [word for word in getattr(found, "overrides", []) if re.match(r"[\w.]+=", word)]
    assert strange(settings) == []
    config = getattr(found, "config", None)
    if config and "/" not in config and not config.endswith(".yaml") and not PLACEHOLDER.search(config):
        assert config in configs.names()


@pytest.mark.parametrize("block", every(WALKED), ids=lambda block: block.name)
def test_a_block_that_is_walked_is_bash(block: Block) -> None:
    rules = Rules.above(block)
    text = block.text if rules.skip else rules.applied(block.text, block.name)
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    for begins in rules.lines:
        assert any(command.startswith(begins) for command in commands(text)), begins


@pytest.mark.parametrize("block", every(WALKED, *SHOWN), ids=lambda block: block.name)
def test_files_of_ours_that_a_page_names_are_there(block: Block) -> None:
    named = re.findall(r"(?<![\w/.-])((?:launch|tests|configs)/[\w./-]+\.(?:sh|py|yaml))\b", block.text)
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_stale_commands_are_caught(read_only: None) -> None:
    """The two tests above can fail: an option, a key and a command that there are not."""
    for name, arguments in (("train", ["--dry"]), ("bank", ["runs/x", "--good"])):
        with pytest.raises(InputError):
            importlib.import_module(f"launch.{name}").main(arguments)
    assert len(strange(["solver.lr=1"])) == 1
    (found,) = typed("FOO=1 ssp train --config x steps=2 # and more ssp eval")
    assert found == ("train", ["--config", "x", "steps=2"])
    assert [name for name, _ in typed("ssp serve --index part0 & ssp eval; python -m launch.index --corpus x > y")] == [
        "serve",
        "eval",
        "index",
    ]


def test_commands_of_a_block() -> None:
    text = (
        "cat > a <<'END'\nx\n\ny \\\nEND\n# a comment\n\nssp a \\\n  b   # c\nfor x in 1 2; do\n  echo $x\ndone\nls\n"
    )
    assert commands(text) == [
        "cat > a <<'END'\nx\n\ny \\\nEND",
        "ssp a \\\n  b   # c",
        "for x in 1 2; do\n  echo $x\ndone",
        "ls",
    ]


HOURS = 3


@pytest.mark.long
@pytest.mark.timeout(HOURS * 3600)
def test_a_newcomer_gets_through_every_page() -> None:
    """With this environment's packages, so that nothing is installed; `python tests/bench/walk.py` alone installs too."""
    command = [sys.executable, str(ROOT / "tests" / "bench" / "walk.py"), "--venv", sys.prefix]
    done = subprocess.run(command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
