"""Plans on described nodes: by hand, for the shipped recipes, and what must hold of any."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launch import main as console
from ssp.base.errors import InputError
from ssp.capacity import memory
from ssp.capacity.memory import GB
from ssp.capacity.memory.processes import processes, published
from ssp.capacity.placement import GpuSlot, Plan, PlannedSeat, Unit, assign, make
from ssp.capacity.placement.plan import needs_of
from ssp.config.nodes import Node, parse
from ssp.config.schema import Config
from ssp.selfplay.settings import load

ROOT = Path(__file__).parents[2] / "configs"


def laid(plan: Plan) -> list[list[list[str]]]:
    """Node → GPU → who sits there, as `process index/rank`."""
    found: list[list[list[str]]] = [[[] for _ in range(node.gpus)] for node in plan.nodes]
    for slot, there in plan.tenants().items():
        for unit, bundle in there:
            found[slot.node][slot.gpu] += [f"{s.process} {s.index}/{s.rank}" for s in unit.seats if s.bundle == bundle]
    return found


def test_nodes_are_read() -> None:
    assert parse("4x8x80") == [Node(f"node {i}", 8, 80 * GB) for i in range(4)]
    mixed = parse("1x8x80x2000, 2x4x40")
    assert [(node.gpus, node.gpu // GB, node.host // GB) for node in mixed] == [(8, 80, 2000), (4, 40, 0), (4, 40, 0)]
    for wrong in ("8", "4x8", "0x8x80", "axbxc", "4x8x80,", "2000x1x80"):
        with pytest.raises(InputError, match="nodes x GPUs x GB"):
            parse(wrong)


def test_a_cpu_machine_has_no_units() -> None:
    plan = make(load("quickstart"), [Node("here", 0)])
    assert plan.placed == [] and plan.used() == {} and plan.seated(0) == {}


def test_gpu1_shares_one_gpu() -> None:
    plan = make(load("gpu1"), parse("1x1x80"))
    assert laid(plan) == [[["engine 0/0", "learner-proposer 0/0", "learner-solver 0/0"]]]
    (unit, _), known = plan.placed[0], plan.known
    three = [known[name] for name in ("engine", "learner-proposer", "learner-solver")]
    always = sum(process.device(turn=False) for process in three)
    assert needs_of(unit, known, 0) == always + max(process.device(turn=True) for process in three)
    engine = {need.what: need.bytes for need in known["engine"].needs}
    parts = ("weights", "adapters", "KV cache", "workspace")
    assert sum(engine[part] for part in parts) == 40 * GB  # half of the GPU
    cfg = load("gpu1")
    one = memory.find("Qwen2.5-3B").shape.adapter(64)  # type: ignore[union-attr]
    assert engine["adapters"] == 2 * 2 * one  # bfloat16, two of them
    assert {"proposer", "solver"}.isdisjoint(known)  # the engine's process plays
    assert published(cfg) == 2 * 2 * 4 * one  # two versions of each in float32: adapters travel, not models


GPU8 = load("gpu8", ["proposer.learner.ranks=2", "solver.learner.ranks=2"])
"""The recipe with two equal learners."""


def test_gpu8_by_hand() -> None:
    learners = [[f"learner-solver {rank}/0"] for rank in range(3)]
    players = [["proposer 0/0"], ["solver 0/0"], ["solver 1/0"], ["solver 2/0"]]
    assert laid(make(load("gpu8"), parse("1x8x80"))) == [[*learners, *players, ["learner-proposer 0/0"]]]


def test_gpu32_by_hand() -> None:
    """The largest first: the solver's 8 ranks fill a node, the proposer's 4 ranks and engines of 2 the rest."""
    plan = laid(make(load("gpu32"), parse("4x8x80")))
    assert plan[0] == [[f"learner-solver {rank}/0"] for rank in range(8)]
    assert plan[1][:4] == [[f"learner-proposer {rank}/0"] for rank in range(4)]
    pairs = [gpu for node in plan[1:] for gpu in node if gpu[0].startswith("solver")]
    assert pairs == [[f"solver {engine}/{rank}"] for engine in range(8) for rank in range(2)]
    assert plan[3][4:] == [[f"proposer {engine}/0"] for engine in range(4)]


@pytest.mark.parametrize("name", ["gpu1", "gpu8", "gpu8-own", "gpu32"])
def test_the_shipped_recipes_fit_and_print_their_tables(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert console.main(["train", "--config", name, "--dry-run"]) == 0
    out = capsys.readouterr().out
    placement, gpus = out.split("# Placement")[1].split("# GPU memory")
    assert placement.count("GB of 78.4 GB") == int(name.removeprefix("gpu").removesuffix("-own"))
    assert "moments" in gpus and "KV cache" in gpus and "activations" in gpus and "# Memory of the hosts" in gpus


def ranks(name: str, count: int) -> Unit:
    """A learner, which may lie on several nodes."""
    return Unit(name, (1.0,) * count, tuple(PlannedSeat(name, i, 0, i, 1.0) for i in range(count)), together=False)


ENGINE_OF_TWO = Unit("engine", (1.0,) * 2, tuple(PlannedSeat("engine", 0, i, i, 1.0) for i in range(2)))


def test_a_learner_spreads_only_when_it_must() -> None:
    whole = assign([ranks("learner", 6), ENGINE_OF_TWO], [8, 8])
    assert whole is not None and {slot.node for slot in whole["learner"]} == {0}
    split = assign([ranks("learner", 6), ENGINE_OF_TWO], [4, 4])
    assert split is not None and {slot.node for slot in split["engine"]} == {0}
    assert [(slot.node, slot.gpu) for slot in split["learner"]] == [(1, 0), (1, 1), (1, 2), (1, 3), (0, 2), (0, 3)]


def test_learners_that_would_block_an_engine_give_way() -> None:
    """Two learners of 3 whole leave 1 + 1 of 4 + 4 GPUs; the engine of 2 needs a node."""
    found = assign([ranks("a", 3), ranks("b", 3), ENGINE_OF_TWO], [4, 4])
    assert found is not None and len({slot.node for slot in found["engine"]}) == 1


def big(**changed: Any) -> Config:
    cfg = copy.deepcopy(GPU8)
    for key, value in changed.items():
        at: Any = cfg
        *path, last = key.split("__")
        for step in path:
            at = getattr(at, step)
        assert hasattr(at, last), key
        setattr(at, last, value)
    return cfg


@pytest.mark.parametrize(
    ("nodes", "found", "step"),
    [
        ("1x4x80", "4 GPUs on 1 nodes, 8 are asked for", "placement.solvers, learner.ranks"),
        ("1x8x24", "GPU 0 of node 0 needs 26.8 GB, 3372 MB too much", "lower learner.token_budget"),
        ("1x8x80x300", "node 0 needs .* more than it has; the largest process is learner", "token_budget"),
        ("1x8x16", "KV cache for .* of one episode of 12288 tokens", "engine.tensor_parallel"),
        ("1x8x80x2000,1x8x80x1", "node 1 needs .* more than it has; Ray's object store", "token_budget"),
    ],
)
@pytest.mark.covers("U4")
def test_what_does_not_fit_says_what_is_missing_and_what_to_type(nodes: str, found: str, step: str) -> None:
    cfg = big() if "," in nodes else GPU8
    with pytest.raises(InputError, match=found) as refused:
        make(cfg, parse(nodes))
    assert step in str(refused.value)


@pytest.mark.parametrize(("ranks", "fits"), [(2, True), (3, False), (4, True), (7, False)])
def test_ranks_of_an_engine_part_the_models_heads(ranks: int, fits: bool) -> None:
    """Qwen2.5-7B has 28 of queries, 4 of keys."""
    cfg = load("gpu8", [f"defaults.engine.tensor_parallel={ranks}"])
    if fits:
        make(cfg, parse("1x64x80"))
    else:
        with pytest.raises(InputError, match=f"Found: {ranks}, with 28 heads and 4 of keys"):
            make(cfg, parse("1x64x80"))


def test_what_is_not_here_is_named_and_what_only_waits_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = load("gpu8", ["retriever.reranker=no/where"])
    said = " ".join(memory.notes(cfg))
    assert "data/wiki-18-e5 is not here" in said and "no/where" in said
    assert published(load("simulated", ["defaults.model=Qwen/Qwen2.5-7B-Instruct"])) == 0
    (tmp_path / "corpus.jsonl").write_bytes(b" " * 10**8)
    monkeypatch.setenv("SSP_HOME", str(tmp_path))
    (row,) = [row for row in processes(load("quickstart", ["data.corpus=corpus.jsonl"])) if row.name == "retriever"]
    assert row.on_host > 2 * 10**8, "a corpus counts from where it is read"


@pytest.mark.covers("U4")
def test_a_refused_dry_run_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["defaults.learner.offload=none", "placement.nodes=1x8x72"]
    assert console.main(["train", "--config", "gpu8", "--dry-run", *typed]) == 2
    shown = capsys.readouterr()
    assert "moments" in shown.out and "learner.offload=all" in shown.err
    assert console.main(["train", "--dry-run", "placement.nodes=1x0x0x2"]) == 2  # memory that is typed is a limit
    assert "set placement.solvers=1 placement.proposers=1" in capsys.readouterr().err


def test_colocated_learners_sit_with_their_own_engines() -> None:
    cfg = big(placement__layout="colocate", placement__engine_gpus=0.5, placement__learner_gpus=0.5)
    cfg.placement.players = {"proposer": 4, "solver": 4}
    for role in (cfg.proposer, cfg.solver):
        role.engine.memory, role.learner.ranks = 0.4, 4
    plan = make(cfg, parse("1x8x80"))
    roles = ("proposer", "solver")
    assert laid(plan) == [[[f"{role} {i}/0", f"learner-{role} {i}/0"] for role in roles for i in range(4)]]
    cfg.solver.learner.ranks = 8
    with pytest.raises(InputError, match="share the GPUs of solver, one each"):
        make(cfg, parse("1x8x80"))


def test_shards_share_a_gpu_and_their_bytes_add_up() -> None:
    cfg = big(retriever__gpus=0.25, retriever__shards=4, placement__players={"proposer": 1, "solver": 2})
    plan = make(cfg, parse("1x8x80"))
    assert laid(plan)[0][7] == [f"retriever {i}/0" for i in range(4)]
    one = plan.known["retriever"].device()
    assert plan.used()[GpuSlot(0, 7)] == 4 * one > 0


@pytest.mark.parametrize(
    ("typed", "rule"),
    [
        ("placement.engine_gpus=0.5", "are 0 or 1 where each has GPUs of its own"),
        ("solver.engine.device=cpu solver.policy=frozen", r"solver\.engine\.device belongs to engine\.kind=torch"),
        ("placement.layout=colocate", r"engine_gpus \+ learner_gpus is at most 1"),
        ("placement.layout=colocate placement.engine_gpus=0.5 placement.learner_gpus=0.5", "take turns"),
        ("placement.layout=shared-base", "adapter each"),
        ("placement.nodes=eight", "nodes x GPUs x GB"),
        ("retriever.gpus=1.5", "a part of a GPU, or a whole number"),
    ],
)
def test_shares_that_could_have_no_effect_are_refused(typed: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        load("gpu8", typed.split())


def test_the_learner_reads_the_device_beside_an_engine_that_does_not() -> None:
    """vLLM keeps its GPU, and its role's learner computes on the CPU."""
    plan = make(load("gpu8", ["solver.engine.device=cpu"]), parse("1x8x80"))
    assert {name: plan.known[name].gpus for name in ("solver", "learner-solver", "learner-proposer")} == {
        "solver": 1,
        "learner-solver": 0,
        "learner-proposer": 1,
    }
    on_card = load("gpu8", ["defaults.engine.device=cuda", "defaults.engine.dtype=auto"])
    assert on_card.solver.learner.device == "cuda" and on_card.solver.learner.dtype == "bfloat16"
    with pytest.raises(InputError, match="device=cuda needs GPUs .*learner_gpus=0"):
        make(load("gpu8", ["defaults.engine.device=cuda", "placement.learner_gpus=0"]), parse("1x8x80"))


