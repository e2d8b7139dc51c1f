"""What is noted before runs begin: more draws a round than there are clients, where that means repeated ones."""

import pytest

from fedtempo.experiments.running.notices import cohort_notice
from fedtempo.experiments.settings.config_file import load_experiment
from support.runs import SMALL, command


def noted(config, policies, cohort_size=11, **policy):
    over = {"training": {"cohort_size": cohort_size}, "policy": policy}
    return cohort_notice(load_experiment(config, over=over), policies)


def test_draws_above_the_number_of_clients_are_noted_where_they_repeat(config):
    assert noted(config, ["uniform", "weighted", "proposed"], cohort_size=10) is None
    assert noted(config, ["uniform", "tempo", "weighted"]).startswith(
        "cohort_size 11 is above the 10 clients: uniform and weighted draw with replacement"
    )
    own = {"training": {"cohort_size": 40}}
    assert "cohort_size 11 and 40 is above" in noted(config, ["uniform", "weighted"], weighted=own)


@pytest.mark.parametrize("policies", [["full"], ["tempo"], ["fedcs", "oort", "tifl"]])
def test_policies_that_draw_each_client_once_have_no_such_note(config, policies):
    assert noted(config, policies) is None


def test_an_option_may_forbid_repeated_draws(config):
    assert noted(config, ["uniform"], uniform={"replacement": False}) is None


def test_the_note_is_shown_before_the_run(config, tmp_path, capsys):
    config.write_text(SMALL.replace("cohort_size = 3", "cohort_size = 12"))
    assert command("run", config, "--policy", "weighted", "--max-rounds", 1, "-o", tmp_path / "out") == 0
    note = "note: cohort_size 12 is above the 10 clients: weighted draws with replacement"
    assert capsys.readouterr().err.startswith(note)
