"""Which modules of Flower the package uses, and where."""

import ast

import fedtempo
from support.paths import ROOT

PACKAGE = ROOT / "fedtempo"
PUBLIC = ("flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.serverapp.strategy")


def imported(path):
    """Yield the names of all modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module == "flwr")


def test_inner_modules_of_flower_are_used_in_one_place_alone():
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        for name in imported(path)
        if name.split(".")[0] == "flwr" and name not in PUBLIC
    }
    assert {path for path, _ in found if not path.startswith("flower/inner/")} == set()
    assert found, "there are some: otherwise this looks in the wrong place"
    assert fedtempo.__file__.startswith(str(PACKAGE))
