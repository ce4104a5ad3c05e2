"""Which settings of the game may stand together: who asks, who learns when, what fills a batch; how
long an episode is; what is checked, judged and paid."""

from collections.abc import Iterator
from pathlib import Path

from ssp.base.episode import PROPOSER
from ssp.base.errors import InputError, Refusals, hold
from ssp.base.extras import require
from ssp.base.services import JUDGE_KEY
from ssp.config import own
from ssp.config.role import LimitsConfig
from ssp.config.rules import check_address, expand, get
from ssp.config.schema import Config
from ssp.config.tables import COLDEST
from ssp.game import protocols, rewards
from ssp.game.referee.rules import RULES as KNOWN
from ssp.game.referee.rules import least_searches
from ssp.game.rewards import proposer
from ssp.game.rewards.options import takes
from ssp.game.world.files import OF_EXTRAS

WORLD_PROTOCOL = "mini"
WORLD_EVIDENCE = ("verbatim", "chain")
SSP_RULES = "empty,too_short,too_long,too_few_words,leakage,no_evidence,no_search,repeated_query"


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
    bound = cfg.schedule.max_staleness.proposer
    without = {
        f"game.batch={cfg.game.batch}": cfg.game.batch != "dummy",
        f"game.proposals={cfg.game.proposals}": cfg.game.proposals > 1,
        f"schedule.max_staleness.proposer={bound}": bound > 0 and not cfg.schedule.preset,
        f"proposer.warmup_steps={cfg.proposer.warmup_steps}": cfg.proposer.warmup_steps > 0,
        f"solver.warmup_steps={cfg.solver.warmup_steps}": cfg.solver.warmup_steps > 0,
    }
    idle = [setting for setting, there in without.items() if there]
    rule = f"game.questions={source} has one role, the solver, and every question is played"
    step = "leave that out (the learning rate's warm-up is solver.learner.warmup_steps)"
    hold(asks or not idle, rule, ", ".join(idle), step)
    rule = "game.batch=resample trains on valid questions only, so a rejected one has no reward"
    priced, found = (
        cfg.proposer.invalid_reward != 0,
        f"proposer.invalid_reward={cfg.proposer.invalid_reward:g}",
    )
    hold(
        cfg.game.batch != "resample" or not priced,
        rule,
        found,
        "set it to 0, or use game.batch=dummy",
    )
    batch, each = cfg.proposer.batch, cfg.game.proposals
    found, step = (
        f"{batch} questions a round, {each} to a target",
        f"set proposer.batch={-(-batch // each) * each}",
    )
    hold(batch % each == 0, "proposer.batch is a multiple of game.proposals", found, step)


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
    """Refill counts groups that teach a solver something, and nothing else fills the same slots."""
    refill, solver, batch = f"game.refill={cfg.game.refill}", cfg.solver, cfg.game.batch
    if cfg.game.refill == 1:
        return
    rule, found = f"{refill} fills a batch that the solver learns from", "solver.policy=frozen"
    hold(solver.policy != "frozen", rule, found, "leave game.refill out")
    rule = f"{refill} fills the slots of invalid questions too, and trains on rejected ones"
    hold(
        batch == "dummy",
        rule,
        f"game.batch={batch}",
        "set game.batch=dummy, or leave game.refill out",
    )


def someone_learns(cfg: Config) -> None:
    """One role at least learns; while a role warms up, it alone does, so it must learn then, and
    only one can."""
    learns = any(cfg.block(role).policy != "frozen" for role in cfg.roles)
    found = " ".join(f"{role}.policy=frozen" for role in cfg.roles)
    hold(learns, "at least one role learns", found, "set them to own or shared, or use ssp eval")
    warming = [role for role in cfg.roles if cfg.block(role).warmup_steps > 0]
    found = " ".join(f"{role}.warmup_steps={cfg.block(role).warmup_steps}" for role in warming)
    step = "set one of them to 0 (the learning rate's warm-up is <role>.learner.warmup_steps)"
    hold(len(warming) <= 1, "one role at most learns alone at first", found, step)
    for role in warming:
        block = cfg.block(role)
        learns = block.policy != "frozen" and not 0 < block.freeze_after < block.warmup_steps
        rule = (
            f"{role}.warmup_steps leaves learning to the {role} alone, so it learns up to that step"
        )
        found = (
            f"warmup_steps={block.warmup_steps} with policy={block.policy},"
            f" freeze_after={block.freeze_after}"
        )
        hold(learns, rule, found, f"set {role}.warmup_steps=0, or freeze it later")


def protocol_exists(cfg: Config) -> None:
    """`protocol` is a shipped id or a readable file, knows the roles that play, and lets a policy
    that is to answer itself go on after its search."""
    protocol = protocols.get(cfg.protocol)
    for role in cfg.roles:
        protocol.role(role)
        kind = cfg.block(role).search.kind
        if protocol.observation_form.as_turn and kind != "retriever":
            rule = (
                f"{role}.search.kind is retriever where a search ends the turn (protocol"
                f" {protocol.id})"
            )
            raise InputError(
                rule,
                kind,
                "set protocol=ssrl, or another one with information in the policy's own turn",
            )


