"""Values of theirs that need more than a word: put together from several keys, or used only beside
another one.

Owns one function a key: (value, all that the script says) → settings of ours, or a sentence why
there are none ("": a person has to decide). Keys of `defaults` stand for the role that plays.
Refuses to know how rows are printed."""

from collections.abc import Callable
from typing import Any

from ssp.extras.migration.script import Facts, Settings

Made = Settings | str
Special = Callable[[Any, Facts], Made]

ACTOR, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
KL = {
    "kl": "k1",
    "k1": "k1",
    "mse": "k2",
    "k2": "k2",
    "low_var_kl": "k3",
    "k3": "k3",
    "k3plusplus": "k3pp",
    "k4": "k4",
    "k5": "k5",
    "abs": "abs",
    "full_reverse": "topk_reverse_paper",
    "full_forward": "topk_forward_paper",
}
RECIPES = "as the recipe has it"


def _as(*keys: str, less: int = 0) -> Special:
    """The value, or so much `less`, for these keys of ours."""
    return lambda value, facts: dict.fromkeys(keys, value - less if less else value)


def _clip(value: Any, facts: Facts) -> Made:
    free = [side for side in ("low", "high") if facts.get(f"{ACTOR}clip_ratio_{side}") is None]
    if not free:
        return "clip_ratio_low and clip_ratio_high say it"
    return {f"defaults.clip_{side}": value for side in free}


def _minibatch(value: Any, facts: Facts) -> Made:
    """Search-R1 and its fork count episodes, the others questions."""
    each = facts.number(f"{ROLLOUT}n", facts.base["game.attempts"])
    episodes = value if facts.system == "search-r1" else value * each
    return {"defaults.learner.minibatch": int(episodes)}


def _warmup(value: Any, facts: Facts) -> Made:
    return {"defaults.learner.warmup_steps": value} if value >= 0 else "below 0: the ratio counts"


def _ratio(value: Any, facts: Facts) -> Made:
    if facts.number(f"{ACTOR}optim.lr_warmup_steps", -1) >= 0:
        return "not used there beside lr_warmup_steps"
    steps = facts.number("trainer.total_training_steps", facts.base["steps"])
    return {"defaults.learner.warmup_steps": int(value * steps)}


def _epochs(value: Any, facts: Facts) -> Made:
    if facts.get("trainer.total_training_steps") is not None:
        return "not used there beside total_training_steps"
    batch = facts.get("data.train_batch_size", facts.base["solver.batch"])
    return f"by hand: steps = {value} x rows / {batch}; the recipe has {facts.base['steps']}"


def _tokens(value: Any, facts: Facts) -> Made:
    if facts.get(f"{ACTOR}use_dynamic_bsz") is not True:
        return "not used there without use_dynamic_bsz; the recipe's learner.token_budget stays"
    return {"defaults.learner.token_budget": value}


def _use_kl(value: Any, facts: Facts) -> Made:
    if value is True:
        return {"defaults.kl.place": "loss"}
    in_reward = facts.system == "search-r1" or facts.get("algorithm.use_kl_in_reward") is True
    return {"defaults.kl.place": _place(facts)} if in_reward else {"defaults.kl.coef": 0.0}


def _kind(value: Any, facts: Facts) -> Made:
    if str(value).startswith("full_") and facts.get(f"{ACTOR}kl_topk_tokens") is None:
        return {"defaults.kl.kind": "full"} if value == "full_reverse" else ""
    return {"defaults.kl.kind": KL[value]} if isinstance(value, str) and value in KL else ""


def _of_loss(made: Special) -> Special:
    unused = "not used there without use_kl_loss"
    return lambda value, facts: made(value, facts) if facts.kl_in_loss else unused


def _of_reward(made: Special) -> Special:
    unused = "not used there beside use_kl_loss"
    return lambda value, facts: made(value, facts) if facts.kl_in_reward else unused


def _in_reward(value: Any, facts: Facts) -> Made:
    return {"defaults.kl.place": _place(facts)} if value is True else RECIPES


def _after(value: Any, facts: Facts) -> Made:
    counts = facts.get("algorithm.use_kl_in_reward") is True
    if value is True and counts and _place(facts) != "reward":
        return {"defaults.kl.place": _place(facts)}
    return "off there: it counts with use_kl_in_reward and apply_kl_after_advantage"


