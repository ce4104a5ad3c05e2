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


def place(cfg: Config, role: str) -> Path:
    """The file or the run's folder that `role` rehearses from. A world's file is made where it is
    not there yet."""
    data = cfg.block(role).rehearsal.data
    return models.resolve(files.resolve(data, "traces"), f"{role}.rehearsal.data").absolute()


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
    key = f"{role}.rehearsal.data"
    data = place(cfg, role)
    renderer = build.renderer(cfg, role, folder)
    prompts = [prompt for prompt in cfg.spec.prompts_of(role) if prompt in ROLES]
    rule = f"{key} is for a role with the prompt {' or '.join(ROLES)}"
    hold(prompts, rule, role, f"set {role}.rehearsal.share=0")
    if data.is_dir():
        episodes = traces.of_run(data, dict.fromkeys(prompts, renderer), key)
        longest = max(len(positions) for one in episodes for positions, _ in one.log.views())
        rule = f"an episode of {key} fits {role}.limits.total_tokens={block.limits.longest}"
        hold(longest <= block.limits.longest, rule, f"{longest} tokens in {data}", "raise it")
    else:
        there = traces.read(data, key)
        wanted = [trace for trace in there if block.policy != "shared" or not trace.alone]
        episodes = []
        limits = block.limits.at(None)
        try:
            for prompt in prompts:
                mine = [trace for trace in wanted if trace.role == prompt]
                for trace in mine:
                    build.check_words(renderer.tokenizer, trace.turns)
                episodes += traces.episodes(mine, renderer, limits, cfg.retriever.topk)
        except InputError as error:
            raise InputError(error.rule, f"{data}, {error.found}", error.next_step) from error
        rule = f"{key} holds traces of: {', '.join(prompts)}"
        hold(episodes, rule, f"only of: {traces.kinds(there)}", "give another file")
    logs = []
    for episode in episodes:
        episode.log.packed()
        log = Episode(episode.id, episode.game, role, 0, log=episode.log, outcome=Outcome.SCORED)
        logs.append(log)
    return logs
