"""Which settings of the game may stand together: who asks, who learns when, what fills a batch; how
long an episode is; what is checked, judged and paid."""

from collections.abc import Iterator
from pathlib import Path

from ssp.base.errors import InputError, hold, refuse
from ssp.base.extras import require
from ssp.base.gamespec import QUESTIONS
from ssp.base.services import JUDGE_KEY
from ssp.config import own
from ssp.config.role import COLDEST, LimitsConfig, RoleConfig
from ssp.config.rules import check_address, each_block, each_role
from ssp.config.schema import Config
from ssp.game import protocols, rewards
from ssp.game.referee.rules import RULES as KNOWN
from ssp.game.referee.rules import least_searches
from ssp.game.rewards import proposer
from ssp.game.rewards.options import takes
from ssp.game.world.files import OF_EXTRAS

WORLD_PROTOCOL = "mini"
WORLD_EVIDENCE = ("verbatim", "chain")
SSP_RULES = "empty,too_short,too_long,too_few_words,leakage,no_evidence,no_search,repeated_query"


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
    """Given questions are read from `data.questions`, and nothing is asked of a proposer then; a
    batch is of whole targets, and with resampling of valid questions."""
    source, path = cfg.game.questions, cfg.data.questions
    asks, found = source == "proposer", f"data.questions={path} with game.questions=proposer"
    step = "add game.questions=dataset, or leave data.questions out"
    hold(not (asks and path), "data.questions is read where questions are given", found, step)
    example = "world:train" if source == "dataset" else "runs/quickstart-001"
    rule = f"game.questions={source} plays what data.questions names"
    hold(asks or path, rule, "no data.questions", f"set it, for example data.questions={example}")
    rule = "a bank is an earlier run's folder, or what ssp bank exported of one"
    step = "name a run, or set game.questions=dataset for a world's questions"
    hold(source != "bank" or not path.startswith("world:"), rule, path, step)
    answerer = cfg.spec.answerer
    rule = f"game.questions={source} has one role, the {answerer}, and every question is played"
    step = f"leave that out (the learning rate's warm-up is {answerer}.learner.warmup_steps)"
    settings = [] if asks else _of_a_proposer(cfg)
    hold(not settings, rule, ", ".join(settings), step)
    for role, block in cfg.blocks.items():
        if role != answerer:
            _asks_whole_targets(cfg, role, block)


def _of_a_proposer(cfg: Config) -> list[str]:
    """Settings that mean something only where somebody asks."""
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
    rule = "game.batch=resample trains on valid questions only, so a rejected one has no reward"
    found = f"{role}.invalid_reward={block.invalid_reward:g}"
    free = cfg.game.batch != "resample" or block.invalid_reward == 0
    hold(free, rule, found, "set it to 0, or use game.batch=dummy")
    each = cfg.game.proposals
    found = f"{block.batch} questions a round, {each} to a target"
    step = f"set {role}.batch={-(-block.batch // each) * each}"
    hold(block.batch % each == 0, f"{role}.batch is a multiple of game.proposals", found, step)


def worlds_are_here(cfg: Config) -> None:
    """A world that the data, or a warm start, names is of the core, or of an extra that is installed."""
    data = cfg.data
    named = [data.corpus, data.targets, data.questions, cfg.warmup.data]
    for one in data.eval:
        named += [one.file, one.corpus]
    for path in named:
        if path in OF_EXTRAS:
            require(OF_EXTRAS[path], path)


def refill_fills_groups(cfg: Config) -> None:
    """Refill counts groups that teach something, and nothing else fills the same slots."""
    needy = [role for role in cfg.roles if cfg.block(role).min_groups]
    if cfg.game.refill == 1 and not needy:
        return
    role, refill, batch = cfg.spec.answerer, f"game.refill={cfg.game.refill}", cfg.game.batch
    if cfg.game.refill == 1:
        role = needy[0]
        refill = f"{role}.min_groups={cfg.block(role).min_groups}"
    rule, found = f"{refill} fills a batch that the {role} learns from", f"{role}.policy=frozen"
    hold(cfg.block(role).policy != "frozen", rule, found, "leave game.refill out")
    rule = f"{refill} fills the slots of invalid questions too, and trains on rejected ones"
    step = "set game.batch=dummy, or leave game.refill out"
    hold(batch == "dummy", rule, f"game.batch={batch}", step)


