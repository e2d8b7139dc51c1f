"""How the curves of a policy look, on paper and on a dark page."""

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedtempo.checks import Vector
from fedtempo.policies.entry import DASH_DOT, DASH_DOT_DOT, DOTTED, LONG, SOLID, Dashes
from fedtempo.policies.registry import traits

# Okabe and Ito's colours, which the colour-blind can distinguish; yellow comes last, since paper is white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
DASHES: tuple[Dashes, ...] = (SOLID, LONG, DASH_DOT, DOTTED, DASH_DOT_DOT)
MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "pentagon", "hexagon")  # by plotly's names
SHADES = (0.0, 0.4, -0.35, 0.65)  # of variants of a policy: how far towards white, or black where negative
DARK_PAGE, LEAST_CONTRAST = "#1a2126", 4.0


@dataclass(frozen=True, slots=True)
class Style:
    """How the curves of one group look."""

    colour: str
    dashes: Dashes
    marker: str


def look(policy: str) -> Style | None:
    """Return how a policy looks wherever it is drawn, None for one without a colour of its own."""
    entry = traits(policy)
    return None if entry.colour is None else Style(entry.colour, entry.dashes, entry.marker)


def styles(policies: Mapping[str, str]) -> dict[str, Style]:
    """Return a style for each label, given the policy that it stands for.

    Several labels of one policy are variants of it, with shades of its colour and other dashes. Labels of policies
    without a look of their own take what is free.
    """
    found: dict[str, Style] = {}
    variants = Counter[str]()
    for label, policy in policies.items():
        own = look(policy)
        if own is not None:
            found[label] = _variant(own, variants[policy])
            variants[policy] += 1
    taken = {style.colour for style in found.values()}
    free = [
        Style(COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)], MARKERS[place % len(MARKERS)])
        for place in range(len(COLOURS) * len(DASHES))
    ]
    free.sort(key=lambda style: style.colour in taken)
    known = {(style.colour, style.dashes) for style in found.values()}
    others = itertools.cycle(style for style in free if (style.colour, style.dashes) not in known)
    return {label: found[label] if label in found else next(others) for label in policies}


def _variant(style: Style, number: int) -> Style:
    """Return the look of one of the variants of a policy, of the first its own."""
    share = SHADES[number % len(SHADES)]
    first = DASHES.index(style.dashes) if style.dashes in DASHES else 0
    dashes = DASHES[(first + number) % len(DASHES)] if number else style.dashes
    colour = _mixed(style.colour, "#ffffff" if share > 0 else "#000000", abs(share))
    return replace(style, colour=colour, dashes=dashes)


def on_dark(colour: str) -> str:
    """Return a colour to be seen on a dark page: the same, or with as much white as it takes."""
    shares = np.arange(0.0, 1.0, 0.05)
    page = _luminance(DARK_PAGE) + 0.05
    return next(
        mixed
        for mixed in (_mixed(colour, "#ffffff", float(share)) for share in shares)
        if (_luminance(mixed) + 0.05) / page >= LEAST_CONTRAST
    )


def _mixed(colour: str, other: str, share: float) -> str:
    if not share:
        return colour
    mixed = (1 - share) * _channels(colour) + share * _channels(other)
    return "#" + "".join(f"{round(255 * part):02X}" for part in mixed.tolist())


def _luminance(colour: str) -> float:
    """Return the relative luminance of sRGB, as contrasts between colours are measured by."""
    parts = _channels(colour)
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ np.array([0.2126, 0.7152, 0.0722]))


def _channels(colour: str) -> Vector:
    return np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
