"""The league: frozen past versions as opponents, and what a table of results says about strength (docs/league.md).

Pure Python and numpy: `payoff` counts, `ratings`, `cycles` and `exploitability` judge, `matchmaking` draws, `pool` keeps,
`league` is what a run would hold. Nothing here loads weights or plays: no coordinator asks it yet.
"""
