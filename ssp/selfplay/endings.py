"""How long the episodes of a step were and how they ended; and the sentence for a policy that cannot play."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ssp.base.episode import Outcome
from ssp.selfplay.records import Brief

PATIENCE = 3
"""Steps in a row after which a role is spoken of."""


def figures(briefs: Sequence[Brief]) -> dict[str, float]:
    """Figures of one role's episodes in a step; lengths in tokens. None without an episode that is no void."""
    found = [brief for brief in briefs if brief.outcome is not Outcome.VOID]
    if not found:
        return {}
    count, responses = len(found), [brief.length - brief.prompt for brief in found]
    ended = Counter(brief.stopped for brief in found)
    return {
        "response_length/mean": sum(responses) / count,
        "response_length/max": float(max(responses)),
        "response_length/cut": sum(brief.cut for brief in found) / count,
        "prompt_length/mean": sum(brief.prompt for brief in found) / count,
        "observation_length/mean": sum(brief.observed for brief in found) / count,
        "ended/final": 0.0,
        **{f"ended/{how}": number / count for how, number in sorted(ended.items())},
    }


class ColdWatch:
    """Notices a role whose episodes teach nothing for `PATIENCE` steps in a row."""

    def __init__(self) -> None:
        self._streaks = Counter[tuple[str, str]]()
        self._said = set[str]()

    def see(self, role: str, row: Mapping[str, float]) -> str:
        """The figures of the role's next step; a sentence for the user once this is so, else ""."""
        signs = {"answers": row.get("ended/final") == 0.0, "groups": row.get("groups/flat") == 1.0}
        for sign, there in signs.items():
            self._streaks[role, sign] = self._streaks[role, sign] + 1 if there else 0
        sign = next((sign for sign in signs if self._streaks[role, sign] >= PATIENCE), "")
        if not sign or role in self._said:
            return ""
        self._said.add(role)
        shares = {name.removeprefix("ended/"): share for name, share in row.items() if name.startswith("ended/")}
        ended = ", ".join(
            f"{how} {share:.0%}" for how, share in sorted(shares.items(), key=lambda one: -one[1]) if share
        )
        if sign == "answers":
            known, page = (
                "no episode handed in an answer",
                "a policy that cannot play yet needs a warm start: docs/warmup.md",
            )
        else:
            known = f"no group had two different rewards (mean {row.get('reward/all', 0.0):.2f})"
            page = (
                "a policy that cannot play yet: docs/warmup.md; questions all too easy or too hard: docs/curriculum.md"
            )
        return f"{role}: for {PATIENCE} steps {known}, so it learns next to nothing. Episodes ended by: {ended}. See {page}"
