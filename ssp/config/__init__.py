"""The configuration: typed keys (`schema`), reading and merging (`load`), what may stand together (`rules`).

Owns the way from a config name and `key=value` overrides to one checked `Config`. Promises that a wrong key, type, range
or combination is an `InputError` before anything starts. Refuses to know what the keys do.
"""

from ssp.config.load import load, names, to_yaml
from ssp.config.schema import Config

__all__ = ["Config", "load", "names", "to_yaml"]
