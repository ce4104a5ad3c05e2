"""Settings that do not go together are refused, with what says so; those beside them are let through. Of more than values alone:
that is `test_config_rules`."""

from __future__ import annotations

import pytest

from ssp.base.errors import InputError
from ssp.selfplay.settings import load

DATASET = "game.questions=dataset data.questions=world:train"
SHARED = "defaults.policy=shared"
TOGETHER = "defaults.learner.combine=true proposer.learner.lr=1e-3 solver.learner.lr=1e-3"
LIVE = "schedule.in_flight=true"
BOTH = f"schedule.preset=one-step-off proposer.loss=tis {LIVE}"
STALE = f"schedule.max_staleness.solver=1 {LIVE}"
TURNS = "placement.layout=colocate placement.engine_gpus=0.5 placement.learner_gpus=0.5 defaults.engine.kind=vllm"
KL = "solver.kl.coef=0.1"
DROP = "solver.limits.overflow=drop"
LLM = "judge.kind=llm judge.url=http://127.0.0.1:5000/v1 judge.model=m"
BY_JUDGE = "referee.verifier=judge referee.evidence=none"
PARTS = "prompt_tokens=10 turn_tokens=20 observation_tokens=30 searches=2 retries=4".split()
LIMITS = " ".join(f"solver.limits.{part}" for part in PARTS)
"""Of episodes of at most 10 + 20 * 3 + 30 * 2 = 130 tokens: an invalid turn counts as a search."""

