"""What a user's module, loss or optimiser raises, as one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from fedtempo.checks import InputError
from fedtempo.own_code import how_to_mend, in_short_with_place


@contextmanager
def one_sentence(name: str, rule: str) -> Iterator[None]:
    """Turn whatever is raised into one sentence, whose cause keeps the traceback."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if "more than 1 value per channel" in str(error):
            rule, got = "be at least 2 where batch normalisation sees one value of each sample and channel", "1"
            raise InputError(name="batch_size", rule=rule, got=got) from error
        raise InputError(name=name, rule=rule, got=in_short_with_place(error), remedy=how_to_mend(error)) from error


def checked_device(device: str) -> torch.device:
    """Return a device that torch has on this machine."""
    try:
        place = torch.device(device)
        float(torch.zeros(1, device=place))  # the device "meta" has no numbers
    except Exception as error:  # whatever torch raises for a device that it does not know or have
        reason = (str(error).splitlines() or [""])[0][:80]
        raise InputError(
            name="device",
            rule="be one that torch has on this machine",
            got=f"{device!r} ({reason})",
            remedy="leave it out",
        ) from None
    return place


def check_module(module: object) -> None:
    """Refuse modules that cannot be trained as one vector, or that would be evaluated otherwise than they look."""
    if not isinstance(module, nn.Module):
        rule = "be a function that makes a torch.nn.Module"
        raise InputError(name="the model", rule=rule, got=f"a function that made {type(module).__name__}")
    states = [*module.parameters(), *module.buffers()]
    if any(is_lazy(one) for one in states):
        remedy = "give each layer the size of its inputs"
        raise InputError(name="the module", rule="know its sizes when it is made", got="lazy layers", remedy=remedy)
    if not any(weight.requires_grad for weight in module.parameters()):
        raise InputError(name="the module", rule="have parameters to train", got="none")
    for name, part in module.named_modules():
        if isinstance(part, _BatchNorm) and part.running_mean is None:
            raise InputError(
                name=f"batch normalisation {name!r} of the module",
                rule="keep running statistics, so that a sample's output does not depend on its batch",
                got="track_running_stats=False",
                remedy="leave that out, or use GroupNorm",
            )


def check_evaluation(module: nn.Module, pair: torch.Tensor) -> None:
    """Refuse a module whose outputs for a sample, in evaluation, depend on the samples beside it.

    Each of two samples is put beside the other and beside itself. Batches of one sample might be special to a module,
    and equal seeds and places give a random one equal noise; one whose noise comes from elsewhere is let through.
    """

    def outputs(places: list[int]) -> torch.Tensor:
        torch.manual_seed(0)
        return module(pair[places])

    with torch.no_grad():
        found, again, first, second = (outputs(places) for places in ([0, 1], [0, 1], [0, 0], [1, 1]))
    if not isinstance(found, torch.Tensor) or found.shape[:1] != (2,):
        return
    if _alike(found, again) and not _alike(found, torch.stack([first[0], second[1]])):
        raise InputError(
            name="the module",
            rule="give a sample the same outputs beside any others, since evaluations batch samples in their own way",
            got="outputs that depend on the batch",
            remedy="normalise by nn.BatchNorm1d or nn.GroupNorm, and look for dim=0 and for a missing batch_first=True",
        )


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    one, other = one.float(), other.float()
    return torch.allclose(one, other, rtol=0.0, atol=1e-3 * float(one.abs().max()), equal_nan=True)


def check_gradients(gradients: list[torch.Tensor]) -> None:
    """Refuse gradients that have no entry for each parameter."""
    if any(one.layout != torch.strided for one in gradients):
        remedy = "leave out sparse=True"
        raise InputError(name="the module", rule="have dense gradients", got="sparse ones", remedy=remedy)