def _place(facts: Facts) -> str:
    """Where a KL counts that is not in the loss."""
    if facts.get("algorithm.apply_kl_after_advantage") is not True:
        return "reward"
    return "future" if facts.get("algorithm.use_future_kl_as_reward") is True else "advantage"


def _offload(value: Any, facts: Facts) -> Made:
    def on(name: str) -> bool:
        return facts.get(f"{ACTOR}fsdp_config.{name}") is True

    if on("param_offload") or on("grad_offload") or on("offload_policy"):
        return {"defaults.learner.offload": "all", "defaults.learner.zero": 3}
    return {"defaults.learner.offload": "optimizer" if on("optimizer_offload") else "none"}


def _prompt(value: Any, facts: Facts) -> Made:
    """In Search-R1 the whole context, which is made as long as its turns and observations may
    be."""
    if facts.system != "search-r1":
        return _divided(facts)
    turns = facts.number("max_turns", facts.limit("searches"))
    turn = facts.number("data.max_response_length", facts.limit("turn_tokens"))
    shown = facts.number("data.max_obs_length", facts.limit("observation_tokens"))
    prompt = facts.number("data.max_start_length", facts.limit("prompt_tokens"))
    needed = prompt + turn * (turns + 1) + shown * turns
    return {"defaults.limits.total_tokens": int(max(value, needed))}


def _response(value: Any, facts: Facts) -> Made:
    """In Search-R1 what one turn may have."""
    if facts.system == "search-r1":
        return {"defaults.limits.turn_tokens": value}
    return _divided(facts)


def _divided(facts: Facts) -> Made:
    """The response's tokens, divided among turns and observations in the recipe's shares."""
    before, total = facts.limit("prompt_tokens"), facts.limit("total_tokens")
    prompt = int(facts.number("data.max_prompt_length", before))
    room = int(facts.number("data.max_response_length", total - before))
    there, here = facts.limit("searches"), _searches(facts)
    scale = room / (total - before)
    made: Settings = {
        "defaults.limits.prompt_tokens": prompt,
        "defaults.limits.total_tokens": prompt + room,
    }
    if not (here and there):
        return made | {"defaults.limits.turn_tokens": room}
    turns = facts.limit("turn_tokens") * (there + 1)
    shown = facts.limit("observation_tokens") * there
    made["defaults.limits.turn_tokens"] = round(turns * scale) // (here + 1)
    made["defaults.limits.observation_tokens"] = round(shown * scale) // here
    return made


def _searches(facts: Facts) -> int:
    """Searches of an episode: verl counts turns, of which the last one answers."""
    for key in (f"{ROLLOUT}multi_turn.max_assistant_turns", "rllm.agent.max_steps"):
        turns = facts.number(key, 0)
        if turns > 0:
            return int(turns) - 1
    return int(facts.number(f"{ROLLOUT}max_turns", facts.limit("searches")))


def _files(value: Any, facts: Facts) -> Made:
    files = value if isinstance(value, list) else [value]
    if len(files) != 1:
        return "by hand: put the files together (ssp data merge)"
    return {"data.targets" if facts.system == "ssp" else "data.questions": str(files[0])}


def _eval(value: Any, facts: Facts) -> Made:
    files = value if isinstance(value, list) else [value]
    corpus = "none" if facts.system == "ssrl" else facts.base["data.corpus"]
    sets = []
    for number, file in enumerate(files, start=1):
        sets.append({"name": f"set{number}", "file": str(file), "corpus": corpus})
    return {"data.eval": sets}


def _address(value: Any, facts: Facts) -> Made:
    url = str(value)
    if not url.startswith(("http://", "https://")):
        what = "the address of a server that speaks /retrieve (ssp serve does)"
        return f"by hand: retriever.url, {what}"
    return {"retriever.url": url.removesuffix("/batch_search").removesuffix("/search")}


def _nodes(value: Any, facts: Facts) -> Made:
    nodes = int(facts.number("trainer.nnodes", 1))
    gigabytes = str(facts.base["placement.nodes"]).rpartition("x")[2] or 80
    return {"placement.nodes": f"{nodes}x{value}x{gigabytes}"}


