"""Data of a user's own, as a configuration names them: arrays in a file, or a function."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from fedtempo.checks import InputError, near_miss
from fedtempo.data.array_files import read_arrays
from fedtempo.data.arrays import HELD_OUT_SHARE
from fedtempo.data.federation import FederatedData
from fedtempo.experiments.settings.config import COLUMNS, DataConfig
from fedtempo.own_code import RAISED, how_to_mend, imports_from, in_short_with_place, load_reference

OF_THE_SPLIT = ("partition", "concentration", "classes", "labels_are", "test", "name")


def data_of_file(config: DataConfig) -> FederatedData:
    """Return the data of an .npz or .parquet file."""
    columns = {name: getattr(config, name) for name in COLUMNS if getattr(config, name) is not None}
    return read_arrays(str(config.file), columns).federated(config.partition, config.test, _settings(config))


def data_of_function(config: DataConfig) -> FederatedData:
    """Return what a function makes: the data of a federation, or inputs and labels, which are split here."""
    function = load_reference("data.kind", config.kind)
    name = config.kind.rpartition(":")[2]
    if not callable(function):
        raise InputError("data.kind", "name a function", f"{name}, {type(function).__name__}")
    arguments = _arguments(function, config)
    with imports_from(config.kind):
        try:
            made = function(**arguments)
        except InputError as error:
            raise error.within(name) from error
        except RAISED as error:
            rule, got = f"make data by {name}", in_short_with_place(error)
            raise InputError("data.kind", rule, got, how_to_mend(error)) from error
    if isinstance(made, FederatedData):
        return _checked(made, config, arguments)
    if isinstance(made, tuple) and len(made) == 2:
        try:
            return FederatedData.from_arrays(
                *made,
                split=config.partition or "dirichlet",
                test=HELD_OUT_SHARE if config.test is None else config.test,
                **{"name": name} | _settings(config),
            )
        except InputError as error:
            raise error.within(name) from None
    raise InputError("data.kind", "name a function that returns FederatedData or (inputs, labels)", _kind_of(made))


def _settings(config: DataConfig) -> dict[str, Any]:
    """Return the settings of ``from_arrays`` that need no more thought."""
    named = {} if config.name is None else {"name": config.name}
    same = ("clients", "concentration", "classes", "labels_are", "seed")
    return {name: getattr(config, name) for name in same} | named


def _arguments(function: Callable[..., object], config: DataConfig) -> dict[str, object]:
    """Return what a function is called with: its options, and clients and seed if it has such parameters."""
    parameters: Mapping[str, inspect.Parameter] = {}
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some of other languages have none
        return dict(config.options)
    known = [one.name for one in parameters.values() if one.kind is not inspect.Parameter.POSITIONAL_ONLY]
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    for name in config.options:
        if name not in known and not takes_any:
            raise InputError(
                f"data.options.{name}", "be an argument of the function", repr(name), near_miss(name, known)
            )
    common = {"clients": config.clients, "seed": config.seed}
    own = {name: value for name, value in common.items() if name in known and value is not None}
    arguments = own | dict(config.options)
    for one in parameters.values():
        required = one.default is inspect.Parameter.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        if required and one.name not in arguments:
            where = "data" if one.name in common else "data.options"
            raise InputError(f"{where}.{one.name}", "be given", "nothing", "the function needs it")
    return arguments


def _checked(made: FederatedData, config: DataConfig, arguments: Mapping[str, object]) -> FederatedData:
    """Refuse settings that the function's own split does not follow."""
    for name in OF_THE_SPLIT:
        if not config.is_usual(name) and name not in arguments:
            got = f"{getattr(config, name)!r}"
            raise InputError(f"data.{name}", "be left out where the function returns FederatedData", got)
    if config.clients is not None and config.clients != made.num_clients:
        rule = f"be that of the data, {made.num_clients}"
        raise InputError("data.clients", rule, f"{config.clients}", "or leave it out")
    return made


def _kind_of(made: object) -> str:
    return f"a tuple of {len(made)}" if isinstance(made, tuple) else type(made).__name__
