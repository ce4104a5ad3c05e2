"""The settings with which a run goes on: those with which it began, but for a few."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ssp.base.errors import hold, holding
from ssp.config.schema import Config

MAY_CHANGE = ("steps", "resume", "run", "save", "health", "placement", "ray", "telemetry")
"""Keys, and blocks of keys, that a resumed run may set anew: they do not change what is learned."""


def check_settings(file: Path, cfg: Config) -> None:
    """InputError when a setting other than `MAY_CHANGE` is not that of a run's config.yaml, and also
    `steps`, where a rate falls until these, and `save.every`, by which a league takes members."""
    from ssp.config.load import dotted

    now = dotted(cfg)
    then = _settings_of(file, cfg, now)
    path = file.parent
    learning = [cfg.block(role) for role in cfg.roles if cfg.block(role).policy != "frozen"]
    counts = set()
    if any(block.learner.schedule != "constant" for block in learning):
        counts.add("steps")
    if cfg.league.match != "self":
        counts.add("save.every")

    changed = []
    told = []
    for key in sorted({*then, *now}):
        may_change = key.split(".")[0] in MAY_CHANGE and key not in counts
        before, after = then.get(key), now.get(key)
        # What lies in a block stands by its own key; an empty one is as good as none.
        unset = before in (None, {}) and after in (None, {})
        if not (may_change or unset or before == after):
            changed.append(key)
            told.append(f"{key} was {before!r} and is now {after!r}")

    rule = f"a run continues with the settings it was started with, in {path}"
    step = "give the old values, or start a new run with resume=never"
    if "steps" in changed:
        rule += " (steps too, where learner.schedule=cosine falls until these)"
        step += f", which goes on from the policy with ROLE.model={path}/checkpoints/ROLE/vN"
    hold(not changed, rule, ", ".join(told), step)


def _settings_of(file: Path, cfg: Config, now: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with which a run was started, by dotted key. A key that an earlier
    version did not have was at its default; one that is gone since counts for nothing."""
    import yaml
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from ssp.config import gone
    from ssp.config.load import dotted, leaves

    odd = (
        yaml.YAMLError,
        OmegaConfBaseException,
        ValueError,
        AttributeError,
        RecursionError,
        OSError,
    )
    rule = "a run's config.yaml can be read"
    step = "restore it, or start a new run"
    with holding(odd, rule, lambda error: f"{file}: {' '.join(str(error).split())}", step):
        loaded = OmegaConf.to_container(OmegaConf.load(file))
        written = dict(leaves(cast(dict[str, Any], loaded)))

    settings = dotted(Config(game=cfg.game))
    for key, value in dotted(Config()).items():
        if key.startswith("game."):
            settings[key] = value
    settings |= written
    return {key: value for key, value in settings.items() if key in now or not gone.row(key)}
