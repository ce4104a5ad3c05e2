"""Rules for settings of the game: who asks, who learns when, what fills a batch, how long an episode
is, and what is judged and paid. What is checked: `ssp.game.referee.settings`."""

from collections.abc import Iterator
from pathlib import Path

from ssp.base.errors import hold
from ssp.base.extras import require
from ssp.base.gamespec import QUESTIONS
from ssp.base.services import JUDGE_KEY
from ssp.config import own
from ssp.config.engines import kinds
from ssp.config.role import COLDEST, LimitsConfig, RoleConfig
from ssp.config.rules import check_address, each_block, each_role
from ssp.config.schema import Config
from ssp.game import protocols, rewards
from ssp.game.rewards import proposer
from ssp.game.rewards.forms import TAGS
from ssp.game.rewards.options import takes
from ssp.game.world.files import OF_EXTRAS

WORLD_PROTOCOL = "mini"


def rows_are_those_of_the_game(cfg: Config) -> None:
    """A game about given questions is told where they are; any other game asks its own."""
    given = cfg.spec.rows == QUESTIONS
    rule = f"game.kind={cfg.game.kind} plays questions that its own roles ask"
    step = "leave game.questions out, or set game.kind=given"
    if given:
        rule = f"game.kind={cfg.game.kind} plays given questions"
        step = "add game.questions=dataset data.questions=FILE"
    fits = given == (cfg.game.questions != "proposer")
    hold(fits, rule, f"game.questions={cfg.game.questions}", step)


def questions_fill_batches(cfg: Config) -> None:
    """Given questions have a source and no proposer; who asks fills a batch with whole targets."""
    source = cfg.game.questions
    path = cfg.data.questions
    asks = source == "proposer"
    rule = "data.questions is read where questions are given"
    both = f"data.questions={path} with game.questions=proposer"
    step = "add game.questions=dataset or game.given=0.05, or leave data.questions out"
    hold(not (asks and path) or cfg.game.given > 0, rule, both, step)
    example = "world:train" if source == "dataset" else "runs/quickstart-001"
    rule = f"game.questions={source} plays what data.questions names"
    hold(asks or path, rule, "no data.questions", f"set it, for example data.questions={example}")
    rule = "a bank is an earlier run's folder, or what ssp bank exported of one"
    step = "name a run, or set game.questions=dataset for a world's questions"
    hold(source != "bank" or not path.startswith("world:"), rule, path, step)
    answerer = cfg.spec.answerer
    settings = [] if asks else _of_a_proposer(cfg)
    rule = f"game.questions={source} has one role, the {answerer}, and every question is played"
    step = (
        "leave that out, or give its default where a recipe sets it (game.batch=dummy); the learning"
        f" rate's warm-up is {answerer}.learner.warmup_steps"
    )
    hold(not settings, rule, ", ".join(settings), step)
    for role, block in cfg.blocks.items():
        if role != answerer:
            _asks_whole_targets(cfg, role, block)


def _of_a_proposer(cfg: Config) -> list[str]:
    """The settings of `cfg` that mean something only where somebody asks."""
    without = {
        f"game.batch={cfg.game.batch}": cfg.game.batch != "dummy",
        f"game.proposals={cfg.game.proposals}": cfg.game.proposals > 1,
    }
    for role, block in cfg.blocks.items():
        most = cfg.schedule.max_staleness[role]
        idle = role not in cfg.roles and not cfg.schedule.preset
        without[f"schedule.max_staleness.{role}={most}"] = idle and most > 0
        without[f"{role}.warmup_steps={block.warmup_steps}"] = block.warmup_steps > 0
    return [setting for setting, there in without.items() if there]


def _asks_whole_targets(cfg: Config, role: str, block: RoleConfig) -> None:
    """A batch is a number of whole targets; with resampling, all its questions are valid."""
    rule = "game.batch=resample trains on valid questions only, so a rejected one has no reward"
    reward = f"{role}.invalid_reward={block.invalid_reward:g}"
    free = cfg.game.batch != "resample" or block.invalid_reward == 0
    hold(free, rule, reward, "set it to 0, or use game.batch=dummy")
    each = cfg.game.proposals
    rule = f"{role}.batch is a multiple of game.proposals"
    batch = f"{block.batch} questions a round, {each} to a target"
    step = f"set {role}.batch={-(-block.batch // each) * each}"
    hold(block.batch % each == 0, rule, batch, step)


