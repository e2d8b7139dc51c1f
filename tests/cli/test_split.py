"""The command that shows a split."""

import json

import pytest

from support.runs import SMALL, command


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_a_split_is_shown_drawn_and_written(config, tmp_path, capsys):
    for ending, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF"), (".html", b"<!doctype html>")):
        picture, numbers = tmp_path / f"split{ending}", tmp_path / "split.json"
        assert command("split", config, "--preset", "best", "-o", picture, "--json", numbers) == 0
        assert picture.read_bytes().startswith(start)
    said = capsys.readouterr().out
    assert "Synthetic(1, 1): 800 samples of 10 clients" in said
    assert "samples of a client" in said
    facts = json.loads(numbers.read_text())
    assert (facts["clients"], facts["samples"], facts["test_samples"]) == (10, 800, 80)
    assert sum(facts["samples_of_clients"]) == 800
    assert [sum(row) for row in facts["classes_of_clients"]] == facts["samples_of_clients"]
    assert 0 < facts["distance_to_all"] < facts["distance_of_pairs"] < 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["-o", "split.txt"], "--output must be a file that ends in .png or .pdf or .svg or .html or .htm"),
        (["--json", "split.txt"], "--json must be a file that ends in .json"),
        (["-o", "no/where/split.png"], "lie in a folder that exists"),
        (["--preset", "bst"], "did you mean 'best'?"),
    ],
)
def test_bad_input_gets_one_sentence(config, tmp_path, monkeypatch, capsys, more, said):
    monkeypatch.chdir(tmp_path)
    assert command("split", config, *more) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (error,) = captured.err.splitlines()
    assert said in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.toml"]
