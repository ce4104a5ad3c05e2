"""Parts made from the configuration: tokenizer, engine, model folder, judge; in one way for
training, `eval` and `ask` (law 8). A part that cannot be made is an InputError (law 6: another kind
is never taken instead)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

from ssp import engines
from ssp.base import cache, models
from ssp.base.errors import InputError, hold, holding
from ssp.base.extras import extra
from ssp.base.imports import uncollected, unlisted
from ssp.base.services import is_loopback
from ssp.config import own
from ssp.config.crews import apart, warmed
from ssp.config.role import RoleConfig
from ssp.config.rules import refused
from ssp.config.schema import Config
from ssp.config.toolserver import ToolServerConfig, server_of
from ssp.engines import Engine
from ssp.engines.folder import ModelFolder
from ssp.game import corpora, protocols
from ssp.game.evaluation import Play
from ssp.game.judge import AnswerJudge
from ssp.game.protocols import Protocol
from ssp.game.protocols.calls import TOOL
from ssp.game.protocols.renderer import Renderer
from ssp.game.referee import guide as guides
from ssp.game.rollout import Search, Settings, agents, rollout, servers, tools
from ssp.learning import coldstart, tiny
from ssp.learning.settings import by_token
from ssp.learning.tiny.actor import Actor
from ssp.learning.warmup.loop import ENTRY as WARMUP
from ssp.record import runfolder
from ssp.record.manifest import check_files, protocol_of, read_record

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ssp.game.judge.endpoint import Endpoint
    from ssp.game.referee.guide import Guide

COLDSTART = "coldstart"
OWN_VERIFIERS = ("frozen", "solver")
"""Values of `referee.verifier` with which the solver's model answers."""


def tokenizer(model_dir: Path | str) -> PreTrainedTokenizerBase:
    """The tokenizer of a policy folder: what its `tokenizer.json` says (`AutoTokenizer` would go by
    the architecture)."""
    with uncollected(), unlisted():
        from transformers import PreTrainedTokenizerFast  # costs what shards start without

    folder = _folder(model_dir)
    there = (folder / "tokenizer.json").is_file()
    step = "give a folder that save_pretrained wrote"
    hold(there, "a policy folder holds tokenizer.json", folder, step)
    rule = "the tokenizer files of a policy folder can be read"
    # the library raises bare Exceptions too
    with holding(Exception, rule, folder, "copy or save the policy again"):
        loaded: PreTrainedTokenizerBase = PreTrainedTokenizerFast.from_pretrained(
            folder, local_files_only=True
        )
    return loaded


def engine(cfg_role: RoleConfig, model_dir: Path | str, sleeps: bool = False) -> Engine:
    """A fresh engine of the role's kind and dtype with the weights of `model_dir`. InputError for
    files that are not as they were written. `sleeps`: it takes turns with a learner on the same
    GPUs."""
    chosen = cfg_role.engine
    folder = _sound(model_dir) if chosen.traits.model else model_dir
    return engines.create(chosen, folder, sleeps)


def acted(cfg: Config, role: str, renderer: Renderer) -> Engine | None:
    """The engine of a role that a script plays; None for other kinds."""
    chosen = cfg.block(role).engine
    return engines.acted(chosen, Actor(cfg, role, renderer)) if chosen.traits.acted else None


def faces(cfg: Config, model_dir: Path | str, sleeps: bool = False) -> dict[str, Engine]:
    """The engine of each role over one base, the model of `model_dir`: see `ssp.engines.faces`.
    `sleeps` as in `engine`."""
    adapters = {role: cfg.block(role).learner.lora for role in cfg.roles}
    base = _sound(model_dir)
    return engines.faces(cfg.answering.engine, base, adapters, sleeps)


def check_engines(cfg: Config) -> None:
    """InputError when the software that an engine needs is not installed."""
    for role in {*cfg.roles, cfg.spec.answerer}:
        engines.require(cfg.block(role).engine)


def check_learners(cfg: Config, roles: Iterable[str]) -> None:
    """InputError when the software that a learner of `roles` needs is not installed."""
    for role in roles:
        block = cfg.block(role)
        needs = block.policy != "frozen" and block.learner.kind == "deepspeed"
        step = f"pip install 'ssp[deepspeed]', or set {role}.learner.kind=torch"
        there = not needs or util.find_spec("deepspeed") is not None
        hold(there, f"{role}.learner.kind=deepspeed needs DeepSpeed", "not installed", step)


