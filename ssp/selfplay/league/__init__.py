"""The league: frozen past versions as opponents, and what a table of results says about strength (docs/league.md).

`payoff` counts, `ratings` judges, `league` holds what a run knows, keeps and draws; `matchmaker` is its place
in a run: who plays a round, and where members' weights are.
"""
