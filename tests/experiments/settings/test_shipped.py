"""Configurations of the package: found by name from any folder, unless a file has it."""

import pytest

from fedtempo.checks import InputError
from fedtempo.experiments.paper_numbers import CONFIGS
from fedtempo.experiments.settings.config_file import has_preset, load_experiment
from fedtempo.experiments.settings.shipped import find_config, find_setup, shipped_names
from support.paths import ROOT
from support.runs import SMALL


def test_the_package_has_the_configurations_of_the_repository():
    assert shipped_names() == sorted(path.stem for path in (ROOT / "configs").glob("*.toml"))
    for name in shipped_names():
        assert find_config(name).read_bytes() == (ROOT / "configs" / f"{name}.toml").read_bytes()


def test_a_bare_name_is_the_packages_unless_a_file_has_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "setup2").mkdir()  # a folder is no configuration
    assert load_experiment("setup2", "best").name == "Setup 2"
    assert has_preset("setup2", "best")
    (tmp_path / "setup2").rmdir()
    (tmp_path / "setup2").write_text(SMALL)
    assert load_experiment("setup2").name == "small"


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ("setup22", "did you mean 'setup2'?"),
        ("configs/setup2.toml", "did you mean 'setup2'?"),
        ("mine", "fedtempo init writes one, and "),
        ("some/setup.toml", "fedtempo init writes one, and "),
    ],
)
def test_a_file_that_is_not_there_gets_the_nearest_name_or_all(given, remedy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as error:
        load_experiment(given)
    assert f"{given} must be a configuration file, got no such file; {remedy}" in str(error.value)
    assert "init" not in remedy or all(name in str(error.value) for name in shipped_names())


def test_setups_come_from_the_folder_or_where_nobody_chose_one_from_the_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_setup(CONFIGS, "setup2") == find_config("setup2")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/setup2.toml").write_text(SMALL)
    assert find_setup(CONFIGS, "setup2").resolve() == tmp_path / "configs/setup2.toml"
    with pytest.raises(InputError, match=r"must be a setup of the paper, got no such file; leave configs out"):
        find_setup(tmp_path, "setup2")
