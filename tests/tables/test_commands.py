import shlex

from fedtempo.tables.commands import command_line


def test_settings_are_spelled_as_options_and_quoted():
    made = command_line("run", "my.toml", policy="a b", first_seed=3, preset=None)
    assert made == "fedtempo run my.toml --policy 'a b' --first-seed 3"
    assert shlex.split(made)[-4:] == ["--policy", "a b", "--first-seed", "3"]