def agents_play(cfg: Config) -> None:
    """An agent plays the solver, on an engine that takes each turn by itself, over a model with
    messages."""
    step = "leave proposer.agent out; set solver.agent"
    hold(
        not cfg.proposer.agent,
        "an agent plays the solver",
        f"proposer.agent={cfg.proposer.agent}",
        step,
    )
    kind, place = cfg.solver.engine.kind, cfg.solver.search.kind
    fits = not cfg.solver.agent or (kind in ("torch", "vllm", "endpoint") and place == "retriever")
    rule = "solver.agent plays with engine.kind torch, vllm or endpoint, and search.kind=retriever"
    hold(fits, rule, f"{kind}, {place}", "set these, or leave solver.agent out")
    reward = cfg.solver.reward
    reads = (
        not cfg.solver.agent
        or reward not in rewards.names()
        or takes(rewards.get(reward), "answer")
    )
    rule = (
        "an agent hands in an answer, so solver.reward is one that reads it, and not the form of a"
        " response"
    )
    able = [name for name in rewards.names() if takes(rewards.get(name), "answer")]
    step = (
        f"set solver.reward to one of {', '.join(able)}, or a function of your own with the"
        " parameter answer"
    )
    hold(reads, rule, f"solver.agent with solver.reward={reward}", step)


def temperatures_are_usable(cfg: Config) -> None:
    """A policy gradient needs sampled actions: greedy rollouts have no exploration and no usable
    log-probs. A temperature near 0 overflows the softmax, which would make every episode void."""
    for role in cfg.roles:
        block = cfg.block(role)
        if block.policy != "frozen" and block.sampling.temperature == 0:
            raise InputError(
                f"{role}.sampling.temperature is above 0 for a role that learns",
                "0",
                "set it to 1.0",
            )
    for key in ("eval.temperature", *expand("{role}.sampling.temperature")):
        if 0 < get(cfg, key) < COLDEST:
            raise InputError(
                f"{key} is 0 (greedy) or at least {COLDEST}",
                get(cfg, key),
                f"set {key}=0 or {COLDEST}",
            )


def stages_follow_each_other(cfg: Config) -> None:
    """Limits change at later and later updates: those before the first stage are the block's
    own."""
    for role in ("proposer", "solver"):
        stages = cfg.block(role).limits.stages
        for number, stage in enumerate(stages):
            if min(stage.turn_tokens, stage.total_tokens) < 0 or not (
                stage.turn_tokens or stage.total_tokens
            ):
                rule = (
                    f"{role}.limits.stages[{number}] has turn_tokens or total_tokens above 0 (0: as"
                    " before)"
                )
                found = f"turn_tokens={stage.turn_tokens}, total_tokens={stage.total_tokens}"
                raise InputError(rule, found, "set one of them, or leave the stage out")
        steps = [stage.step for stage in stages]
        if steps != sorted(set(steps)) or any(step < 2 for step in steps):
            rule = f"{role}.limits.stages come in the order of their steps, from update 2 on"
            raise InputError(rule, f"steps {', '.join(map(str, steps))}", "sort them")


def turn_fits_episode(cfg: Config) -> None:
    """One turn must fit into the episode."""
    for _, where, limits in _stages(cfg, *cfg.roles):
        total = limits.total_tokens
        rule = f"{where}.turn_tokens is below {where}.total_tokens"
        hold(
            limits.turn_tokens < total,
            rule,
            f"{limits.turn_tokens} against {total}",
            "raise total_tokens",
        )


def episode_fits_its_parts(cfg: Config) -> None:
    """The longest episode that the other limits allow must fit, or the question would run out of
    context (Search-R1). An invalid turn counts as a search."""
    for role, where, limits in _stages(cfg, "proposer", "solver"):
        turns, shown = (
            limits.turn_tokens * (limits.searches + 1),
            limits.observation_tokens * limits.searches,
        )
        needed = limits.prompt_tokens + turns + shown
        if limits.overflow == "stop" and limits.total_tokens < needed:
            parts = "prompt_tokens + turn_tokens x (searches + 1) + observation_tokens x searches"
            rule = f"{where}: total_tokens is at least {parts}, unless overflow=drop"
            found = (
                f"{limits.total_tokens} against {limits.prompt_tokens} + {turns} + {shown} ="
                f" {needed}"
            )
            raise InputError(
                rule, found, f"set {where}.total_tokens={needed}, or {role}.limits.overflow=drop"
            )


def _stages(cfg: Config, *roles: str) -> Iterator[tuple[str, str, LimitsConfig]]:
    """Role, key and limits of each stage of these roles, a block's own limits first."""
    for role in roles:
        limits = cfg.block(role).limits
        yield role, f"{role}.limits", limits.at(0)
        for number, stage in enumerate(limits.stages):
            yield role, f"{role}.limits.stages[{number}]", limits.at(stage.step)


def natural(protocol: str) -> bool:
    """Whether a shipped protocol's questions are in natural language; what a user's own file asks
    nobody knows."""
    return protocol != WORLD_PROTOCOL and not protocol.endswith((".yaml", ".yml"))


