"""Data of one's own in a configuration: arrays in files and functions, run, resumed and refused."""

import json
import sys

import numpy as np
import pytest

from fedtempo.data.federation import FederatedData
from fedtempo.engine.records import RECORDS
from fedtempo.experiments.running.problem import load_data
from fedtempo.experiments.settings.config_file import load_experiment
from support.grids import planned_runs
from support.runs import SMALL, command

SYNTHETIC = 'kind = "synthetic"\nclients = 10\nsamples = 800\n'
MODULE = """
import numpy as np
from fedtempo.data.federation import FederatedData

def arrays(size=200, seed=0):
    labels = np.arange(size) % 4
    return np.random.default_rng(seed).normal(size=(size, 3)) + labels[:, None], labels

def whole(clients, scale=1.0):
    inputs, labels = arrays()
    return FederatedData.from_arrays(scale * inputs, labels, clients=clients, split="iid", name="whole")

def raises():
    raise RuntimeError("nothing\\nto read")

def refuses():
    FederatedData.from_arrays([[1.0]] * 5, [0] * 5, clients=30)

def ends():
    exit(3)

def reads_a_table():
    import pandas

def other():
    return 3

three = (1, 2, 3)
"""


def arrays(size=200, seed=0):
    labels = np.arange(size) % 4
    return np.random.default_rng(seed).normal(size=(size, 3)) + labels[:, None], labels


@pytest.fixture
def written(tmp_path):
    """Return a function that writes a configuration with some data, beside a file and a module."""
    inputs, labels = arrays()
    np.savez(tmp_path / "mine.npz", inputs=inputs, labels=labels)
    np.savez(tmp_path / "owned.npz", inputs=inputs, labels=labels, owner=np.arange(200) % 6)
    (tmp_path / "own_module.py").write_text(MODULE)

    def write(data):
        path = tmp_path / "own.toml"
        path.write_text(SMALL.replace(SYNTHETIC, data + "\n"))
        return path

    return write


def loaded(config):
    return load_data(load_experiment(config).data)


@pytest.mark.parametrize("key", ["split", "partition"])
def test_a_file_gives_what_python_gives(written, key):
    config = written(f'kind = "arrays"\nfile = "mine.npz"\nclients = 8\n{key} = "quantity"\nseed = 3\ntest = 0.2')
    same = FederatedData.from_arrays(*arrays(), clients=8, split="quantity", seed=3, test=0.2)
    assert loaded(config).checksum() == same.checksum()
    assert loaded(config).name == "mine"


def test_the_file_may_name_the_owners(written):
    assert loaded(written('kind = "arrays"\nfile = "owned.npz"\nname = "roles"')).num_clients == 6
    assert loaded(written('kind = "arrays"\nfile = "owned.npz"\nname = "roles"')).name == "roles"
    assert loaded(written('kind = "arrays"\nfile = "owned.npz"\nclients = 4\nsplit = "iid"')).num_clients == 4


