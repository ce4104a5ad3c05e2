"""Ray actors: one thin actor a file, around the workers of `ssp.selfplay`.

Owns life cycle, placement, faults and the cluster's metrics. Refuses to know algorithms."""
