"""The league: frozen past versions as opponents, and what a table of results says about strength (docs/league.md).

`payoff` counts, `ratings` judges, `matchmaking` draws, `pool` keeps, `league` holds what a run
knows: plain Python and numpy. `matchmaker` is its place in a run: who plays a round, and where members' weights are.
"""
