"""The list of figures, and what is made from it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from itertools import product
from pathlib import Path

import pytest

from launch import board
from ssp.base.errors import InputError, InvariantError
from ssp.telemetry.figures import COUNTER, FIGURES, FIRST, exported, find, grafana
from tests.figures import DASHBOARD, documented, tables

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_page_is_what_the_list_gives():
    again = "next: python tests/figures.py"
    page = (DOCS / "metrics.md").read_text()
    assert page == documented(page), again
    assert tables() in page and "## Alarms: `health.*`" in page


def test_the_dashboard_that_is_shipped_begins_with_the_ten_of_the_page():
    assert DASHBOARD.read_text() == grafana(), "next: python tests/figures.py"
    section, *panels = json.loads(grafana())["panels"]
    assert section["type"] == "row" and panels[10]["type"] == "row"
    shown = [panel["title"].removesuffix(" per second") for panel in panels[:10]]
    table = (DOCS / "metrics.md").read_text().partition("## Ten to look at first")[2].partition("##")[0]
    assert shown == list(FIRST) == re.findall(r"^\|`([^`]+)`\|", table, re.M)


def test_the_command_writes_the_dashboard_once(tmp_path, capsys):
    file = tmp_path / "ssp.json"
    assert board.main(["--grafana", str(file)]) == 0 and str(file) in capsys.readouterr().out
    assert file.read_text() == grafana()
    for wrong in (["--grafana", str(file)], ["--grafana", str(tmp_path / "no" / "ssp.json")], []):
        with pytest.raises(InputError):
            board.main(wrong)


def test_a_name_means_one_thing_and_a_series_has_one_form():
    seen = [(role, figure.name) for figure in FIGURES for role in figure.roles]
    assert len(seen) == len(set(seen))
    forms = defaultdict(set)
    for figure in FIGURES:
        forms[figure.series].add((figure.name, figure.tags, figure.kind))
    assert {name for name, found in forms.items() if len(found) > 1} == set()
    for figure in FIGURES:
        assert figure.text.isascii() and figure.text, "Ray takes ASCII only"
        assert exported(figure).endswith("_total") == (figure.kind == COUNTER)


@pytest.mark.parametrize(
    ("name", "role", "series", "parts"),
    [
        ("reward/mean", "solver", "ssp_reward_mean", {}),
        ("reward/mean", "a role of another game", "ssp_reward_mean", {}),
        ("void/retriever_down", "game", "ssp_void", {"cause": "retriever_down"}),
        ("reject/solver_malformed", "game", "ssp_reject", {"rule": "solver_malformed"}),
        ("time/idle_share_learner_solver", "game", "ssp_time_idle_share", {"actors": "learner_solver"}),
        ("time/idle", "game", "ssp_time_idle", {}),
        ("eval/accuracy_2hop", "eval", "ssp_eval_accuracy_hop", {"hops": "2"}),
        ("eval/accuracy_mean123", "eval", "ssp_eval_accuracy_mean123", {}),
        ("eval/train/accuracy_2hop", "eval", "ssp_eval", {"set": "train", "figure": "accuracy_2hop"}),
        ("eval/anchor_stderr", "eval", "ssp_eval_anchor", {"figure": "stderr"}),
        ("step", "eval", "ssp_step", {}),
    ],
)
def test_a_figure_is_found_by_its_name_in_metrics_jsonl(name, role, series, parts):
    figure, found = find(name, role)
    assert (figure.series, found) == (series, parts) and figure.tags == ("role", "run", *parts)


def test_a_figure_that_is_not_listed_is_a_bug():
    for name, role in (("new/figure", "game"), ("reward/mean", "game"), ("void/", "game")):
        with pytest.raises(InvariantError, match="add it there"):
            find(name, role)


def test_the_dashboard_is_one_that_grafana_imports():
    """Panels have ids of their own and do not lie upon each other; each has a source, and a query whose brackets close."""
    made = json.loads(grafana())
    assert made["title"] and re.fullmatch(r"[A-Za-z0-9_-]{1,40}", made["uid"])
    assert "id" not in made  # an id is of one Grafana's database: with it, an import looks for a dashboard to replace
    variables = {variable["name"] for variable in made["templating"]["list"]}
    ids = [panel["id"] for panel in made["panels"]]
    assert len(set(ids)) == len(ids)
    taken = set()
    for place in (panel["gridPos"] for panel in made["panels"]):
        cells = set(product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])))
        assert cells and not cells & taken and place["x"] + place["w"] <= 24
        taken |= cells
    for panel in _charts(made):
        assert panel["datasource"]["uid"] == "${datasource}"
        (target,) = panel["targets"]
        assert all(target["expr"].count(one) == target["expr"].count(other) for one, other in ("()", "[]", "{}"))
        assert set(re.findall(r"\$(\w+)", target["expr"])) <= variables and "{{run}} {{role}}" in target["legendFormat"]


def _charts(made):
    return [panel for panel in made["panels"] if panel["type"] != "row"]
