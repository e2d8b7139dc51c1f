"""Options of policies: one dataclass each, read by one function."""

from dataclasses import FrozenInstanceError, fields, is_dataclass

import pytest

from fedtempo import InputError
from fedtempo.policies.builtin import BUILT_IN
from fedtempo.policies.fedbuff import FedBuffOptions
from fedtempo.policies.options import NoOptions, read_options
from fedtempo.policies.proposed import OracleOptions, ProposedOptions


def test_options_lie_over_their_defaults():
    options = read_options(FedBuffOptions, {"sampling": "uniform"})
    assert (options.concurrency, options.sampling, options.staleness_exponent) == (None, "uniform", 0.5)
    assert read_options(NoOptions, {}) == NoOptions()


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        (FedBuffOptions, {"concurency": 3}, "options must be known, got 'concurency'; did you mean 'concurrency'?"),
        (
            FedBuffOptions,
            {"x": 3},
            "options must be known, got 'x'; it takes concurrency, sampling, staleness_exponent",
        ),
        (NoOptions, {"floor": 0.1}, "options must be known, got 'floor'; it takes none"),
        (ProposedOptions, {}, "losses must be given among its options, got none"),
        (ProposedOptions, {"losses": None}, "losses must be given among its options, got none"),
        (OracleOptions, {"floor": 0.1}, "beta_over_alpha must be given among its options, got none"),
        (OracleOptions, {"beta_over_alpha": 1.0, "floor": 2}, "floor must lie between 0 and 1, got 2"),
    ],
)
def test_what_is_refused(kind, options, sentence):
    with pytest.raises(InputError) as refused:
        read_options(kind, options)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("policy", BUILT_IN)
def test_every_policy_has_a_frozen_dataclass_of_options(policy):
    kind = BUILT_IN[policy].options
    assert is_dataclass(kind)
    needed = {"losses": [1.0], "beta_over_alpha": 1.0}
    names = [field.name for field in fields(kind)]
    options = read_options(kind, {name: value for name, value in needed.items() if name in names})
    for name in names:
        with pytest.raises(FrozenInstanceError):
            setattr(options, name, None)
