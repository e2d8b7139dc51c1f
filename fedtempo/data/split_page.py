"""A split as one HTML page that needs no other file: the table and the picture."""

import io

from fedtempo.data.split_summary import SplitSummary
from fedtempo.figures import save_figure
from fedtempo.tables.html import environment, to_html

TEMPLATE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; }
td, th { padding: 0.2rem 0.9rem; border-bottom: 1px solid #ddd; text-align: right; }
td:first-child, th:first-child { text-align: left; }
svg { width: 100%; height: auto; }
</style>
</head>
<body>
{{ table | safe }}
{{ picture | safe }}
</body>
</html>
"""


def page_of(summary: SplitSummary) -> str:
    """Return the page."""
    drawn = io.BytesIO()
    save_figure(summary.plot(), drawn, "svg")
    picture = drawn.getvalue().decode()
    return (
        environment()
        .from_string(TEMPLATE)
        .render(title=summary.title, table=to_html(summary.table()), picture=picture[picture.index("<svg") :])
    )
