"""What the verifier reads: own documents, noise, order, size."""

from __future__ import annotations

from proposals import NOISE, POTA, VURE, proposal

from ssp.base.episode import Document
from ssp.base.errors import Fault
from ssp.game.referee.material import fit, pick_noise, pick_trajectories


def ids(documents: list[Document]) -> list[str]:
    return [document.id for document in documents]


def test_noise_is_never_an_own_document_and_as_many_as_there_are() -> None:
    episode = proposal("a")
    picked = pick_noise(episode, [POTA, *NOISE, NOISE[0]], 9, seed=0)
    assert sorted(id for block in picked for id in ids(block)) == ["n0", "n1", "n2", "n3", "n4"]
    assert pick_noise(episode, [POTA, VURE], 2, seed=0) == []
    assert pick_noise(episode, NOISE, 0, seed=0) == []


def test_a_trajectory_is_taken_whole_without_what_the_episode_has_found() -> None:
    episode, lost = proposal("a", documents=(POTA,)), proposal("lost", documents=(NOISE[4],))
    lost.void(Fault("engine_died"))
    others = [proposal("b", documents=(NOISE[0], POTA, NOISE[1], NOISE[0])), proposal("c", documents=(NOISE[2], VURE))]
    none = [proposal("d", documents=(POTA,)), proposal("e", documents=()), lost, episode]
    picked = pick_trajectories(episode, [*none, *others], 9, seed=0)
    assert sorted(map(ids, picked)) == [["n0", "n1"], ["n2", "d2"]]
    assert picked == pick_trajectories(episode, [*others, *none], 9, seed=0)
    assert len(pick_trajectories(episode, [*none, *others], 1, seed=0)) == 1


def test_blocks_stay_whole_and_are_shuffled_by_the_seed() -> None:
    episode, blocks = proposal("a"), [[NOISE[0], NOISE[1]], [NOISE[2], NOISE[3]]]
    orders = {tuple(fit(episode, blocks, seed, True, ids) or ()) for seed in range(40)}
    assert len(orders) == 6  # three blocks
    pairs = [("d1", "d2"), ("n0", "n1"), ("n2", "n3")]
    assert all(order.index(first) + 1 == order.index(second) for order in orders for first, second in pairs)
    assert len({tuple(fit(episode, blocks, seed, False, ids) or ()) for seed in range(200)}) == 24


def test_of_a_document_that_was_shown_cut_and_whole_the_whole_one_counts() -> None:
    cut = Document(POTA.id, POTA.contents[:8])
    for shown in ((POTA, VURE, cut), (cut, VURE, POTA)):
        found = fit(proposal("a", documents=shown), [], 0, False, list)
        assert found is not None and sorted(d.contents for d in found) == sorted([POTA.contents, VURE.contents])


def test_over_the_limit_noise_goes_first_then_the_oldest() -> None:
    episode, blocks = proposal("a"), [[NOISE[0]], [NOISE[1], NOISE[2]]]

    def within(limit: int) -> list[str] | None:
        def write(documents: list[Document]) -> list[str] | None:
            return sorted(ids(documents)) if len(documents) <= limit else None

        return fit(episode, blocks, 0, False, write)

    assert within(5) == ["d1", "d2", "n0", "n1", "n2"]
    assert within(4) == within(3) == ["d1", "d2", "n0"]
    assert within(2) == ["d1", "d2"]
    assert within(1) == ["d2"]
    assert within(0) is None
    assert fit(proposal("a", documents=()), blocks, 0, False, ids) is None
