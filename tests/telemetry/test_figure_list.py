"""The list of figures, and what is made from it."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from ssp.errors import InvariantError
from ssp.telemetry.figures import COUNTER, FIGURES, find
from ssp.telemetry.published import GRAFANA, documented, exported, grafana, main, tables

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_files_in_the_repository_are_what_the_list_gives(capsys):
    again = "next: python -m ssp.telemetry.published"
    assert GRAFANA.read_text() == grafana(), again
    page = (DOCS / "metrics.md").read_text()
    assert page == documented(page), again
    assert tables() in page and "## Alarms: `health.*`" in page
    main(["--grafana"])
    assert capsys.readouterr().out == grafana()


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


def test_the_dashboard_asks_for_series_that_there_are_and_for_no_histogram():
    made = json.loads(GRAFANA.read_text())
    panels = [panel for panel in made["panels"] if panel["type"] != "row"]
    asked = " ".join(panel["targets"][0]["expr"] for panel in panels)
    assert len(panels) == sum(1 for _ in FIGURES) and len({panel["id"] for panel in made["panels"]}) == len(
        made["panels"]
    )
    assert {name for figure in FIGURES if (name := exported(figure)) not in asked} == set()
    assert "_sum" not in asked and "_bucket" not in asked and "histogram" not in asked
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in made["panels"])
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in made["panels"]]
    assert len(set(places)) == len(places)
