"""Markdown: as it stands in files, byte for byte."""

from fedtempo.tables.markdown import to_markdown
from fedtempo.tables.table import Column, Table
from support.table_cases import PAGE, TABLE

EXPECTED = """# Setup 2

Made by `fedtempo compare`. [Each run](runs.csv).

![Loss over time](setup2.png)

Time to loss 1

| policy | seconds | 95 % interval | rounds | over proposed | pilots (s) | with pilots (s) |
|---|---:|---:|---:|---:|---:|---:|
| statistical | 15,919 ± 885 | 12,802–14,735 | 1,318 | 2.62 × (0.56–12.19) | 2,087 | 18,006 ± 707 |
| proposed | 4,787 ± 4,456 | up to 17,825 | 1,522 | 1 | - | > 6,875 |

Means.

See `a_b`.

- a: b
- c `d`

## Rounds

Few."""


def test_a_page_is_written_block_by_block():
    assert to_markdown(PAGE) == str(PAGE) == EXPECTED
    assert str(TABLE) in EXPECTED


def test_columns_stand_where_they_say_and_no_name_ends_a_cell():
    table = Table.from_rows(["x", Column("y", align="left")], [["a|b", ""]])
    assert to_markdown(table) == "| x | y |\n|---|---|\n| a\\|b |  |"
