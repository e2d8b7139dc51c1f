"""A table that has all that tables may have, and a page around it."""

from fedtempo.tables.document import Document, Heading, Items, Picture
from fedtempo.tables.prose import Code, Hyperlink, Paragraph
from fedtempo.tables.table import Cell, Column, Table

HEADINGS = ["policy", "seconds", "95 % interval", "rounds", "over proposed", Column("pilots", "s"), "with pilots (s)"]
ROWS = [
    ["statistical", "15,919 ± 885", "12,802–14,735", "1,318", "2.62 × (0.56–12.19)", "2,087", "18,006 ± 707"],
    ["proposed", Cell("4,787 ± 4,456", 4787.2, "of 3"), "up to 17,825", "1,522", "1", "-", "> 6,875"],
]
TABLE = Table.from_rows(
    HEADINGS, ROWS, title="Time to loss 1", notes=["Means.", Paragraph("See ", Code("a_b"), ".")], marked=1
)
PAGE = Document(
    Heading("Setup 2", 1),
    Paragraph("Made by ", Code("fedtempo compare"), ". ", Hyperlink("Each run", "runs.csv"), "."),
    Picture("setup2.png", "Loss over time"),
    TABLE,
    Items("a: b", Paragraph("c ", Code("d"))),
    Heading("Rounds"),
    "Few.",
)
