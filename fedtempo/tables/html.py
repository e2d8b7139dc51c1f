"""Tables and pages as HTML; every text is escaped by the template."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fedtempo.checks import MissingDependencyError
from fedtempo.files import whole_file
from fedtempo.tables.document import Document, Heading
from fedtempo.tables.table import Table

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def environment() -> "Environment":
    """Return what renders this package's templates and those of others that ask by "package/template"."""
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError:
        raise MissingDependencyError("jinja2", "HTML") from None
    made = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return made


def _source(name: str) -> str:
    """Return the template of a name such as ``fedtempo.tables/content.html``."""
    from importlib.resources import files

    package, _, file = name.partition("/")
    return files(package).joinpath(file).read_text(encoding="utf-8")


def to_html(content: Table | Document) -> str:
    """Return a fragment of HTML."""
    blocks = content.blocks if isinstance(content, Document) else (content,)
    template = environment().get_template("fedtempo.tables/content.html")
    return template.render(blocks=[(type(block).__name__, block) for block in blocks])


def write_page(document: Document, path: Path) -> None:
    """Write a page that needs nothing but itself to an HTML file."""
    headings = (block.text for block in document.blocks if isinstance(block, Heading))
    text = (
        environment()
        .get_template("fedtempo.tables/page.html")
        .render(title=next(headings, "fedtempo"), content=to_html(document))
    )
    with whole_file(path) as stream:
        stream.write(text)


def notebook_html(content: Table | Document) -> str | None:
    """Return what a notebook shows; None, upon which it shows the text, where jinja2 is not installed."""
    try:
        return to_html(content)
    except MissingDependencyError:
        return None