def missing(cfg: Config) -> list[InputError]:
    """What the configuration asks for and this machine has not installed, each with the settings
    that do without it."""
    return refused(
        cfg, (check_engines, lambda cfg: check_learners(cfg, cfg.roles), corpora.check_faiss)
    )


def model_dir(cfg: Config, role: str, run: runfolder.RunFolder | None = None) -> Path:
    """The folder that `role` starts from; with `run`, what its warm start wrote there, if it has
    one. Makes the tiny policy where none is cached. InputError for a folder of another protocol,
    and for an embedded policy that is not as it was shipped."""
    block = cfg.block(role)
    if run is not None and cfg.warmup.warms and role in warmed(cfg):
        folder = run.start
        if role == cfg.spec.asker and run.proposer_start.exists():
            folder = run.proposer_start
            rule = "a proposer that learned from traces of its own has weights of its own"
            value = f"policy={cfg.asking.policy}, layout={cfg.placement.layout}, {folder}"
            hold(apart(cfg), rule, value, "set policy and placement.layout as the run began")
    elif block.model == COLDSTART:
        folder = coldstart.ARTEFACT
        check_files(folder, whole=True)
    elif block.model == tiny.MODEL:
        from ssp.learning.tiny import policy  # brings torch

        recalls = block.search.kind != "retriever"
        spoken = protocols.get(cfg.protocol).asking(cfg.spec.prompts)
        asking = cfg.spec.asking
        asks = asking.prompt if asking is not None and asking.prompt in cfg.spec.prompts else ""
        folder = policy.ensure(spoken, block.template, recalls, cache.root(), asks)
    else:
        folder = models.folder(block.model, f"{role}.model")
        rule = f"{role}.model is not what an unfinished warm start is still writing"
        step = (
            "let it end first (the command that began it goes on with it), or name another folder"
        )
        hold(WARMUP not in read_record(folder), rule, folder, step)
    check_protocol(folder, cfg.protocol)
    return folder


def check_model(cfg: Config, role: str, folder: Path, in_run: bool = False) -> None:
    """InputError when the model in `folder` cannot be read as one model, when what `role` plays is
    longer than its context, or when its tokenizer has ids without an embedding. `in_run`: there the
    solver's model may also be the verifier."""
    block = cfg.block(role)
    if not block.engine.traits.model:  # which computes with another model, or with none
        return
    model, words = ModelFolder(folder), tokenizer(folder).get_vocab()
    if in_run and block.policy != "frozen":
        model.check_logits()
    played, context = block.limits.longest, model.context
    longer = "or take a model with a longer context"
    if context:
        rule = f"{role}.limits.total_tokens is at most the context of the model"
        step = f"set it to {context} or less (with fewer searches, or shorter turns), {longer}"
        hold(played <= context, rule, f"{played} against {context} in {folder}", step)
    verifies = in_run and role == cfg.spec.answerer and cfg.asks and not cfg.referee.model
    if context and verifies and cfg.referee.verifier in OWN_VERIFIERS:
        proof = cfg.referee.prompt_tokens + cfg.referee.answer_tokens
        # `answer_tokens` is a twelfth of `prompt_tokens`.
        rule = (
            "referee.prompt_tokens and a twelfth of it are at most the context of the verifier's"
            " model"
        )
        step = f"set referee.prompt_tokens={context * 12 // 13}, {longer}"
        hold(proof <= context, rule, f"{proof} against {context} in {folder}", step)
    if model.rows and words:
        highest = max(words, key=lambda word: words[word])
        rule = "every id of a model's tokenizer has a row in its embeddings"
        value = f"id {words[highest]} ({highest!r}) against {model.rows} rows in {folder}"
        step = "take the model's own tokenizer, or resize its embeddings (resize_token_embeddings)"
        hold(words[highest] < model.rows, rule, value, step)


def check_policy(cfg: Config, role: str, folder: Path) -> None:
    """InputError when the policy in `folder` does not load or cannot speak the protocol (its chat
    template, its stops); for folders that a user brings, as `model_dir` gave them."""
    block = cfg.block(role)
    check_model(cfg, role, folder, in_run=True)
    if block.model == COLDSTART and block.tools == [TOOL]:
        return
    spoken = renderer(cfg, role, folder)
    for prompt in cfg.spec.prompts_of(role):
        spoken.stops(prompt)
        if block.limits.overflow == "answer":
            spoken.last(prompt)
    if spoken.forgets is not None and block.policy != "frozen":
        rule = f"a chat template that forgets thoughts needs one advantage an episode ({role})"
        step = f"set {role}.algorithm=grpo and kl.place=loss, or {role}.template=chatml"
        value = f"{role}.algorithm={block.algorithm}, kl.place={block.kl.place}, {folder}"
        hold(not by_token(block), rule, value, step)
    traits = block.engine.traits
    # which takes gigabytes and a GPU: the actors say whether it loads
    if traits.model == "share":
        _sound(folder)
    elif not traits.acted:  # of which nothing but the words is used
        engine(block, folder)


