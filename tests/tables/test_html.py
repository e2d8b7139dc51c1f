"""HTML: every text is escaped."""

import re
import sys

import pytest

from fedtempo.checks import MissingDependencyError
from fedtempo.tables.document import Document, Heading, Picture
from fedtempo.tables.html import environment, to_html
from fedtempo.tables.prose import Code, Hyperlink, Paragraph
from fedtempo.tables.table import Cell, Column, Table
from support.table_cases import PAGE, TABLE

BAD = "<b>\"x\"&'y'</b>"


def test_a_table_has_its_rows_small_print_and_mark():
    pytest.importorskip("jinja2")
    text = to_html(TABLE)
    assert text == TABLE._repr_html_()
    assert "<caption>Time to loss 1</caption>" in text
    assert '<th scope="col">pilots (s)</th>' in text
    (marked,) = re.findall(r'<tr class="best">(.*?)</tr>', text)
    assert marked.startswith('<th scope="row">proposed</th><td>4,787 ± 4,456<small>of 3</small></td>')
    assert "<p>See <code>a_b</code>.</p>" in text
    assert '<a href="runs.csv">Each run</a>' in to_html(PAGE)


def test_no_text_is_taken_for_html():
    pytest.importorskip("jinja2")
    column, cell = Column(BAD, BAD, BAD), Cell(BAD, BAD, BAD)
    table = Table.from_rows([column], [[cell]], title=BAD, notes=[BAD])
    page = Document(Heading(BAD), Paragraph(BAD, Code(BAD), Hyperlink(BAD, BAD)), Picture(BAD, BAD), table)
    text = page._repr_html_()
    assert "<b>" not in text
    assert '"x"' not in text
    assert text.count("&lt;b&gt;") == 14


def test_without_jinja2_it_is_said_what_to_install(monkeypatch):
    environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependencyError, match="HTML needs jinja2, which is not installed"):
        to_html(TABLE)
    assert TABLE._repr_html_() is None, "a notebook then shows the text"