def worlds_are_here(cfg: Config) -> None:
    """Each world that data, a warm start or a rehearsal names is part of the core or of an installed extra."""
    data = cfg.data
    named = [data.corpus, data.targets, data.questions, cfg.warmup.data]
    for one in data.eval:
        named += [one.file, one.corpus]
    named += [block.rehearsal.data for block in cfg.blocks.values()]
    for path in named:
        if path in OF_EXTRAS:
            require(OF_EXTRAS[path], path)


def refill_fills_groups(cfg: Config) -> None:
    """Refill counts groups that teach something, and nothing else fills the same slots."""
    needy = [role for role in cfg.roles if cfg.block(role).min_groups]
    if cfg.game.refill == 1 and not needy:
        return
    role = cfg.spec.answerer
    refill = f"game.refill={cfg.game.refill}"
    if cfg.game.refill == 1:
        role = needy[0]
        refill = f"{role}.min_groups={cfg.block(role).min_groups}"
    learns = cfg.block(role).policy != "frozen"
    rule = f"{refill} fills a batch that the {role} learns from"
    hold(learns, rule, f"{role}.policy=frozen", "leave game.refill out")
    rule = f"{refill} fills the slots of invalid questions too, and trains on rejected ones"
    step = "set game.batch=dummy or a kind of replay, or leave game.refill out"
    fits = not cfg.game.batch.startswith("resample")
    hold(fits, rule, f"game.batch={cfg.game.batch}", step)


def someone_learns(cfg: Config) -> None:
    """At least one role learns. A role that warms up learns alone, so at most one does."""
    learns = any(cfg.block(role).policy != "frozen" for role in cfg.roles)
    policies = " ".join(f"{role}.policy=frozen" for role in cfg.roles)
    hold(learns, "at least one role learns", policies, "set them to own or shared, or use ssp eval")
    warming = []
    for role in cfg.roles:
        steps = cfg.block(role).warmup_steps
        if steps > 0:
            warming.append(f"{role}.warmup_steps={steps}")
    rule = "one role at most learns alone at first"
    step = "set one of them to 0 (the learning rate's warm-up is <role>.learner.warmup_steps)"
    hold(len(warming) <= 1, rule, " ".join(warming), step)


@each_role
def who_warms_up_learns(cfg: Config, role: str) -> None:
    """A role that learns alone at first is not frozen before others learn."""
    block = cfg.block(role)
    learns = block.policy != "frozen" and not 0 < block.freeze_after < block.warmup_steps
    rule = f"{role}.warmup_steps leaves learning to the {role} alone, so it learns up to that step"
    frozen = f"policy={block.policy}, freeze_after={block.freeze_after}"
    step = f"set {role}.warmup_steps=0, or freeze it later"
    given = f"warmup_steps={block.warmup_steps} with {frozen}"
    hold(learns or block.warmup_steps == 0, rule, given, step)


@each_role
def protocol_exists(cfg: Config, role: str) -> None:
    """`protocol` is a shipped id or a readable file, and knows the roles that play. A policy whose
    own search is answered by itself goes on in its turn."""
    protocol = protocols.get(cfg.protocol).asking(cfg.spec.prompts)
    for play in cfg.spec.plays.values():
        if role in play.roles:
            protocol.role(play.prompt)
    kind = cfg.block(role).search.kind
    rule = f"{role}.search.kind is retriever where a search ends the turn (protocol {protocol.id})"
    step = "set protocol=ssrl, or another one with information in the policy's own turn"
    hold(not protocol.observation_form.as_turn or kind == "retriever", rule, kind, step)