def someone_learns(cfg: Config) -> None:
    """One role at least learns; while a role warms up, it alone does, so only one can."""
    learns = any(cfg.block(role).policy != "frozen" for role in cfg.roles)
    found = " ".join(f"{role}.policy=frozen" for role in cfg.roles)
    hold(learns, "at least one role learns", found, "set them to own or shared, or use ssp eval")
    warming = [role for role in cfg.roles if cfg.block(role).warmup_steps > 0]
    found = " ".join(f"{role}.warmup_steps={cfg.block(role).warmup_steps}" for role in warming)
    step = "set one of them to 0 (the learning rate's warm-up is <role>.learner.warmup_steps)"
    hold(len(warming) <= 1, "one role at most learns alone at first", found, step)


@each_role
def who_warms_up_learns(cfg: Config, role: str) -> None:
    """A role that learns alone at first learns until then."""
    block = cfg.block(role)
    learns = block.policy != "frozen" and not 0 < block.freeze_after < block.warmup_steps
    rule = f"{role}.warmup_steps leaves learning to the {role} alone, so it learns up to that step"
    found = (
        f"warmup_steps={block.warmup_steps} with policy={block.policy},"
        f" freeze_after={block.freeze_after}"
    )
    step = f"set {role}.warmup_steps=0, or freeze it later"
    hold(learns or block.warmup_steps == 0, rule, found, step)


@each_role
def protocol_exists(cfg: Config, role: str) -> None:
    """`protocol` is a shipped id or a readable file, knows the roles that play, and lets a policy
    that is to answer itself go on after its search."""
    protocol = protocols.get(cfg.protocol).asking(cfg.spec.prompts)
    for play in cfg.spec.plays.values():
        if role in play.roles:
            protocol.role(play.prompt)
    kind = cfg.block(role).search.kind
    rule = f"{role}.search.kind is retriever where a search ends the turn (protocol {protocol.id})"
    step = "set protocol=ssrl, or another one with information in the policy's own turn"
    hold(not protocol.observation_form.as_turn or kind == "retriever", rule, kind, step)


def agents_play(cfg: Config) -> None:
    """An agent plays who answers, on an engine that takes each turn by itself, over a model with
    messages."""
    role, block = cfg.spec.answerer, cfg.block(cfg.spec.answerer)
    for other in cfg.blocks:
        agent = cfg.block(other).agent
        step = f"leave {other}.agent out; set {role}.agent"
        hold(
            other == role or not agent, f"an agent plays the {role}", f"{other}.agent={agent}", step
        )
    if not block.agent:
        return
    kind, place = block.engine.kind, block.search.kind
    fits = kind in ("torch", "vllm", "endpoint") and place == "retriever"
    rule = f"{role}.agent plays with engine.kind torch, vllm or endpoint, and search.kind=retriever"
    hold(fits, rule, f"{kind}, {place}", f"set these, or leave {role}.agent out")
    reward = block.reward
    reads = reward not in rewards.names() or takes(rewards.get(reward), "answer")
    rule = (
        f"an agent hands in an answer, so {role}.reward is one that reads it, and not the form of a"
        " response"
    )
    able = [name for name in rewards.names() if takes(rewards.get(name), "answer")]
    step = (
        f"set {role}.reward to one of {', '.join(able)}, or a function of your own with the"
        " parameter answer"
    )
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
    """A temperature near 0 overflows the softmax, which would make every episode void."""
    given = {"eval.temperature": cfg.eval.temperature}
    for name, block in {"defaults": cfg.defaults, **cfg.blocks}.items():
        given[f"{name}.sampling.temperature"] = block.sampling.temperature
    for key, value in given.items():
        rule, step = f"{key} is 0 (greedy) or at least {COLDEST}", f"set {key}=0 or {COLDEST}"
        hold(not 0 < value < COLDEST, rule, value, step)