def proposals_can_be_checked(cfg: Config) -> None:
    """The referee's settings matter where somebody proposes: its rules exist, each once; evidence
    has a verifier (law 6), and speaks its language; the searches that a question needs are
    allowed."""
    if PROPOSER not in cfg.roles:
        return
    for rule in cfg.referee.rules:
        hold(
            rule in KNOWN,
            "referee.rules lists ids of the referee's rules",
            rule,
            f"use some of {', '.join(KNOWN)}",
        )
    once = len(set(cfg.referee.rules)) == len(cfg.referee.rules)
    hold(
        once,
        "referee.rules lists each rule once",
        ", ".join(cfg.referee.rules),
        "remove the repeated one",
    )
    spoken, verifier, evidence = natural(cfg.protocol), cfg.referee.verifier, cfg.referee.evidence
    rule = "referee.evidence checks what the verifier quotes, so it needs a verifier"
    found, step = (
        f"referee.verifier=none with referee.evidence={evidence}",
        "set referee.verifier=frozen",
    )
    hold(
        verifier != "none" or evidence == "none",
        rule,
        found,
        f"{step}, or add referee.evidence=none",
    )
    found, refused = f"protocol={cfg.protocol}, referee.verifier={verifier}", []
    if (spoken or verifier == "judge") and evidence in WORLD_EVIDENCE:
        rule = (
            f"referee.evidence={evidence} reads the generated world's sentences, as its policy"
            " quotes them"
        )
        refused.append(InputError(rule, found, "set referee.evidence=quoted (or none)"))
    if spoken and "too_many_relations" in cfg.referee.rules:
        rule = "the rule too_many_relations reads questions of the generated world"
        refused.append(InputError(rule, found, f"set referee.rules=[{SSP_RULES}]"))
    rule = "proposer.reward_options.guide=verifier is the likelihood that our own engine tells"
    if cfg.proposer.guide == "verifier" and verifier not in ("frozen", "solver"):
        refused.append(InputError(rule, found, "set referee.verifier=frozen, or another guide"))
    if refused:
        raise Refusals(refused)
    fewest, most = least_searches(cfg.referee), cfg.proposer.limits.searches
    rule = f"proposer.limits.searches is at least {fewest}, as referee.rules ask for"
    hold(
        fewest <= most,
        rule,
        str(most),
        f"set proposer.limits.searches={fewest}, or leave such a rule out",
    )


def judge_can_answer(cfg: Config) -> None:
    """An endpoint that is asked has a model and an address without user and password, and knows how
    to reply."""
    if cfg.judge.kind != "llm" and "judge" not in (cfg.referee.verifier, cfg.proposer.guide):
        return
    form = cfg.judge.format
    there = not cfg.judge.scores or form == "score" or Path(form).is_file()
    rule = "judge.format is word, json, thought, score, or a text file, which is a rubric"
    hold(there, rule, form or "''", "set it to one of these, or correct the path")
    rule = "judge.model is the endpoint's name of its model"
    found = (
        f"judge.kind={cfg.judge.kind}, referee.verifier={cfg.referee.verifier},"
        f" guide={cfg.proposer.guide}"
    )
    hold(cfg.judge.model, rule, f"{found}, and no judge.model", "set judge.model=...")
    step = (
        "e.g. judge.url=http://127.0.0.1:5000/v1, which ssp serve --judge MODEL starts; its key is"
        f" in {JUDGE_KEY}"
    )
    check_address("judge.url", cfg.judge.url, step)


def rewards_exist(cfg: Config) -> None:
    """Each a known name or an importable function, with options that it takes."""
    if not own.sealed(cfg.solver.reward):
        rewards.check(cfg.solver.reward, cfg.solver.reward_options)
    if PROPOSER in cfg.roles and not own.sealed(cfg.proposer.reward):
        proposer.check(cfg.proposer.reward, cfg.proposer.reward_options)


def warnings(cfg: Config) -> list[str]:
    """What is allowed and deserves a second thought, a line each."""
    found = []
    if cfg.judge.kind != "exact" and not any(
        takes(rewards.get(cfg.solver.reward), one) for one in ("judged", "score")
    ):
        found.append(
            f"solver.reward={cfg.solver.reward} does not hear the judge of"
            f" judge.kind={cfg.judge.kind}, which decides the win rate alone. solver.reward=ssp"
            " pays what the judge accepts."
        )
    reward = cfg.solver.reward
    if (
        cfg.solver.agent
        and not reward.startswith("ssp.")
        and not takes(rewards.get(reward), "answer")
    ):
        found.append(
            f"solver.reward={reward} does not take the parameter answer, which is what an agent"
            " hands in: it reads a conversation in the model's chat template."
        )
    penalty = cfg.proposer.invalid_reward
    if PROPOSER in cfg.roles and penalty < 0:
        found.append(
            f"proposer.invalid_reward={penalty:g} punishes invalid questions. In SSP's paper"
            " (figure 5) a penalty of -0.1 collapsed training: nearly no question stayed valid."
            " Its recipe pays 0."
        )
    return found
