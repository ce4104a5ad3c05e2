"""What stands beside the core: parts that few need, each a package under `ssp/extras`. The core never
imports one; it asks here, by name, and works without them."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from ssp.base.errors import hold


def there(name: str) -> bool:
    """Whether the extra `name` is installed."""
    try:
        spec = find_spec(f"ssp.extras.{name}")
    except ModuleNotFoundError:  # no extra is
        return False
    return spec is not None and spec.has_location  # a folder that was emptied has none


def require(name: str, asked: str) -> None:
    """InputError unless the extra `name` is installed. `asked`: the setting, or the words of a
    command, that needs it."""
    rule = f"{asked} needs ssp/extras/{name}, which stands beside the core"
    step = "install ssp whole (this copy was made without that folder), or leave it out"
    hold(there(name), rule, "not installed", step)


def extra(name: str, asked: str, module: str = "") -> ModuleType:
    """The extra `name`, or a `module` of it. InputError as `require`."""
    require(name, asked)
    return import_module(f"ssp.extras.{name}.{module}" if module else f"ssp.extras.{name}")
