"""Which cases of a test are slow."""

import pytest


def slow_after(quick, cases):
    """Return the cases of a test, of which all but the first so many are slow."""
    few, rest = list(cases)[:quick], list(cases)[quick:]
    return few + [pytest.param(*(case if isinstance(case, tuple) else [case]), marks=pytest.mark.slow) for case in rest]
