"""Recipes have their systems' values; what differs is on the page, with its reason."""

from __future__ import annotations

import pytest
import recipes

from ssp.config.load import names

TOLD = recipes.told()


@pytest.mark.parametrize("name", recipes.SCRIPTS)
def test_what_differs_from_the_systems_effective_configuration_is_on_the_page(name: str) -> None:
    found = {key: tuple(map(str, both)) for key, both in recipes.differences(name).items()}
    assert found == {key: both for (recipe, key), both in TOLD.items() if recipe == name}


def test_every_recipe_of_a_system_is_compared_and_the_facts_are_those_of_a_published_script() -> None:
    own = ("quickstart", "simulated", "gpu", "english")
    own += ("dr-zero", "r-zero", "spice", "searchmaster", "cross-fit")  # of papers; scripts name few of their values
    assert set(recipes.SCRIPTS) == {name for name in names() if not name.startswith(own)}
    assert set(recipes.SCRIPTS.values()) <= set(recipes.PUBLISHED)


def test_a_lost_value_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As each of these was once: an entropy bonus, a dual clip, a number of steps."""
    lost = {
        "research-qwen2.5-7b": "solver.entropy_coef",
        "ssrl-qwen2.5-7b": "solver.clip_dual",
        "ema-pg-qwen2.5-3b": "steps",
    }
    read = recipes.recipe
    for name, key in lost.items():
        monkeypatch.setattr(recipes, "recipe", lambda asked, key=key: {**read(asked), key: 0})
        assert key in recipes.differences(name)