@each_block
def stages_follow_each_other(cfg: Config, role: str) -> None:
    """Limits change at later and later updates: those before the first stage are the block's
    own."""
    stages = cfg.block(role).limits.stages
    for number, stage in enumerate(stages):
        rule = (
            f"{role}.limits.stages[{number}] has turn_tokens or total_tokens above 0 (0: as before)"
        )
        found = f"turn_tokens={stage.turn_tokens}, total_tokens={stage.total_tokens}"
        step = "set one of them, or leave the stage out"
        hold(stage.turn_tokens or stage.total_tokens, rule, found, step)
    steps = [stage.step for stage in stages]
    rule = f"{role}.limits.stages come in the order of their steps, from update 2 on"
    follow = steps == sorted(set(steps)) and all(step >= 2 for step in steps)
    hold(follow, rule, f"steps {', '.join(map(str, steps))}", "sort them")


@each_role
def turn_fits_episode(cfg: Config, role: str) -> None:
    """One turn must fit into the episode."""
    for where, limits in _stages(cfg, role):
        total = limits.total_tokens
        rule = f"{where}.turn_tokens is below {where}.total_tokens"
        found = f"{limits.turn_tokens} against {total}"
        hold(limits.turn_tokens < total, rule, found, "raise total_tokens")


@each_block
def episode_fits_its_parts(cfg: Config, role: str) -> None:
    """The longest episode that the other limits allow must fit, or the question would run out of
    context (Search-R1). An invalid turn counts as a search."""
    for where, limits in _stages(cfg, role):
        turns = limits.turn_tokens * (limits.searches + 1)
        observed = limits.observation_tokens * limits.searches
        needed = limits.prompt_tokens + turns + observed
        parts = "prompt_tokens + turn_tokens x (searches + 1) + observation_tokens x searches"
        rule = f"{where}: total_tokens is at least {parts}, unless overflow=drop"
        found = f"{limits.total_tokens} against {limits.prompt_tokens} + {turns} + {observed} = {needed}"
        step = f"set {where}.total_tokens={needed}, or {role}.limits.overflow=drop"
        hold(limits.overflow != "stop" or limits.total_tokens >= needed, rule, found, step)


def _stages(cfg: Config, role: str) -> Iterator[tuple[str, LimitsConfig]]:
    """Key and limits of each stage of a role, its block's own limits first."""
    limits = cfg.block(role).limits
    yield f"{role}.limits", limits.at(0)
    for number, stage in enumerate(limits.stages):
        yield f"{role}.limits.stages[{number}]", limits.at(stage.step)


def natural(protocol: str) -> bool:
    """Whether a shipped protocol's questions are in natural language; what a user's own file asks
    nobody knows."""
    return protocol != WORLD_PROTOCOL and not protocol.endswith((".yaml", ".yml"))


def proposals_can_be_checked(cfg: Config) -> None:
    """The referee's settings matter where somebody proposes: its rules exist, each once; evidence
    has a verifier (law 6), and speaks its language; the searches that a question needs are
    allowed."""
    role = cfg.spec.asker
    if not cfg.spec.refereed:
        return
    rules, asker = cfg.referee.rules, cfg.block(role)
    step = f"use some of {', '.join(KNOWN)}"
    for rule in rules:
        hold(rule in KNOWN, "referee.rules lists ids of the referee's rules", rule, step)
    once = len(set(rules)) == len(rules)
    step = "remove the repeated one"
    hold(once, "referee.rules lists each rule once", ", ".join(rules), step)
    verifier, evidence = cfg.referee.verifier, cfg.referee.evidence
    rule = "referee.evidence checks what the verifier quotes, so it needs a verifier"
    found = f"referee.verifier=none with referee.evidence={evidence}"
    step = "set referee.verifier=frozen, or add referee.evidence=none"
    hold(verifier != "none" or evidence == "none", rule, found, step)
    _verifier_is_asked(cfg)
    refuse(_of_another_language(cfg, role))
    fewest, most = least_searches(cfg.referee), asker.limits.searches
    rule = f"{role}.limits.searches is at least {fewest}, as referee.rules ask for"
    step = f"set {role}.limits.searches={fewest}, or leave such a rule out"
    hold(fewest <= most, rule, str(most), step)


