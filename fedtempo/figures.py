"""Figures of matplotlib: made without a screen, shown by notebooks, written as PNG, PDF or SVG."""

import io
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from fedtempo.checks import InputError, MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import LayoutEngine

FORMATS = ("png", "pdf", "svg")
DPI, PRINT_DPI = 150, 300  # of a PNG


def check_matplotlib() -> None:
    """Raise where nothing can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingDependencyError("matplotlib", "a figure") from None


def new_figure(width: float, height: float, layout: "LayoutEngine | None" = None) -> "Figure":
    """Return an empty figure of so many inches, which a notebook shows as a picture."""
    check_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout=layout or "constrained")
    vars(figure)["_repr_png_"] = partial(_png, figure)  # notebooks know the figures of pyplot alone
    return figure


def _png(figure: "Figure") -> bytes:
    drawn = io.BytesIO()
    save_figure(figure, drawn, "png")
    return drawn.getvalue()


def picture_format(path: Path) -> str:
    """Return the format of a picture by its ending; raise where it cannot be drawn, before any work is done."""
    check_matplotlib()
    ending = path.suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        raise InputError(name="plot", rule="end in .png, .pdf or .svg", got=f"{path}")
    return ending


def save_figure(figure: "Figure", stream: IO[bytes], file_format: str, dpi: int = DPI) -> None:
    """Write a figure; the same figure gives the same bytes, so the date and matplotlib's version are left out."""
    import matplotlib

    undated = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with matplotlib.rc_context({"svg.hashsalt": "fedtempo"}):
        figure.savefig(stream, format=file_format, dpi=dpi, metadata=undated[file_format])