def test_torch_alone_shares_a_gpu_and_knows_its_device() -> None:
    """Everything that computes has a part of it, the verifier too, and all their bytes count: none takes turns."""
    typed = "engine_gpus=0.2 learner_gpus=0.2 proposers=1 solvers=1 judges=1".split()
    typed = [f"placement.{key}" for key in typed] + ["referee.verifier=frozen", "defaults.engine.dtype=bfloat16"]
    plan = make(load("quickstart", [*typed, "defaults.engine.device=cuda"]), parse("1x1x80"))
    five = ["proposer", "solver", "judge", "learner-proposer", "learner-solver"]
    assert laid(plan) == [[[f"{name} 0/0" for name in five]]]
    assert plan.used()[GpuSlot(0, 0)] == sum(plan.known[name].device() for name in five)
    assert {need.what for need in plan.known["solver"].needs if need.host} == {"process", "read weights"}
    mixed = make(load("quickstart", [*typed, "proposer.engine.device=cpu"]), parse("1x1x80"))
    assert laid(mixed) == [[["solver 0/0", "judge 0/0", "learner-solver 0/0"]]]
    assert published(load("quickstart", typed)) == published(load("quickstart")) > 0  # arrays, by the host
    with pytest.raises(InputError, match=r"device=cuda needs GPUs .*engine_gpus=0 .*docs/placement\.md"):
        make(load("quickstart", ["solver.engine.device=cuda"]), parse("1x1x80"))