def _verifier_is_asked(cfg: Config) -> None:
    """What is said of a verifier is said of one that there is, and can be had."""
    referee = cfg.referee
    rule = "as many answers of the verifier as are needed are drawn"
    found = f"referee.needed={referee.needed} with referee.samples={referee.samples}"
    step = f"set referee.samples={referee.needed}, or lower referee.needed"
    hold(referee.needed <= referee.samples, rule, found, step)
    of_one = {
        f"referee.samples={referee.samples}": referee.samples > 1,
        "referee.closed_book=true": referee.closed_book,
    }
    said = ", ".join(setting for setting, there in of_one.items() if there)
    rule = "referee.samples and referee.closed_book are of a verifier"
    step = "set referee.verifier=frozen, or leave them out"
    hold(referee.verifier != "none" or not said, rule, f"referee.verifier=none with {said}", step)
    rule = "referee.model is the model of a frozen verifier"
    found = f"referee.verifier={referee.verifier} with referee.model={referee.model}"
    step = "set referee.verifier=frozen, or leave referee.model out"
    hold(not referee.model or referee.verifier == "frozen", rule, found, step)


def _of_another_language(cfg: Config, asker: str) -> list[InputError]:
    """What of the referee reads other questions than those that are asked."""
    spoken, verifier, evidence = natural(cfg.protocol), cfg.referee.verifier, cfg.referee.evidence
    found, errors = f"protocol={cfg.protocol}, referee.verifier={verifier}", []
    if (spoken or verifier == "judge") and evidence in WORLD_EVIDENCE:
        rule = (
            f"referee.evidence={evidence} reads the generated world's sentences, as its policy"
            " quotes them"
        )
        errors.append(InputError(rule, found, "set referee.evidence=quoted (or none)"))
    if spoken and "too_many_relations" in cfg.referee.rules:
        rule = "the rule too_many_relations reads questions of the generated world"
        errors.append(InputError(rule, found, f"set referee.rules=[{SSP_RULES}]"))
    if cfg.block(asker).guide == "verifier" and verifier not in ("frozen", "solver"):
        rule = f"{asker}.reward_options.guide=verifier is the likelihood that our own engine tells"
        errors.append(InputError(rule, found, "set referee.verifier=frozen, or another guide"))
    return errors


def judge_can_answer(cfg: Config) -> None:
    """An endpoint that is asked has a model and an address without user and password, and knows how
    to reply."""
    guides = {block.guide for block in cfg.blocks.values()}
    if cfg.judge.kind != "llm" and "judge" not in {cfg.referee.verifier, *guides}:
        return
    form = cfg.judge.format
    there = not cfg.judge.scores or form == "score" or Path(form).is_file()
    rule = "judge.format is word, json, thought, score, or a text file, which is a rubric"
    hold(there, rule, form or "''", "set it to one of these, or correct the path")
    rule = "judge.model is the endpoint's name of its model"
    found = (
        f"judge.kind={cfg.judge.kind}, referee.verifier={cfg.referee.verifier},"
        f" guide={', '.join(sorted(guides - {''}))}, and no judge.model"
    )
    hold(cfg.judge.model, rule, found, "set judge.model=...")
    step = (
        "e.g. judge.url=http://127.0.0.1:5000/v1, which ssp serve --judge MODEL starts; its key is"
        f" in {JUDGE_KEY}"
    )
    check_address("judge.url", cfg.judge.url, step)


@each_role
def rewards_exist(cfg: Config, role: str) -> None:
    """Each a known name or an importable function, with options that it takes."""
    block = cfg.block(role)
    if own.sealed(block.reward):
        return
    if role == cfg.spec.asker:
        proposer.check(block.reward, block.reward_options, role)
    else:
        rewards.check(block.reward, block.reward_options, f"{role}.reward_options")


def warnings(cfg: Config) -> list[str]:
    """What is allowed and deserves a second thought, a line each."""
    lines, role, asker = [], cfg.spec.answerer, cfg.spec.asker
    block = cfg.block(role)
    reward = rewards.get(block.reward)
    hears = takes(reward, "judged") or takes(reward, "score")
    if cfg.judge.kind != "exact" and not hears:
        lines.append(
            f"{role}.reward={block.reward} does not hear the judge of"
            f" judge.kind={cfg.judge.kind}, which decides the win rate alone. {role}.reward=ssp"
            " pays what the judge accepts."
        )
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