def agents_play(cfg: Config) -> None:
    """An agent plays only for who answers, on an engine that takes each turn by itself, and with a
    reward that reads its answer."""
    role = cfg.spec.answerer
    block = cfg.block(role)
    for other in cfg.blocks:
        agent = "" if other == role else cfg.block(other).agent
        step = f"leave {other}.agent out; set {role}.agent"
        hold(not agent, f"an agent plays the {role}", f"{other}.agent={agent}", step)
    if not block.agent:
        return
    engine, place = block.engine, block.search.kind
    fits = engine.traits.agents and place == "retriever"
    rule = f"{role}.agent plays with engine.kind={kinds('agents')}, and search.kind=retriever"
    hold(fits, rule, f"{engine.kind}, {place}", f"set these, or leave {role}.agent out")
    reward = block.reward
    shipped = rewards.names()
    able = [name for name in shipped if takes(rewards.get(name), "answer")]
    reads = reward in able or reward not in shipped
    rule = (
        f"an agent hands in an answer, so {role}.reward is one that reads it, and not the form of a"
        " response"
    )
    step = f"set {role}.reward to one of {', '.join(able)}"
    step += ", or a function of your own with the parameter answer"
    hold(reads, rule, f"{role}.agent with {role}.reward={reward}", step)


@each_role
def actions_are_sampled(cfg: Config, role: str) -> None:
    """A policy gradient needs sampled actions: greedy rollouts have no exploration and no usable
    log-probs."""
    block = cfg.block(role)
    sampled = block.policy == "frozen" or block.sampling.temperature != 0
    rule = f"{role}.sampling.temperature is above 0 for a role that learns"
    hold(sampled, rule, "0", "set it to 1.0")


def temperatures_are_usable(cfg: Config) -> None:
    """A temperature near 0 overflows the softmax, and would make every episode void."""
    given = {"eval.temperature": cfg.eval.temperature}
    for name, block in {"defaults": cfg.defaults, **cfg.blocks}.items():
        given[f"{name}.sampling.temperature"] = block.sampling.temperature
    for key, value in given.items():
        rule = f"{key} is 0 (greedy) or at least {COLDEST}"
        step = f"set {key}=0 or {COLDEST}"
        hold(not 0 < value < COLDEST, rule, value, step)


@each_block
def stages_follow_each_other(cfg: Config, role: str) -> None:
    """Limits change at later and later updates. Before the first stage the block's own limits
    hold."""
    stages = cfg.block(role).limits.stages
    for number, stage in enumerate(stages):
        where = f"{role}.limits.stages[{number}]"
        rule = f"{where} has turn_tokens or total_tokens above 0 (0: as before)"
        limits = f"turn_tokens={stage.turn_tokens}, total_tokens={stage.total_tokens}"
        step = "set one of them, or leave the stage out"
        hold(stage.turn_tokens or stage.total_tokens, rule, limits, step)
    steps = [stage.step for stage in stages]
    rule = f"{role}.limits.stages come in the order of their steps, from update 2 on"
    follow = steps == sorted(set(steps)) and all(step >= 2 for step in steps)
    hold(follow, rule, f"steps {', '.join(map(str, steps))}", "sort them")


@each_role
def turn_fits_episode(cfg: Config, role: str) -> None:
    """One turn must fit into the episode."""
    for where, limits in _stages(cfg, role):
        turn = limits.turn_tokens
        total = limits.total_tokens
        rule = f"{where}.turn_tokens is below {where}.total_tokens"
        hold(turn < total, rule, f"{turn} against {total}", "raise total_tokens")


@each_block
def episode_fits_its_parts(cfg: Config, role: str) -> None:
    """The longest episode that the other limits allow must fit, or the question would run out of
    context (Search-R1). An invalid turn counts as a search."""
    for where, limits in _stages(cfg, role):
        total = limits.total_tokens
        turns = limits.turn_tokens * (limits.searches + 1)
        observed = limits.observation_tokens * limits.searches
        needed = limits.prompt_tokens + turns + observed
        parts = "prompt_tokens + turn_tokens x (searches + 1) + observation_tokens x searches"
        rule = f"{where}: total_tokens is at least {parts}, where overflow=stop"
        sums = f"{limits.prompt_tokens} + {turns} + {observed} = {needed}"
        step = f"set {where}.total_tokens={needed}, or {role}.limits.overflow=drop"
        fits = limits.overflow != "stop" or total >= needed
        hold(fits, rule, f"{total} against {sums}", step)


