"""Output files appear whole or not at all."""

import os
import signal
import subprocess
import sys

import pytest

from fedtempo.files import whole_file


def test_a_file_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "out.txt"
    with whole_file(path) as stream:
        stream.write("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["out.txt"]


def fail_half_way(path):
    with whole_file(path) as stream:
        stream.write("half")
        1 / 0  # noqa: B018


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    path.chmod(0o640)
    with pytest.raises(ZeroDivisionError):
        fail_half_way(path)
    assert path.read_text() == "old"
    with whole_file(path, "wb") as stream:
        stream.write(b"new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["out.txt"]


def test_a_killed_process_leaves_the_old_file(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    code = (
        "import os, signal, sys\n"
        "from fedtempo.files import whole_file\n"
        "with whole_file(sys.argv[1]) as stream:\n"
        "    stream.write('half'); stream.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert path.read_text() == "old"


def test_a_link_stays_a_link_and_a_pipe_is_written_to(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with whole_file(tmp_path / "link") as stream:
        stream.write("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    with whole_file("/dev/null") as stream:
        stream.write("gone")
    assert not os.path.isfile("/dev/null")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such directory"), whole_file(tmp_path / "no" / "out.txt"):
        pass
