"""Values of theirs that need more than a word: put together from several keys, or used only beside
another one.

Owns one function a key: (value, all that the script says) → settings of ours, or a sentence why
there are none ("": a person has to decide). Keys of `defaults` stand for the role that plays.
Refuses to know how rows are printed."""

from collections.abc import Callable
from typing import Any

from ssp.extras.migration.systems import ONE_KL, Facts

Settings = dict[str, Any]
Made = Settings | str
Special = Callable[[Any, Facts], Made]

SPECIAL: dict[str, Special] = {}
"""Key of theirs → what its value is here."""
NUMBERS: set[str] = set()
"""Those of these keys whose value is a number."""

ACTOR, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
FILTER, SAMPLING = "algorithm.filter_groups", "self_play.reward_dynamic_sampling"
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
WITHOUT_KL_LOSS = "not used there without use_kl_loss"
BESIDE_KL_LOSS = "not used there beside use_kl_loss"


def _of(*keys: str, number: bool = False) -> Callable[[Special], Special]:
    """Mark the function that says what these keys of theirs are here. `number`: their value is a
    number; another one is a matter for a person."""

    def mark(special: Special) -> Special:
        SPECIAL.update(dict.fromkeys(keys, special))
        if number:
            NUMBERS.update(keys)
        return special

    return mark


@_of(f"{ACTOR}clip_ratio", number=True)
def _clip(value: float, facts: Facts) -> Made:
    free = [side for side in ("low", "high") if facts.get(f"{ACTOR}clip_ratio_{side}") is None]
    if not free:
        return "clip_ratio_low and clip_ratio_high say it"
    return {f"defaults.clip_{side}": value for side in free}


@_of(f"{ACTOR}ppo_mini_batch_size", number=True)
def _minibatch(value: float, facts: Facts) -> Made:
    """Search-R1 and its fork count episodes, the others questions."""
    usual = facts.number("worker.rollout.n", facts.base["game.attempts"])
    attempts = facts.number(f"{ROLLOUT}n", usual)
    episodes = value if facts.system == "search-r1" else value * attempts
    return {"defaults.learner.minibatch": int(episodes)}


@_of("worker.rollout.n", number=True)
def _n(value: float, facts: Facts) -> Made:
    return {"game.attempts": value} if facts.role == "solver" else "all of its batch is one group"


@_of("data.rollout_batch_size", number=True)
def _rollout_batch(value: float, facts: Facts) -> Made:
    """A challenger is asked for n questions by each row."""
    each = facts.number("worker.rollout.n", 1) if facts.role == "challenger" else 1
    return {"defaults.batch": int(value * each)}


@_of(f"{ACTOR}ppo_max_token_len_per_gpu", number=True)
def _token_budget(value: float, facts: Facts) -> Made:
    if not facts.on(f"{ACTOR}use_dynamic_bsz"):
        return "not used there without use_dynamic_bsz; the recipe's learner.token_budget stays"
    return {"defaults.learner.token_budget": value}


@_of(f"{ACTOR}optim.lr_warmup_steps", number=True)
def _warmup(value: float, facts: Facts) -> Made:
    return {"defaults.learner.warmup_steps": value} if value >= 0 else "below 0: the ratio counts"


@_of(f"{ACTOR}optim.lr_warmup_steps_ratio", number=True)
def _warmup_ratio(value: float, facts: Facts) -> Made:
    if facts.number(f"{ACTOR}optim.lr_warmup_steps", -1) >= 0:
        return "not used there beside lr_warmup_steps"
    steps = facts.number("trainer.total_training_steps", facts.base["steps"])
    return {"defaults.learner.warmup_steps": int(value * steps)}


@_of(f"{ACTOR}optim.betas")
def _betas(value: Any, facts: Facts) -> Made:
    return {"defaults.learner.beta2": value[-1]} if isinstance(value, list) and value else ""


@_of(
    *(f"{ACTOR}fsdp_config.{name}_offload" for name in ("param", "grad", "optimizer")),
    f"{ACTOR}fsdp_config.offload_policy",
)
def _offload(value: Any, facts: Facts) -> Made:
    weights = ("param_offload", "grad_offload", "offload_policy")
    if any(facts.on(f"{ACTOR}fsdp_config.{name}") for name in weights):
        return {"defaults.learner.offload": "all", "defaults.learner.zero": 3}
    optimizer = facts.on(f"{ACTOR}fsdp_config.optimizer_offload")
    return {"defaults.learner.offload": "optimizer" if optimizer else "none"}


@_of("algorithm.norm_adv_by_std_in_grpo")
def _norm(value: Any, facts: Facts) -> Made:
    grpo = facts.get("algorithm.adv_estimator", "grpo") == "grpo"
    return {"defaults.algorithm": "dr_grpo"} if grpo and not value else RECIPES


