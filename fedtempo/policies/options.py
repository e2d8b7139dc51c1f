"""Options that a configuration gives to a policy."""

import difflib
from collections.abc import Mapping
from typing import Any

from fedtempo.checks import InputError
from fedtempo.policies.policy import PolicySetting


def checked_options(setting: PolicySetting, known: Mapping[str, Any], needed: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the options over their defaults; unknown ones are refused with the nearest name."""
    for name in setting.options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it takes {', '.join(known) or 'none'}"
            raise InputError(name="options", rule="be known", got=f"{name!r}{hint}")
    options = {**known, **setting.options}
    for name in needed:
        if options[name] is None:
            raise InputError(name=name, rule="be given among its options", got="none")
    return options