def test_the_fleet_has_one_base_and_one_way_to_run() -> None:
    for typed, rule in (
        ("placement.solvers=2", "a player of both"),
        ("solver.learner.lora.rank=0", r"solver\.learner\.lora\.rank=0"),
        ("solver.model=Qwen/Qwen2.5-1.5B-Instruct", "adapter each"),
        ("solver.learner.lora.rank=513", "of rank 512 at most"),
        ("referee.verifier=solver", "a judge's engine takes none"),
        ("schedule.in_flight=true schedule.preset=one-step-off", "a running turn keeps its adapter"),
    ):
        with pytest.raises(InputError, match=rule):
            load("gpu1", typed.split())


unit = st.builds(
    lambda count, share, together: (count, share if count == 1 else 1.0, together or share < 1),
    st.integers(1, 9),
    st.sampled_from([0.25, 0.5, 1.0]),
    st.booleans(),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(unit, max_size=12), st.lists(st.integers(0, 8), min_size=1, max_size=6))
def test_any_plan_gives_each_gpu_once(asked: list[tuple[int, float, bool]], gpus: list[int]) -> None:
    """Every unit is placed once, a unit that must is on one node, no GPU is given out twice, and again the same."""
    made = [
        Unit(
            f"u{i}",
            (share,) * count,
            tuple(PlannedSeat(f"u{i}", 0, rank, rank, share) for rank in range(count)),
            together,
        )
        for i, (count, share, together) in enumerate(asked)
    ]
    found = assign(made, gpus)
    assert found == assign(made, gpus)
    if found is None:
        assert made
        return
    assert set(found) == {unit.name for unit in made}
    taken: dict[GpuSlot, float] = {}
    for unit_ in made:
        slots = found[unit_.name]
        assert len(slots) == len(unit_.bundles)
        assert not unit_.together or len({slot.node for slot in slots}) == 1
        for slot, share in zip(slots, unit_.bundles, strict=True):
            assert 0 <= slot.gpu < gpus[slot.node]
            taken[slot] = taken.get(slot, 0.0) + share
    assert all(share <= 1.0 + 1e-6 for share in taken.values())


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ([], (0, 1)),
        (["referee.verifier=frozen"], (1, 1)),
        (["referee.verifier=frozen", "solver.engine.tensor_parallel=2"], (1, 2)),
    ],
)
def test_a_judge_that_verifies_by_vllm_has_gpus_of_its_own(typed: list[str], found: tuple[float, int]) -> None:
    (judge,) = [one for one in processes(load("gpu8", typed)) if one.name == "judge"]
    assert (judge.gpus, judge.spread) == found
