"""The model of who verifies questions."""

from pathlib import Path

from ssp.base import models
from ssp.base.errors import hold
from ssp.config.schema import Config
from ssp.engines.folder import ModelFolder
from ssp.selfplay.workers import build


def folder(cfg: Config, start: Path) -> Path:
    """The model of who verifies questions: `referee.model`, or the `start` of who answers.
    InputError for a folder that is not here, or is of another protocol."""
    if not cfg.referee.model:
        return start
    own = models.folder(cfg.referee.model, "referee.model")
    build.check_protocol(own, cfg.protocol)
    return own


def check(cfg: Config) -> None:
    """InputError when `referee.model` cannot be loaded, or a verifier's prompt is longer than its
    context."""
    if not cfg.referee.model:
        return
    own = folder(cfg, Path())
    model = ModelFolder(own)
    proof = cfg.referee.prompt_tokens + cfg.referee.answer_tokens
    rule = "a verifier's prompt and answer are at most the context of referee.model"
    step = "lower referee.prompt_tokens, or take a model with a longer context"
    fits = not model.context or proof <= model.context
    hold(fits, rule, f"{proof} tokens against {model.context} in {own}", step)
    build.tokenizer(own)