def check_words(tokens: PreTrainedTokenizerBase, texts: Iterable[str]) -> None:
    """InputError for a text with a word that the vocabulary has no token for: the policy would read
    `<unk>` instead."""
    unknown = tokens.unk_token_id
    # A byte-level vocabulary knows every word: its model has no unknown token, also where the
    # tokenizer names one.
    if unknown is None or getattr(tokens.backend_tokenizer.model, "unk_token", "") is None:
        return
    for text in texts:
        words = []
        for word in text.split():
            if unknown in tokens.encode(word, add_special_tokens=False):
                words.append(word)
        shown = ", ".join(dict.fromkeys(words[:5])) + (", ..." if len(words) > 5 else "")
        rule = "questions and targets are made of words that the policy knows"
        step = "take data of this policy's world, or another policy"
        hold(not words, rule, f"{shown} (in: {text[:80]})", step)


def policy_dir(cfg: Config, given: Path | str | None, role: str = "") -> Path:
    """The policy to look at: the folder `given`, or the role's checkpoint where that is a run's;
    without one the folder that `role` starts from. By default the role is the one that answers."""
    role = role or cfg.spec.answerer
    if given is None:
        return model_dir(cfg, role)
    folder = _folder(given)
    state = runfolder.RunFolder(folder).read_state()
    if state:
        rule = f"state.json of a run names the {role}'s checkpoint"
        file = folder / "checkpoints" / "state.json"
        step = f"name {' or '.join(state['folders'])}, or give a checkpoint's folder"
        hold(role in state["folders"], rule, file, step)
        folder = _folder(folder / state["folders"][role])
    check_protocol(folder, cfg.protocol)
    return folder


def player(cfg: Config, role: str, folder: Path, search: Search, temperature: float) -> Play:
    """Tasks → episodes of `role`, by the policy in `folder`, through the rollout that training
    uses. InputError where its tools or its agent are not there."""
    check_model(cfg, role, folder)
    rules, spoken = settings(cfg, role, temperature), renderer(cfg, role, folder)
    policy = engine(cfg.block(role), folder)
    return lambda tasks: rollout(policy, spoken, search, tasks, rules)[0]


@lru_cache
def called(specs: tuple[str | ToolServerConfig, ...], web: str | None = None) -> tools.Tools:
    """The tools that `specs` names, made once a process. `web`: the address of the engine that
    searches the web, None where the web is not searched.

    InputError for a tool that is not there, or is none; for a server that does not answer; and for
    what a run's own config.yaml names, unless it is trusted."""
    rule, named = "tools begins with search, and names each tool once", list(map(str, specs))
    first_once = named[:1] == [TOOL] and len({*specs}) == len(specs)
    hold(first_once, rule, named, "write tools: [search, ...]")
    offered = []
    done: list[Callable[[str], object]] = []
    warnings = []
    for spec in specs:
        cfg = server_of(spec)
        if cfg is not None:
            those, server = servers.connect(cfg)
            offered += those
            if cfg.session == "episode":
                done.append(server.done)
            if cfg.session == "episode" and server.stateless:
                warnings.append(
                    f"{cfg} gives no sessions: what it keeps between calls, all episodes share"
                )
        elif spec not in (TOOL, tools.READ.name):
            function = own.find(str(spec), "a tool", "def lookup(word: str) -> str:")
            offered.append(tools.function(function, str(spec)))
    reads = tools.READ.name in specs
    if not reads or web is None:
        return tools.Tools(offered, reads, done=done, warnings=warnings)
    pages = extra("online", "reading pages of the web", "pages").Pages(loopback=is_loopback(web))
    return tools.Tools(offered, reads, pages.text, done, warnings)


def role_tools(cfg: Config, role: str) -> tools.Tools:
    """The tools that a role may call. InputError as `called`."""
    web = cfg.retriever.url if cfg.retriever.online.engine else None
    return called(tuple(cfg.block(role).tools), web)