def _stages(cfg: Config, role: str) -> Iterator[tuple[str, LimitsConfig]]:
    """Key and limits of each stage of a role, its block's own limits first."""
    limits = cfg.block(role).limits
    yield f"{role}.limits", limits.at(0)
    for number, stage in enumerate(limits.stages):
        yield f"{role}.limits.stages[{number}]", limits.at(stage.step)


def natural(protocol: str) -> bool:
    """Whether the questions of a shipped protocol are in natural language; False for a user's own
    file, as nobody knows."""
    return protocol != WORLD_PROTOCOL and not protocol.endswith((".yaml", ".yml"))


def judge_can_answer(cfg: Config) -> None:
    """A judge's endpoint that is asked has a format for its replies, a model, and an address
    without user and password."""
    guides = {block.guide for block in cfg.blocks.values()}
    if cfg.judge.kind != "llm" and "judge" not in {cfg.referee.verifier, *guides}:
        return
    form = cfg.judge.format
    there = not cfg.judge.scores or form == "score" or Path(form).is_file()
    rule = "judge.format is word, json, thought, score, or a text file, which is a rubric"
    hold(there, rule, form or "''", "set it to one of these, or correct the path")
    rule = "judge.model is the endpoint's name of its model"
    asks = f"judge.kind={cfg.judge.kind}, referee.verifier={cfg.referee.verifier}"
    named = ", ".join(sorted(guides - {""}))
    given = f"{asks}, guide={named}, and no judge.model"
    hold(cfg.judge.model, rule, given, "set judge.model=...")
    served = "judge.url=http://127.0.0.1:5000/v1, which ssp serve --judge MODEL starts"
    check_address("judge.url", cfg.judge.url, f"e.g. {served}; its key is in {JUDGE_KEY}")


@each_role
def rewards_exist(cfg: Config, role: str) -> None:
    """Each reward is a known name or an importable function that takes the given options."""
    block = cfg.block(role)
    if own.sealed(block.reward):
        return
    if role == cfg.spec.asker:
        proposer.check(block.reward, block.reward_options, role)
    else:
        rewards.check(block.reward, block.reward_options, f"{role}.reward_options")


@each_role
def forms_are_read_in_their_tags(cfg: Config, role: str) -> None:
    """A reward for the form of a response reads the tags that the protocol writes."""
    name = cfg.block(role).reward
    written = protocols.get(cfg.protocol).kinds
    read = []
    for tag, behind in TAGS.get(name, {}).items():
        if not behind or behind in written:
            read.append(tag)
    missing = [tag for tag in read if tag not in written]
    rule = f"{role}.reward={name} reads the tags {', '.join(read)}"
    value = f"protocol={cfg.protocol} has no {', '.join(missing)}"
    hold(not missing, rule, value, f"take a protocol that has them, or set {role}.reward=em")


def warnings(cfg: Config) -> list[str]:
    """A line for each setting that is allowed but deserves a second thought."""
    lines = []
    role, asker = cfg.spec.answerer, cfg.spec.asker
    block = cfg.block(role)
    reward = rewards.get(block.reward)
    hears = takes(reward, "judged") or takes(reward, "score")
    if cfg.judge.kind != "exact" and not hears:
        lines.append(
            f"{role}.reward={block.reward} does not hear the judge of"
            f" judge.kind={cfg.judge.kind}, which decides the win rate alone. {role}.reward=ssp"
            " pays what the judge accepts."
        )
    if block.limits.searches * block.reward_options.get(rewards.SEARCH_COST, 0.0) > 1:
        lines.append(f"{role}.reward_options.search_cost may cost a right attempt more than 1.")
    if block.agent and not block.reward.startswith("ssp.") and not takes(reward, "answer"):
        lines.append(
            f"{role}.reward={block.reward} does not take the parameter answer, which is what an"
            " agent hands in: it reads a conversation in the model's chat template."
        )
    penalty = cfg.block(asker).invalid_reward if asker else 0.0
    if penalty < 0:
        lines.append(
            f"{asker}.invalid_reward={penalty:g} punishes invalid questions. In SSP's paper"
            " (figure 5) a penalty of -0.1 collapsed training: nearly no question stayed valid."
            " Its recipe pays 0."
        )
    return lines
