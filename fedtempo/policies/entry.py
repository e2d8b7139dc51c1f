"""What is known of a policy besides how it decides: its options, its traits, and how figures draw it."""

from collections.abc import Callable
from dataclasses import dataclass

from fedtempo.policies.policy import Policy, PolicySetting

# On and off lengths in widths of the line, so that curves differ without colour too; () is solid.
Dashes = tuple[float, ...]
SOLID: Dashes = ()
LONG: Dashes = (5.0, 1.5)
DASH_DOT: Dashes = (5.0, 1.5, 1.0, 1.5)
DOTTED: Dashes = (1.0, 1.2)
DASH_DOT_DOT: Dashes = (8, 1.5, 1, 1.5, 1, 1.5)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One policy in the list. The defaults are those of policies of which nothing is known but that they exist."""

    description: str  # one line
    make: Callable[[PolicySetting], Policy]
    options: type | None = None  # the dataclass of its options; None: not known
    needs_pilots: bool = False  # it starts with pilot runs, whose losses must be among its options
    oracle: bool = False  # it knows beforehand what others need pilots for
    biased: bool = False  # its aggregate does not aim at the mean over all data
    repeats: bool = False  # it draws K clients with replacement, unless an option forbids it
    asynchronous: bool = False  # it steps while clients are in flight, unless an option or the link forbids it
    ours: bool = False
    papers: bool = False  # a form of the scheme that the paper proposes, to which its tables compare the others
    colour: str | None = None  # of its curves, as #RRGGBB; None: figures choose
    dashes: Dashes = SOLID
    marker: str = "circle"  # by plotly's names
