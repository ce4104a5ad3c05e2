"""The picture of the games that ship is as their declarations say, and a game of one's own can be drawn."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import gamepicture

from ssp.config import games

OWN = Path(__file__).parents[1] / "selfplay" / "games" / "twosolvers.py"


def said(svg: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")]


def test_the_picture_is_as_the_declarations_say() -> None:
    assert gamepicture.PICTURE.read_text(encoding="utf-8") == gamepicture.shipped(), "run python tests/gamepicture.py"


def test_every_stage_of_a_game_stands_in_it_in_order() -> None:
    for name in games.SHIPPED:
        spec = games.find(name)
        bold = re.findall(r'font-weight="bold">([^<]+)<', gamepicture.picture({name: spec}))
        assert bold[1:] == [spec.rows, *(stage.name for stage in spec.stages)]


def test_a_game_of_ones_own_is_drawn(tmp_path: Path) -> None:
    line = [sys.executable, gamepicture.__file__, f"{OWN}:GAME", str(tmp_path / "own.svg")]
    subprocess.run(line, check=True)
    assert "first" in " ".join(said((tmp_path / "own.svg").read_text(encoding="utf-8")))