@lru_cache
def agent(named: str, seconds: float) -> agents.Agent:
    """The code that plays, in calls of `seconds` at most. InputError for what is no agent."""
    form = "async def solve(...):"
    return agents.find(named, lambda place: own.find(place, "an agent", form), seconds)


def protocol(cfg: Config, role: str) -> Protocol:
    """The configured protocol with the tools of `role`. InputError as `called`, and for a name that
    is taken."""
    spoken = protocols.get(cfg.protocol).asking(cfg.spec.prompts)
    return spoken.offering(role_tools(cfg, role).offers)


def renderer(cfg: Config, role: str, folder: Path | str, plays: bool = True) -> Renderer:
    """The configured protocol in the words of the policy in `folder`; with the role's tools, where
    it `plays`. InputError for a chat template that does not fit, and for a prompt that has no room
    for its tools."""
    spoken = protocol(cfg, role) if plays else protocols.get(cfg.protocol)
    block = cfg.block(role)
    made = Renderer(spoken, tokenizer(folder), block.template)
    if not spoken.offers or block.agent:
        return made
    limits = block.limits.at(0)
    room = limits.total_tokens - limits.turn_tokens
    for prompt in cfg.spec.prompts_of(role):
        length = made.least(prompt)
        rule = f"{role}.limits.total_tokens has room for a turn behind the prompt and its tools"
        sizes = f"{len(spoken.offers)} tools in {length:,} tokens, and room for {room:,}"
        step = f"offer fewer (a server's `only`), or raise it by {length - room:,} or more"
        hold(length <= room, rule, sizes, step)
    return made


def settings(cfg: Config, role: str, temperature: float, step: int | None = None) -> Settings:
    """How `role` plays at this temperature, for its update `step`; None: as in the last stage of
    its limits."""
    block = cfg.block(role)
    limits, given = block.limits.at(step), role_tools(cfg, role)
    player = agent(block.agent, 0.8 * cfg.placement.call_timeout) if block.agent else None
    return Settings(limits, temperature, cfg.retriever.topk, block.search, given, player)


def endpoint(cfg: Config, seconds: float = math.inf) -> Endpoint:
    """A client of the chat endpoint that `judge.*` names; one call may take `seconds`. InputError
    for a missing key."""
    from ssp.game.judge.endpoint import Endpoint  # costs what players start without, as below

    return Endpoint(cfg.judge, seconds)


def judge(cfg: Config, seconds: float = math.inf) -> AnswerJudge:
    """Who decides right or wrong. InputError for a key that is missing."""
    if cfg.judge.kind == "exact":
        return AnswerJudge()
    from ssp.game.judge.judges import LlmJudge

    return AnswerJudge(LlmJudge(cfg.judge, endpoint(cfg, seconds)), cfg.judge.cache)


def guide(cfg: Config, seconds: float = math.inf) -> Guide | str:
    """Who scores valid questions: "" for nobody. InputError for code of the user's own that is
    none."""
    named = cfg.asking.guide
    if named == guides.JUDGE:
        return guides.judged(endpoint(cfg, seconds))
    return guides.own(named) if own.is_own(named) else named


def check_judge(cfg: Config, seconds: float = math.inf) -> None:
    """Ask the judge, and the endpoint that verifies questions, once each, for `seconds` at most.
    InputError if in vain."""
    judge(cfg, seconds).check()
    several = cfg.referee.verifier == guides.JUDGE and cfg.referee.samples > 1
    unseen = cfg.judge.kind != "llm" or several
    if unseen and cfg.asks and guides.JUDGE in (cfg.referee.verifier, cfg.asking.guide):
        prompt = "Which planet do people live on? Reply with its name."
        temperature = cfg.referee.temperature if several else 0.0
        seeds = [1] if several else []
        endpoint(cfg, seconds).check(prompt, lambda reply: reply or None, temperature, seeds)


def check_protocol(folder: Path | str, protocol: str) -> None:
    """InputError when the policy in `folder` speaks another protocol, or another version of it, or
    there is none."""
    wanted = protocols.get(protocol)
    protocol_of(_folder(folder), wanted.id, wanted.version)


def _folder(path: Path | str) -> Path:
    folder = Path(path).expanduser()
    step = "give the folder's path, or model=coldstart"
    hold(folder.is_dir(), "a policy is an existing folder", folder, step)
    return folder


def _sound(path: Path | str) -> Path:
    """A folder from which weights are taken."""
    folder = _folder(path)
    check_files(folder)
    return folder
