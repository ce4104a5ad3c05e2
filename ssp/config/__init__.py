"""The configuration: typed keys (`schema`), reading and merging (`load`), values alone (`rules`).

Owns the way from a config name and `key=value` overrides to one `Config`. Promises that a wrong
key, type or range is an `InputError` before anything starts. Refuses to know what the keys do;
`ssp.selfplay.settings.load` asks every wing."""
