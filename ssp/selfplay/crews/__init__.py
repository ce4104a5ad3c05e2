"""The crews of a run: what workers are asked for, whose turn it is, who sees their calls, what is
lost with them."""
