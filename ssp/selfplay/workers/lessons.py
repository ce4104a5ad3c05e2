"""The traces that a role learns again in every update (`{role}.rehearsal`), read in one way by the
check before a run and by each rank of its learner."""

from pathlib import Path

from ssp.base import models
from ssp.base.episode import ROLES, Episode, Outcome
from ssp.base.errors import InputError, hold
from ssp.config.schema import Config
from ssp.game.world import files
from ssp.learning.warmup import traces
from ssp.selfplay.workers import build

AT_ONCE = 256
"""Traces that are played back at a time: whole episodes take much memory, their logs little."""


def place(cfg: Config, role: str) -> Path:
    """The file or the run's folder that `role` rehearses from. A world's file is made where it is
    not there yet."""
    data = cfg.block(role).rehearsal.data
    return models.resolve(files.resolve(data, "traces"), traces.KEY).absolute()


def rehearses(cfg: Config, role: str) -> bool:
    """Whether the updates of `role` have traces beside them."""
    block = cfg.block(role)
    return block.policy != "frozen" and block.rehearsal.share > 0


def read(cfg: Config, role: str, folder: Path) -> list[Episode]:
    """The token logs of the traces for `role`, of those prompts that it is given in the game, in the
    tokens of the policy in `folder`; in the order of the file, or of a run's ids. Those for a role
    `alone` are left out where it shares its policy.

    InputError: no such file or run, a line that is no trace, none for this role, one that play would
    not have ended with a final answer (as of another protocol), or one in words that the policy
    does not know."""
    block = cfg.block(role)
    key = traces.KEY
    data = place(cfg, role)
    renderer = build.renderer(cfg, role, folder)
    prompts = [prompt for prompt in cfg.spec.prompts_of(role) if prompt in ROLES]
    rule = f"a rehearsal is for a role with the prompt {' or '.join(ROLES)}"
    hold(prompts, rule, role, f"set {role}.rehearsal.share=0")
    if data.is_dir():
        episodes = traces.of_run(data, dict.fromkeys(prompts, renderer), key)
        longest = max(len(positions) for one in episodes for positions, _ in one.log.views())
        rule = f"an episode of {key} fits {role}.limits.total_tokens={block.limits.longest}"
        hold(longest <= block.limits.longest, rule, f"{longest} tokens in {data}", "raise it")
        return [_log(episode, role) for episode in episodes]

    there = traces.read(data, key)
    logs = []
    limits = block.limits.at(None)
    try:
        for prompt in prompts:
            mine = [trace for trace in there if trace.role == prompt]
            if block.policy == "shared":
                mine = [trace for trace in mine if not trace.alone]
            for at in range(0, len(mine), AT_ONCE):
                some = mine[at : at + AT_ONCE]
                for trace in some:
                    build.check_words(renderer.tokenizer, trace.turns)
                played = traces.episodes(some, renderer, limits, cfg.retriever.topk)
                logs += [_log(episode, role) for episode in played]
    except InputError as error:
        raise InputError(error.rule, f"{data}, {error.found}", error.next_step) from error
    rule = f"{key} holds traces of: {', '.join(prompts)}, for {role}.rehearsal"
    hold(logs, rule, f"only of: {traces.kinds(there)}", "give another file")
    return logs


def _log(episode: Episode, role: str) -> Episode:
    """What is learned of an episode: its tokens, as bytes."""
    episode.log.packed()
    return Episode(episode.id, episode.game, role, 0, log=episode.log, outcome=Outcome.SCORED)