REFUSED = {
    "who asks, and who learns when": [
        ("game.questions=dataset", "data.questions"),
        ("game.questions=bank", "data.questions"),
        ("data.questions=q.jsonl", "game.questions=dataset"),
        ("game.questions=bank data.questions=world:train", "earlier run"),
        (f"{DATASET} game.batch=replay", "game.batch=replay"),
        (f"{DATASET} game.batch=resample", "game.batch=resample"),
        (f"{DATASET} schedule.max_staleness.proposer=1", "max_staleness.proposer=1"),
        (f"{DATASET} proposer.warmup_steps=1", "proposer.warmup_steps=1"),
        (f"{DATASET} solver.warmup_steps=1", "solver.learner.warmup_steps"),
        (f"{DATASET} solver.policy=frozen", "at least one role learns"),
        ("defaults.policy=frozen", "at least one role learns"),
        ("defaults.warmup_steps=1", "solver.warmup_steps=1"),
        ("proposer.warmup_steps=3 proposer.freeze_after=2", "freeze_after=2"),
        ("solver.warmup_steps=3 solver.policy=frozen", "policy=frozen"),
        ("game.batch=resample proposer.invalid_reward=-0.1", "invalid_reward=-0.1"),
        ("solver.batch=20000", "has at most 65536 episodes"),
        ("game.refill=64 solver.batch=400", "or game.refill, smaller"),
        ("game.refill=2 game.batch=resample", "set game.batch=dummy"),
        ("game.refill=2 solver.policy=frozen", "solver.policy=frozen"),
        ("judge.kind=llm judge.url=http://127.0.0.1:1/v1 judge.model=m judge.format=wrod", "or a text file"),
        ("proposer.reward_options.guide=odd", "guide is judge, verifier, or my_file.py:function"),
        ("proposer.reward_options.guide=judge", "judge.model is the endpoint's name"),
        (
            "proposer.reward_options.guide=verifier referee.verifier=none referee.evidence=none",
            "guide=verifier is the likelihood",
        ),
        ("solver.reward_options.search_cost=-0.1", "search_cost is a finite number of at least 0"),
        ("proposer.reward_options.search_cost=0.1", "proposer.reward_options takes these options: none"),
        ("protocol=recall solver.reward=format_em", "reads the tags think, search, information, answer"),
        ("protocol=search-r1 solver.reward=research", "has no result"),
        ("solver.limits.overflow=drop solver.algorithm=grpo_turns", "one advantage an episode"),
        ("solver.search.kind=entropy solver.algorithm=grpo_turns", "information of one's own splits"),
        ("game.refill=2 solver.algorithm=reinforce_pp_baseline", "solver.algorithm=grpo"),
    ],
    "how a role learns": [
        ("solver.rehearsal.share=0.2", "which warmup.data names"),
        (f"{KL} solver.kl.kind=k1", "solver.kl.kind=k1 has no gradient in expectation"),
        (f"{KL} solver.kl.kind=full solver.kl.place=reward", "set solver.kl.place=loss, or solver.kl"),
        ("proposer.algorithm=hrpo proposer.kl.coef=0.1 proposer.kl.place=reward", "set proposer.kl.place=loss, or"),
        ("solver.clip_dual=0.5", "solver.clip_dual is 0 (none) or above 1"),
        ("solver.clip_dual=1", "solver.clip_dual is 0 (none) or above 1"),
        ("solver.learner.minibatch=8 solver.loss=pg", "add solver.loss=ppo_clip, or set solver.learner.minibatch=0"),
        (f"{DROP} solver.algorithm=gae", "set solver.limits.overflow=stop"),
        (f"{DROP} solver.kl.place=reward solver.kl.coef=1", "set solver.limits.overflow=stop"),
        ("proposer.algorithm=rloo", "set proposer.algorithm=reinforce"),
        ("solver.algorithm=rloo game.attempts=1", "set game.attempts=6, or solver.algorithm=reinforce"),
        ("proposer.sampling.temperature=0", "above 0 for a role that learns"),
    ],
    "a learner's program": [
        ("solver.learner.zero=3", "solver.learner.zero counts only with solver.learner.kind=deepspeed"),
        ("solver.learner.offload=optimizer", "offload counts only with"),
        ("solver.learner.kind=deepspeed solver.learner.offload=all", "which solver.learner.zero=3 makes"),
        ("solver.learner.lora.rank=4 solver.kl.coef=0.1 solver.kl.ema_tau=0.9", "does not move"),
        ("solver.learner.ranks=2", "has one rank"),
        ("defaults.learner.ranks=2 proposer.policy=frozen solver.learner.kind=deepspeed", "has one rank"),
    ],
    "a policy of both roles": [
        ("solver.policy=shared", "policy=shared is one policy for both roles"),
        ("solver.policy=shared proposer.policy=frozen", "policy=shared is one policy for both roles"),
        (f"{SHARED} {DATASET}", "where nobody proposes"),
        (f"{SHARED} solver.model=other", "policy=shared have one model"),
        (f"{SHARED} solver.learner.lora.rank=4", "policy=shared have one learner"),
        (f"{SHARED} proposer.engine.dtype=bfloat16", "engine.dtype: bfloat16 and float32"),
        (f"{SHARED} proposer.engine.device=cpu", "engine.device: cpu and auto"),
        (f"{SHARED} proposer.learner.combine=true", "one learner"),
        (f"{SHARED} defaults.learner.combine=true", "with combine=true one learning rate"),
        (f"{SHARED} schedule.max_staleness.solver=1", "one staleness bound"),
        (f"{SHARED} proposer.algorithm=gae", "a critic of one role"),
        (f"{SHARED} solver.kl.coef=0.1 solver.kl.ema_tau=0.9", "does not move"),
        (f"{SHARED} solver.loss=pg", "takes the proposer's step first"),
        (f"{SHARED} solver.sampling.temperature=0", "above 0 for a role that learns"),
        (f"{SHARED} game.attempts=1", "compares attempts"),
    ],
    "weights on their way": [
        (LIVE, "there is none"),
        (f"schedule.max_staleness.proposer=1 proposer.loss=tis proposer.policy=frozen {LIVE}", "there is none"),
        (f"{BOTH} proposer.algorithm=reinforce", "share no baseline"),
        (f"{BOTH} proposer.algorithm=reinforce_pp", "share no baseline"),
        (f"{BOTH} proposer.algorithm=gae", "share no baseline"),
        (f"{BOTH} proposer.algorithm=grpo game.proposals=2", "share no baseline"),
    ],
    "an engine's kind": [
        ("solver.engine.kind=endpoint", "http(s) base address"),
        ("solver.engine.tensor_parallel=2", "solver.engine.tensor_parallel belongs to engine.kind=vllm"),
        ("defaults.engine.memory=0.5", "proposer.engine.memory belongs to engine.kind=vllm"),
        ("solver.engine.kind=vllm solver.engine.url=http://h/v1", "solver.engine.url belongs to engine.kind=endpoint"),
        ("solver.engine.simulated.tokens=9", "solver.engine.simulated belongs to"),
        ("solver.engine.kind=simulated", "solver.learner.kind is simulated where"),
        ("solver.learner.kind=simulated", "solver.learner.kind is simulated where"),
        ("defaults.engine.kind=simulated defaults.learner.kind=simulated", "referee.verifier is none where"),
    ],
    "what is checked": [
        ("referee.verifier=none", "referee.evidence checks what the verifier quotes"),
        ("referee.rules=[no_search] proposer.limits.searches=1", "proposer.limits.searches is at least 2"),
        ("referee.rules=[malformed,leakge]", "Found: leakge. Next: use some of malformed, empty"),
        ("referee.rules=[leakage,leakage]", "Found: leakage, leakage. Next: remove the repeated one"),
    ],
    "a judge": [
        ("judge.kind=llm judge.url=http://127.0.0.1:5000/v1", "judge.model"),
        (BY_JUDGE, "judge.model"),
        ("judge.kind=llm judge.model=m", "judge.url"),
        (f"{BY_JUDGE} judge.model=m", "judge.url"),
        (f"{LLM} judge.url=127.0.0.1:5000", "judge.url"),
        (f"{LLM} judge.url=http://[1/v1", "judge.url"),
        (f"{LLM} judge.url=http://h:port/v1", "judge.url"),
        (f"{LLM} judge.url=ftp://h/v1", "judge.url"),
        (f"{LLM} judge.format=prose", "judge.format"),
        ("judge.kind=oracle", "judge.kind"),
    ],
    "an episode, an evaluation, a run": [
        (f"{LIMITS} solver.limits.total_tokens=129", "129 against 10 + 60 + 60 = 130"),
        ("solver.limits.total_tokens=24", "turn_tokens is below solver.limits.total_tokens"),
        ("data.eval=[{name:a},{name:a}]".replace(":", ": "), "evaluation set"),
        ("data.eval=[]", "evaluation set"),
        ("run.name=a/b", "run.name is one folder name"),
    ],
}
ALLOWED = [
    "judge.format=/moved/rubric.txt",  # a run's own rubric may be gone where no endpoint is asked
    f"{DATASET} schedule.preset=async",  # it says something about a role that does not play: no harm
    f"{DATASET} proposer.policy=frozen proposer.limits.searches=0",
    f"{DATASET} referee.evidence=chain referee.verifier=none",
    f"{DATASET} {STALE}",
    "game.questions=bank data.questions=runs/quickstart-001",
    "solver.warmup_steps=3 solver.freeze_after=3",
    "proposer.warmup_steps=5 solver.policy=frozen",
    "game.batch=resample",
    f"{DATASET} game.refill=3 solver.kl.coef=0.1",
    "game.batch=replay_reset",
    "game.refill=2 game.batch=replay",
    "game.attempts=1 solver.policy=frozen",
    "proposer.policy=frozen proposer.sampling.temperature=0",
    "proposer.policy=frozen proposer.clip_dual=0.5",
    "solver.rehearsal.share=0.2 warmup.data=traces.jsonl",
    "solver.policy=frozen solver.rehearsal.share=0.2",
    "solver.reward_options.search_cost=0.1",
    "solver.lam=0.9 solver.critic.lr=1e-4 solver.algorithm=reinforce_running",
    "solver.loss=tis solver.clip_high=0.3",
    f"{KL} solver.kl.topk=8 solver.kl.ema_tau=0.5",
    "defaults.learner.kind=deepspeed defaults.learner.zero=3 defaults.learner.offload=all",
    "defaults.learner.kind=deepspeed defaults.learner.ranks=2 defaults.engine.dtype=bfloat16",
    "defaults.learner.lora.rank=8",
    f"solver.learner.checkpointing=true {KL} solver.kl.ema_tau=0.9",
    SHARED,
    f"{SHARED} {TOGETHER} solver.loss=pg solver.learner.minibatch=0",
    f"{SHARED} schedule.preset=one-step-off proposer.loss=tis {KL} proposer.learner.minibatch=4",
    f"{SHARED} defaults.learner.lora.rank=8 defaults.learner.kind=deepspeed defaults.learner.ranks=2",
    f"{BOTH} proposer.algorithm=grpo",
    f"{BOTH} proposer.algorithm=rae",
    f"{BOTH} proposer.algorithm=reinforce_running",
    f"{BOTH} proposer.policy=frozen",
    f"{STALE} proposer.algorithm=grpo",
    f"proposer.loss=tis {LIVE} schedule.max_staleness.proposer=1",
    f"proposer.loss=tis {LIVE} schedule.max_staleness.proposer=1 proposer.algorithm=reinforce",  # one solver grades
    "referee.rules=[no_search] proposer.limits.searches=2",
    "referee.verifier=none referee.evidence=none",
    "referee.verifier=solver",
    f"{LLM} judge.url=https://judge.example/v1",
    f"{LLM} judge.format=json",
    f"{LLM} {BY_JUDGE}",
    "judge.url= judge.format=json",
    "proposer.reward=format_only",
    "data.eval=[] eval.every=0",
    f"{LIMITS} solver.limits.total_tokens=130",
]


def words(typed: str) -> list[str]:
    """As the shell gives them; a list with blanks in it is one word."""
    return [typed] if "[{" in typed else typed.split()


@pytest.mark.parametrize(("typed", "said"), [row for rows in REFUSED.values() for row in rows])
def test_what_does_not_go_together_is_refused(typed: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load("quickstart", words(typed))
    assert said in str(caught.value)


@pytest.mark.parametrize("typed", ALLOWED)
def test_what_goes_together_is_let_through(typed: str) -> None:
    """Given questions have no proposer; the torch engine plays each episode on its own where weights may come within a turn."""
    cfg = load("quickstart", words(typed))
    assert cfg.roles == (("proposer", "solver") if cfg.game.questions == "proposer" else ("solver",))
    for role in ("proposer", "solver"):
        flies = cfg.schedule.in_flight and cfg.schedule.max_staleness[role] > 0
        assert cfg.block(role).engine.continuous is flies
