"""What a configuration is refused with."""

from __future__ import annotations

import pytest

from ssp.base.errors import InputError
from ssp.selfplay.settings import load


def refused(*typed: str, config: str = "quickstart") -> InputError:
    with pytest.raises(InputError) as caught:
        load(config, typed)
    return caught.value