@_of(f"{ACTOR}use_kl_loss")
def _use_kl(value: Any, facts: Facts) -> Made:
    if value is True:
        return {"defaults.kl.place": "loss"}
    if facts.system in ONE_KL or facts.on("algorithm.use_kl_in_reward"):
        return {"defaults.kl.place": _kl_place(facts)}
    return {"defaults.kl.coef": 0.0}


@_of(f"{ACTOR}kl_loss_type")
def _kl_loss_type(value: Any, facts: Facts) -> Made:
    return _kl_kind(value, facts) if _counts(facts) else WITHOUT_KL_LOSS


@_of("algorithm.kl_penalty")
def _kl_penalty(value: Any, facts: Facts) -> Made:
    return _kl_kind(value, facts) if facts.kl_in_reward else BESIDE_KL_LOSS


def _kl_kind(value: Any, facts: Facts) -> Made:
    if str(value).startswith("full_") and facts.get(f"{ACTOR}kl_topk_tokens") is None:
        return {"defaults.kl.kind": "full"} if value == "full_reverse" else ""
    return {"defaults.kl.kind": KL[value]} if isinstance(value, str) and value in KL else ""


@_of(f"{ACTOR}kl_loss_coef", number=True)
def _kl_loss_coef(value: float, facts: Facts) -> Made:
    return {"defaults.kl.coef": value} if _counts(facts) else WITHOUT_KL_LOSS


def _counts(facts: Facts) -> bool:
    """Whether the keys of a KL in the loss count: R-Zero has the same for one in the reward."""
    return facts.kl_in_loss or (facts.system == "r-zero" and facts.kl_in_reward)


@_of("algorithm.kl_ctrl.kl_coef", number=True)
def _kl_coef(value: float, facts: Facts) -> Made:
    return {"defaults.kl.coef": value} if facts.kl_in_reward else BESIDE_KL_LOSS


@_of(f"{ACTOR}kl_topk_tokens", number=True)
def _kl_topk(value: float, facts: Facts) -> Made:
    return {"solver.kl.topk": value}


@_of("algorithm.use_kl_in_reward")
def _kl_in_reward(value: Any, facts: Facts) -> Made:
    return {"defaults.kl.place": _kl_place(facts)} if value is True else RECIPES


@_of("algorithm.apply_kl_after_advantage", "algorithm.use_future_kl_as_reward")
def _kl_after(value: Any, facts: Facts) -> Made:
    place = _kl_place(facts)
    if value is True and facts.on("algorithm.use_kl_in_reward") and place != "reward":
        return {"defaults.kl.place": place}
    return "off there: it counts with use_kl_in_reward and apply_kl_after_advantage"


def _kl_place(facts: Facts) -> str:
    """Where a KL counts that is not in the loss."""
    if not facts.on("algorithm.apply_kl_after_advantage"):
        return "reward"
    return "future" if facts.on("algorithm.use_future_kl_as_reward") else "advantage"


@_of(f"{ROLLOUT}max_turns", number=True)
def _max_turns(value: float, facts: Facts) -> Made:
    return {"defaults.limits.searches": value}


@_of(f"{ROLLOUT}multi_turn.max_assistant_turns", "rllm.agent.max_steps", number=True)
def _max_steps(value: float, facts: Facts) -> Made:
    """verl counts turns, of which the last one answers."""
    return {"defaults.limits.searches": value - 1}


@_of("max_turns", number=True)
def _search_r1_turns(value: float, facts: Facts) -> Made:
    return {"defaults.limits.searches": value, "defaults.limits.retries": value}


@_of("data.max_turns", number=True)
def _real_searches(value: float, facts: Facts) -> Made:
    if not facts.on("trainer.sim2real"):
        return "of live search (trainer.sim2real)"
    return {"solver.search.kind": f"first_{value}"}


@_of("data.max_prompt_length", number=True)
def _prompt(value: float, facts: Facts) -> Made:
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


@_of("data.max_response_length", number=True)
def _response(value: float, facts: Facts) -> Made:
    """In Search-R1 what one turn may have."""
    if facts.system == "search-r1":
        return {"defaults.limits.turn_tokens": value}
    return _divided(facts)


