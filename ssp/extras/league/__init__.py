"""The league (docs/league.md): `payoff` counts, `ratings` judges, `league` keeps and draws,
`matchmaker` plays a round, `members` keeps weights, `standing` tells the board."""