def test_columns_of_parquet_files(written, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    inputs, labels = arrays()
    pq.write_table(pa.table({"a": inputs[:, 0], "b": inputs[:, 1], "y": labels}), tmp_path / "mine.parquet")
    config = written('kind = "arrays"\nfile = "mine.parquet"\nlabel = "y"\ninputs = ["b", "a"]\nclients = 5')
    same = FederatedData.from_arrays(inputs[:, [1, 0]].astype(np.float32), labels, clients=5)
    assert loaded(config).checksum() == same.checksum()


def test_a_function_gets_its_options_and_is_split_here(written):
    config = written('kind = "own_module:arrays"\nclients = 5\nsplit = "iid"\nseed = 2\noptions = { size = 60 }')
    same = FederatedData.from_arrays(*arrays(60, seed=2), clients=5, split="iid", seed=2)
    assert loaded(config).checksum() == same.checksum()
    assert loaded(config).name == "arrays"


@pytest.mark.parametrize("kind", ['kind = "arrays"\nfile = "mine.npz"', 'kind = "own_module:arrays"'])
def test_whole_numbers_may_be_values(written, kind):
    data = loaded(written(f'{kind}\nclients = 8\nsplit = "iid"\nlabels_are = "values"'))
    assert (data.num_classes, data.labels.dtype) == (0, np.float32)
    assert loaded(written(f'{kind}\nclients = 8\nsplit = "iid"')).num_classes == 4


def test_a_function_may_split_by_itself(written):
    data = loaded(written('kind = "own_module:whole"\nclients = 7\n[data.options]\nscale = 2.0'))
    assert (data.num_clients, data.name) == (7, "whole")


@pytest.mark.parametrize(
    "data",
    [
        'kind = "arrays"\nfile = "mine.npz"\nclients = 8',
        'kind = "own_module:arrays"\nclients = 8\n[data.options]\nsize = 100',
        'kind = "own_module:whole"\nclients = 8',
    ],
)
def test_runs_resume_and_compare(written, tmp_path, capsys, data):
    config = written(data)
    run = ("run", config, "--policy", "weighted", "-o", tmp_path / "out")
    assert command(*run) == 0
    records = (tmp_path / "out" / RECORDS).read_bytes()
    assert command(*run) == 0
    assert (tmp_path / "out" / RECORDS).read_bytes() == records
    compare = (
        "compare",
        config,
        "--policies",
        "uniform,weighted",
        "--seeds",
        1,
        "--target-loss",
        0.1,
        "-o",
        tmp_path / "c",
    )
    assert command(*compare, "--jobs", 1) == 0
    assert command("estimate", tmp_path / "c", "-o", tmp_path / "fleet.csv") == 0
    assert command("export", tmp_path / "c", "-o", tmp_path / "rounds.csv") == 0
    header = json.loads(records.splitlines()[0])["header"]
    assert header["config"]["data"]["kind"] in data, "as it was written"
    assert list(header["files"]["data"]) == (["file"] if "file" in data else ["kind"])


def test_other_contents_are_another_run(written, tmp_path):
    folders = set()
    of_file = 'kind = "arrays"\nfile = "mine.npz"\nclients = 8'
    (run,) = planned_runs(written(of_file), tmp_path / "runs", ["uniform"], [0])
    folders.add(run.folder)
    np.savez(tmp_path / "mine.npz", inputs=arrays(240)[0], labels=arrays(240)[1])
    (run,) = planned_runs(written(of_file), tmp_path / "runs", ["uniform"], [0])
    folders.add(run.folder)
    assert sum(run.header.samples) == 216, "read anew, though this process has read it before"
    for source in (MODULE, MODULE.replace("size=200", "size=220")):
        (tmp_path / "own_module.py").write_text(source)
        (run,) = planned_runs(written('kind = "own_module:arrays"\nclients = 8'), tmp_path / "runs", ["uniform"], [0])
        folders.add(run.folder)
    assert sum(run.header.samples) == 198
    assert len(folders) == 4


def test_where_the_command_is_given_does_not_matter(written, tmp_path, monkeypatch):
    config, folders = written('kind = "own_module:arrays"\nclients = 8'), set()
    (tmp_path / "elsewhere").mkdir()
    for folder in (tmp_path, tmp_path / "elsewhere"):
        monkeypatch.chdir(folder)
        (run,) = planned_runs(config, tmp_path / "runs", ["uniform"], [0])
        folders.add(run.folder)
    assert len(folders) == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ('kind = "arrays"', "data: file must be given for arrays, got nothing; name an .npz or .parquet file"),
        ('kind = "arrays"\nfile = "no.npz"\nclients = 3', "no.npz must be a file, got no such file"),
        ('kind = "arrays"\nfile = "own_module.py"\nclients = 3', "file must end in .npz or .parquet"),
        ('kind = "arrays"\nfile = "mine.npz"', "mine.npz: data.clients must be given for the split dirichlet"),
        ('kind = "arrays"\nfile = "mine.npz"\nclients = 300', "clients must be at most the 180 samples for training"),
        ('kind = "arrays"\nfile = "mine.npz"\nclients = 3\nsamples = 9', "samples must be left out for arrays, got 9"),
        ('kind = "arrays"\nfile = "mine.npz"\nclients = 3\nlabel = "y"', "label must be left out for .npz files"),
        ('kind = "arrays"\nfile = "mine.npz"\nclients = 3\nsplit = "dirichlt"', "data.split must be one of classes"),
        ('kind = "arrays"\nfile = "mine.npz"\nclients = 3\ntest = 2.0', "test must be a share between 0 and 1"),
        ('kind = "arrays"\nfile = "mine.npz"\nsplit = "iid"\npartition = "iid"', "not be given beside partition"),
        ('kind = "arrays"\nfile = "mine.npz"\nfiel = 3', "data.fiel must be a known setting, got 'fiel'; did you mean"),
        ('kind = "synthetic"\nclients = 10', "data: samples must be given, got nothing"),
        ('kind = "synthetic"\nsamples = 800', "data: clients must be given, got nothing"),
        ('kind = "mnist"\nclients = 10\nsamples = 800\nfile = "mine.npz"', "data: file must be left out for mnist"),
        ('kind = "arays"', "cifar10, shakespeare, arrays, or a function as"),
        ('kind = "own_modul:arrays"', "got 'own_modul:arrays' and no module own_modul"),
        ('kind = "own_module:array"', "got no array in own_module.py; did you mean 'arrays'?"),
        ('kind = "own_module:three"', "data.kind must name a function, got three, tuple"),
        ('kind = "own_module:raises"', "data by raises, got RuntimeError: nothing to read in own_module.py, line"),
        ('kind = "own_module:ends"', "data.kind must make data by ends, got SystemExit: 3 in own_module.py, line"),
        ('kind = "own_module:reads_a_table"', "line 23; run: pip install 'fedtempo[report]'"),
        ('kind = "own_module:refuses"', "refuses: data.clients must be at most"),
        ('kind = "own_module:other"', "a function that returns FederatedData or (inputs, labels), got int"),
        ('kind = "own_module:arrays"', "arrays: data.clients must be given for the split dirichlet"),
        ('kind = "own_module:whole"', "data.clients must be given, got nothing; the function needs it"),
        ('kind = "own_module:whole"\nclients = 3\nsplit = "iid"', "data.partition must be left out where the function"),
        ('kind = "own_module:whole"\nclients = 3\nlabels_are = "values"', "data.labels_are must be left out where"),
        ('kind = "mnist"\nclients = 3\nsamples = 9\nlabels_are = "values"', "labels_are must be left out for mnist"),
        ('kind = "arrays"\nfile = "mine.npz"\nlabels_are = "number"', "data.labels_are must be one of classes, values"),
        ('kind = "own_module:whole"\nclients = 3\noptions = { scal = 1 }', "got 'scal'; did you mean 'scale'?"),
        ('kind = "own_module:whole"\nclients = 3\nsamples = 4', "data: samples must be left out for a function, got 4"),
    ],
)  # fmt: skip
def test_what_is_wrong_gets_one_sentence_and_code_2(written, tmp_path, monkeypatch, capsys, data, said):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert command("run", written(data), "--policy", "weighted", "-o", tmp_path / "out") == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert said in error
    assert not (tmp_path / "out").exists()