def _divided(facts: Facts) -> Settings:
    """The response's tokens, divided among turns and observations in the recipe's shares."""
    before, total = facts.limit("prompt_tokens"), facts.limit("total_tokens")
    prompt = int(facts.number("data.max_prompt_length", before))
    room = int(facts.number("data.max_response_length", total - before))
    there, here = facts.limit("searches"), _searches(facts)
    if facts.system == "r-zero":  # one turn answers; what is searched finds nothing
        turn = int(facts.number("data.max_response_length", facts.limit("turn_tokens")))
        shown = facts.limit("observation_tokens")
        return {
            "defaults.limits.prompt_tokens": prompt,
            "defaults.limits.turn_tokens": turn,
            "defaults.limits.total_tokens": prompt + turn * (there + 1) + shown * there,
        }
    settings: Settings = {
        "defaults.limits.prompt_tokens": prompt,
        "defaults.limits.total_tokens": prompt + room,
    }
    if here <= 0 or there == 0:
        return settings | {"defaults.limits.turn_tokens": room}

    scale = room / (total - before)
    turns = facts.limit("turn_tokens") * (there + 1)
    shown = facts.limit("observation_tokens") * there
    settings["defaults.limits.turn_tokens"] = round(turns * scale) // (here + 1)
    settings["defaults.limits.observation_tokens"] = round(shown * scale) // here
    return settings


def _searches(facts: Facts) -> int:
    """Searches of an episode, by whichever key says how many turns it has."""
    for key in (f"{ROLLOUT}multi_turn.max_assistant_turns", "rllm.agent.max_steps"):
        turns = facts.number(key, 0)
        if turns > 0:
            return int(turns) - 1
    return int(facts.number(f"{ROLLOUT}max_turns", facts.limit("searches")))


@_of("data.train_files")
def _train_files(value: Any, facts: Facts) -> Made:
    files = value if isinstance(value, list) else [value]
    if len(files) != 1:
        return "by hand: put the files together (ssp data merge)"
    return {"data.targets" if facts.system == "ssp" else "data.questions": str(files[0])}


@_of("data.val_files")
def _eval_files(value: Any, facts: Facts) -> Made:
    files = value if isinstance(value, list) else [value]
    corpus = "none" if facts.system in ("ssrl", "r-zero") else facts.base["data.corpus"]
    sets = []
    for number, file in enumerate(files, start=1):
        sets.append({"name": f"set{number}", "file": str(file), "corpus": corpus})
    return {"data.eval": sets}


@_of(f"{ROLLOUT}search_url", "data.search_url")
def _address(value: Any, facts: Facts) -> Made:
    url = str(value)
    if not url.startswith(("http://", "https://")):
        what = "the address of a server that speaks /retrieve (ssp serve does)"
        return f"by hand: retriever.url, {what}"
    return {"retriever.url": url}


@_of(f"{FILTER}.enable", f"{FILTER}.max_num_gen_batches")
def _filter_groups(value: Any, facts: Facts) -> Made:
    return _refill(facts, FILTER, 0)


@_of(f"{SAMPLING}.enable", f"{SAMPLING}.max_num_gen_batches")
def _dynamic_sampling(value: Any, facts: Facts) -> Made:
    return _refill(facts, SAMPLING, 20)


def _refill(facts: Facts, block: str, usual: int) -> Made:
    """How often a batch is refilled; a number that is not above 0 means without end."""
    if not facts.on(f"{block}.enable"):
        return RECIPES
    most = int(facts.number(f"{block}.max_num_gen_batches", usual))
    return {"game.refill": min(most, 64) if most > 0 else 64}


def _score(option: str) -> None:
    """What one of Search-R1's format scores is here."""

    @_of(f"reward_model.{option}_score", number=True)
    def score(value: float, facts: Facts) -> Made:
        name = option.removesuffix("_format")
        return {"solver.reward": "format_em", f"solver.reward_options.{name}": float(value)}


for _option in ("final_format", "retrieval", "structure_format"):
    _score(_option)


@_of("trainer.n_gpus_per_node", number=True)
def _nodes(value: float, facts: Facts) -> Made:
    nodes = int(facts.number("trainer.nnodes", 1))
    gigabytes = str(facts.base["placement.nodes"]).rpartition("x")[2] or 80
    return {"placement.nodes": f"{nodes}x{value}x{gigabytes}"}


@_of("trainer.save_freq", number=True)
def _save(value: float, facts: Facts) -> Made:
    return {"save.every": value} if value > 0 else "never there; the recipe's save.every stays"


@_of("trainer.save_limit", number=True)
def _keep(value: float, facts: Facts) -> Made:
    return {"save.keep": value} if value > 0 else "all stay there; the recipe's save.keep stays"


@_of("trainer.total_epochs", number=True)
def _epochs(value: float, facts: Facts) -> Made:
    if facts.get("trainer.total_training_steps") is not None:
        return "not used there beside total_training_steps"
    batch = facts.get("data.train_batch_size", facts.base["solver.batch"])
    return f"by hand: steps = {value} x rows / {batch}; the recipe has {facts.base['steps']}"


@_of("trainer.logger")
def _logger(value: Any, facts: Facts) -> Made:
    return {"telemetry.wandb": "online" if "wandb" in str(value) else "none"}
