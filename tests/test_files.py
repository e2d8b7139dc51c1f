"""Output files appear whole or not at all."""

import os
import signal
import subprocess
import sys

import pytest

from fedtempo.checks import InputError
from fedtempo.files import naming_full_disks, whole_file, whole_files


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
    with pytest.raises(FileNotFoundError, match=r"no such directory as .*/no: '.*out.txt'"):
        fail_half_way(tmp_path / "no" / "out.txt")


def test_an_error_in_the_block_is_not_taken_for_one_of_the_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="elsewhere"), whole_file(tmp_path / "out.txt"):
        os.listdir("/elsewhere")


def test_several_files_appear_together_or_not_at_all(tmp_path):
    names = [tmp_path / "a", tmp_path / "b"]
    with whole_files(*((name, "w") for name in names)) as streams:
        for stream in streams:
            stream.write("x")
        assert sorted(os.listdir(tmp_path)) != ["a", "b"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    with pytest.raises(InputError, match="must differ"), whole_files((names[0], "w"), (names[0], "w")):
        pass


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no full device to try")
def test_if_one_disk_is_full_no_file_appears(tmp_path):
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path / 'a'}, /dev/full'"):
        write_two(tmp_path / "a", "/dev/full")
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_named_and_other_errors_stay_as_they_are():
    for given, named in (
        (OSError(28, "full"), "out"),
        (OSError(28, "full", "other"), "other"),
        (OSError(5, "io"), None),
    ):
        with pytest.raises(OSError, match=given.strerror) as raised, naming_full_disks("out"):
            raise given
        assert raised.value.filename == named


def write_two(*paths):
    with whole_files(*((path, "w") for path in paths)) as streams:
        for stream in streams:
            stream.write("x")


def test_a_name_as_long_as_the_file_system_allows(tmp_path):
    path = tmp_path / ("n" * 255)
    with whole_file(path) as stream:
        stream.write("x")
    assert path.read_text() == "x"