def _real(value: Any, facts: Facts) -> Made:
    if facts.get("trainer.sim2real") is not True:
        return "of live search (trainer.sim2real)"
    return {"solver.search.kind": f"first_{value}"}


def _format(name: str) -> Special:
    option = f"solver.reward_options.{name}"
    return lambda value, facts: {"solver.reward": "format_em", option: float(value)}


def _refill(block: str, usual: int) -> Special:
    def made(value: Any, facts: Facts) -> Made:
        if facts.get(f"{block}.enable") is not True:
            return RECIPES
        most = int(facts.number(f"{block}.max_num_gen_batches", usual))
        return {"game.refill": min(most, 64) if most > 0 else 64}

    return made


def _betas(value: Any, facts: Facts) -> Made:
    return {"defaults.learner.beta2": value[-1]} if isinstance(value, list) and value else ""


def _norm(value: Any, facts: Facts) -> Made:
    grpo = facts.get("algorithm.adv_estimator", "grpo") == "grpo"
    return {"defaults.algorithm": "dr_grpo"} if grpo and not value else RECIPES


def _save(value: Any, facts: Facts) -> Made:
    return {"save.every": value} if value > 0 else "never there; the recipe's save.every stays"


def _logger(value: Any, facts: Facts) -> Made:
    return {"telemetry.wandb": "online" if "wandb" in str(value) else "none"}


FILTER, SAMPLING = "algorithm.filter_groups", "self_play.reward_dynamic_sampling"

NUMBERS: dict[str, Special] = {
    f"{ACTOR}clip_ratio": _clip,
    f"{ACTOR}kl_loss_coef": _of_loss(_as("defaults.kl.coef")),
    f"{ACTOR}kl_topk_tokens": _as("solver.kl.topk"),
    f"{ACTOR}optim.lr_warmup_steps": _warmup,
    f"{ACTOR}optim.lr_warmup_steps_ratio": _ratio,
    f"{ACTOR}ppo_max_token_len_per_gpu": _tokens,
    f"{ACTOR}ppo_mini_batch_size": _minibatch,
    f"{ROLLOUT}max_turns": _as("defaults.limits.searches"),
    f"{ROLLOUT}multi_turn.max_assistant_turns": _as("defaults.limits.searches", less=1),
    "algorithm.kl_ctrl.kl_coef": _of_reward(_as("defaults.kl.coef")),
    "data.max_prompt_length": _prompt,
    "data.max_response_length": _response,
    "data.max_turns": _real,
    "max_turns": _as("defaults.limits.searches", "defaults.limits.retries"),
    "reward_model.final_format_score": _format("final"),
    "reward_model.retrieval_score": _format("retrieval"),
    "reward_model.structure_format_score": _format("structure"),
    "rllm.agent.max_steps": _as("defaults.limits.searches", less=1),
    "trainer.n_gpus_per_node": _nodes,
    "trainer.save_freq": _save,
    "trainer.total_epochs": _epochs,
}
"""Keys whose value is a number; another one is a matter for a person."""

SPECIAL: dict[str, Special] = {
    **{f"{ACTOR}fsdp_config.{name}_offload": _offload for name in ("param", "grad", "optimizer")},
    f"{ACTOR}fsdp_config.offload_policy": _offload,
    f"{ACTOR}kl_loss_type": _of_loss(_kind),
    f"{ACTOR}optim.betas": _betas,
    f"{ACTOR}use_kl_loss": _use_kl,
    f"{ROLLOUT}search_url": _address,
    **{f"{FILTER}.{name}": _refill(FILTER, 0) for name in ("enable", "max_num_gen_batches")},
    **{f"{SAMPLING}.{name}": _refill(SAMPLING, 20) for name in ("enable", "max_num_gen_batches")},
    "algorithm.apply_kl_after_advantage": _after,
    "algorithm.norm_adv_by_std_in_grpo": _norm,
    "algorithm.kl_penalty": _of_reward(_kind),
    "algorithm.use_future_kl_as_reward": _after,
    "algorithm.use_kl_in_reward": _in_reward,
    "data.search_url": _address,
    "data.train_files": _files,
    "data.val_files": _eval,
    "trainer.logger": _logger,
}
