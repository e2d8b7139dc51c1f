"""Functions and classes of a user's own, by the name of a module."""

import importlib
import sys

import pytest

from fedtempo.checks import InputError
from fedtempo.own_code import imports_from, in_short, is_reference, load_reference, located, source_file, source_files


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("module:name", True), ("package.module:Name", True), ("/some where/module.py:name", True),
        ("module", False), (":name", False), ("module:", False), ("a b:name", False), ("module:a.b", False),
    ],
)  # fmt: skip
def test_references_are_told_from_other_texts(text, right):
    assert is_reference(text) is right


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (ValueError("two\n lines"), "ValueError: two lines"),
        (KeyError(), "KeyError"),
        (ValueError("a" * 161), f"ValueError: {'a' * 160}…"),
    ],
)
def test_errors_of_others_are_short_and_on_one_line(error, short):
    assert in_short(error) == short


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text("import beside\nfrom dataclasses import dataclass\nvalue = beside.value\n")
    (tmp_path / "beside.py").write_text("value = 1\n")
    (tmp_path / "random.py").write_text("value = 'mine'\n")
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "__init__.py").write_text("value = 3\n")
    (tmp_path / "bundle" / "part.py").write_text("from bundle import value\nfrom . import value as same\n")
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in ("beside", "bundle", "bundle.part"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("reference", "value"), [("mine:value", 1), ("random:value", "mine"), ("bundle:value", 3), ("bundle.part:same", 3)]
)
def test_modules_beside_come_first(folder, reference, value):
    path, before = list(sys.path), sys.modules["random"]
    found = located(reference, [folder / "no", folder])
    assert source_file(found).is_file()
    assert load_reference("kind", found) == value
    assert (sys.path, sys.modules["random"]) == ([*path, str(folder)], before), "nothing else comes later than it did"


def test_a_changed_file_is_read_again(folder):
    reference = located("random:value", [folder])
    assert load_reference("kind", reference) == "mine"
    (folder / "random.py").write_text("value = 'changed'\n")
    assert load_reference("kind", reference) == "changed"


def test_a_changed_module_of_a_package_is_run_again(folder):
    """Also where it changed within a second and kept its size, which bytecode does not notice."""
    reference = located("bundle:value", [folder])
    assert load_reference("kind", reference) == 3
    (folder / "bundle" / "__init__.py").write_text("value = 4\n")
    assert load_reference("kind", reference) == 4
    (folder / "bundle" / "__init__.py").write_text("value = 1 / 0\n")
    with pytest.raises(InputError, match="ZeroDivisionError"):
        load_reference("kind", reference)
    (folder / "bundle" / "__init__.py").write_text("value = 4\n")
    assert load_reference("kind", reference) == 4


def test_a_module_that_somebody_else_imported_is_run_again_if_it_may_have_changed(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    assert importlib.import_module("beside").value == 1
    (folder / "beside.py").write_text("value = 2\n")
    assert load_reference("kind", "beside:value") == 2


def test_modules_that_did_not_change_are_not_run_again(folder):
    (folder / "bundle" / "part.py").write_text("value = []\n")
    first, again = (load_reference("kind", located("bundle.part:value", [folder])) for _ in range(2))
    assert first is again


def test_references_to_one_file_share_its_classes(folder):
    (folder / "own.py").write_text("class Output:\n    pass\ndef model():\n    return Output()\n")
    kind, model = (load_reference("kind", located(f"own:{name}", [folder])) for name in ("Output", "model"))
    assert isinstance(model(), kind)


def test_what_a_file_imports_from_beside_it_counts(folder):
    reference = located("mine:value", [folder])
    assert source_files(reference) == [folder / "mine.py", folder / "beside.py"]
    assert load_reference("kind", reference) == 1
    (folder / "beside.py").write_text("value = 1234\n")
    assert load_reference("kind", reference) == 1234
    assert source_files(located("bundle.part:same", [folder])) == [
        folder / "bundle" / "part.py",
        folder / "bundle" / "__init__.py",
    ]
    assert [path.name for path in source_files("json:dumps")] == ["__init__.py"]
    assert source_files("nowhere.at_all:name") == []


def test_modules_beside_two_files_may_have_the_same_name(folder):
    other = folder / "other"
    other.mkdir()
    (other / "mine.py").write_text("from beside import value\n")
    (other / "beside.py").write_text("value = 'other'\n")
    assert load_reference("kind", located("mine:value", [folder])) == 1
    assert load_reference("kind", located("mine:value", [other])) == "other"
    assert load_reference("kind", located("mine:value", [folder])) == 1


def test_functions_may_import_from_beside_when_they_are_called(folder):
    (folder / "late.py").write_text("def value():\n    import beside\n    return beside.value\n")
    assert load_reference("kind", located("late:value", [folder]))() == 1


def test_other_modules_are_where_python_looks(folder):
    assert located("json:dumps", [folder]) == "json:dumps"
    assert load_reference("kind", "json:dumps")([1]) == "[1]"
    assert source_file("json:dumps").name == "__init__.py"
    assert source_file("nowhere.at_all:name") is None
    with imports_from("json:dumps"):
        pass


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (
            "nowhere:name",
            "kind must name a module here, .* got 'nowhere:name' and no module nowhere",
        ),
        ("mine:valeu", "kind must name something in a module, got no valeu in mine.py; did you mean 'value'?"),
        (
            "wrong:value",
            "kind must name a module that can be imported, got ZeroDivisionError: division by zero in wrong.py",
        ),
        ("syntax:value", "got SyntaxError: .* in syntax.py"),
        ("lacking:value", "got ModuleNotFoundError: No module named 'not_there' in lacking.py$"),
        ("ending:value", "got SystemExit: 3 in ending.py$"),
        ("silent:value", "got SystemExit in silent.py$"),
    ],
)
def test_what_cannot_be_had_gets_one_sentence(folder, reference, said):
    (folder / "wrong.py").write_text("1 / 0\n")
    (folder / "syntax.py").write_text("def f(:\n")
    (folder / "lacking.py").write_text("import not_there\n")
    (folder / "ending.py").write_text("raise SystemExit(3)\n")
    (folder / "silent.py").write_text("import sys\nsys.exit()\n")
    with pytest.raises(InputError, match=said) as caught:
        load_reference("kind", located(reference, [folder]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("package", "extra"), [("torch", "torch"), ("pandas", "report"), ("pyarrow", "report"), ("datasets", "datasets")]
)
def test_a_missing_package_that_an_extra_brings_is_named_with_it(folder, monkeypatch, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    (folder / "own.py").write_text(f"from {package} import something\n")
    for reference in (located("own:value", [folder]), f"{package}:value"):
        with pytest.raises(InputError) as caught:
            load_reference("kind", reference)
        assert str(caught.value).endswith(f"; run: pip install 'fedtempo[{extra}]'")
