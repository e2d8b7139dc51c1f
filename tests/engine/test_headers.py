"""Headers: whether they ask for the same run, and in what words they differ."""

import math

import msgspec
import pytest

from fedtempo import InputError
from fedtempo.engine.headers import LIMITS, as_table, limits, other_code, other_run, with_config, with_limits
from fedtempo.engine.records import FORMAT, HeaderLine, encode, plain, read_header
from support.grids import made_up

HEADER = made_up("uniform", 0, [], 1.0).header


def with_stop(**stop):
    return with_config(HEADER, {**HEADER.config, "stop": stop})


def changed(**fields):
    return msgspec.structs.replace(HEADER, **fields)


def test_the_limits_of_a_run_are_infinite_where_there_are_none():
    assert limits(HEADER) == (math.inf, math.inf)
    assert limits(with_stop(max_rounds=5, max_time=None)) == (5, math.inf)
    assert limits(with_stop(max_time=2.5)) == (math.inf, 2.5)
    assert limits(with_config(HEADER, {})) == (math.inf, math.inf)


def test_limits_are_taken_over_or_left_out_and_targets_stay():
    here, there = with_stop(max_rounds=5, target_loss=1.0), with_stop(max_time=9.0, target_loss=2.0)
    assert with_limits(here, there).config["stop"] == {"max_time": 9.0, "target_loss": 1.0}
    assert with_limits(here, None).config["stop"] == {"target_loss": 1.0}
    assert here.config["stop"] == {"max_rounds": 5, "target_loss": 1.0}, "the header itself stays as it is"
    assert not other_run(with_limits(here, there), with_stop(max_time=9.0, target_loss=1.0))
    assert all(name not in with_limits(HEADER, with_stop(max_rounds=None)).config["stop"] for name in LIMITS)


def test_a_header_with_another_configuration_is_of_this_format():
    assert with_config(changed(format=1), {"stop": {}}).format == FORMAT


@pytest.mark.parametrize(
    "fields", [{"experiment": "x"}, {"preset": None}, {"format": 1}, {"commit": "0ld"}, {"versions": {"numpy": "1"}}]
)
def test_what_a_run_was_called_and_made_with_makes_it_no_other(fields):
    assert other_run(changed(**fields), HEADER) == ""


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"seed": 7}, "seed: 7 there, 0 here"),
        ({"policy": "tempo"}, "policy: 'tempo' there, 'uniform' here"),
        ({"data_checksum": "x"}, "data_checksum: 'x' there, 'none' here"),
        ({"clock": "wall"}, "clock: 'wall' there, nothing here"),
        ({"config": {"training": {"a": 1}}}, "config.training.a: 1 there, nothing here"),
        ({"config": HEADER.config | {"more": 2}}, "config.more: 2 there, nothing here"),
    ],
)
def test_what_differs_is_said_in_words(fields, said):
    assert said in other_run(changed(**fields), HEADER)
    assert other_run(HEADER, HEADER) == ""


def test_of_many_differences_three_are_shown_and_the_others_counted():
    there = with_config(HEADER, HEADER.config | {"training": dict.fromkeys("abcde", 1)})
    said = other_run(there, HEADER)
    assert said.count(" there, ") == 3
    assert said.endswith("; and 2 more")


def test_headers_are_compared_in_the_form_that_they_are_given():
    assert other_run(changed(seed=7), HEADER, lambda header: {"policy": header.policy}) == ""
    for error in (InputError("seed", "be 0"), KeyError("seed"), TypeError("seed")):

        def refuse(header, error=error):
            raise error

        assert other_run(changed(seed=7), HEADER, refuse) == "seed: 7 there, 0 here"


def test_other_code_is_said():
    there = changed(versions={"numpy": "1.0"}, commit="0ld", seed=7)
    here = changed(versions={"numpy": "2.0"}, commit="new")
    assert other_code(there, here) == "versions.numpy: '1.0' there, '2.0' here; commit: '0ld' there, 'new' here"
    assert other_code(changed(seed=7), HEADER) == ""


def test_an_infinite_setting_is_another_than_none(tmp_path):
    infinite = with_config(HEADER, {**HEADER.config, "policy": {"tempo": {"largest_factor": math.inf}}})
    (tmp_path / "records.jsonl").write_bytes(encode(HeaderLine(infinite)))
    for found in (plain(infinite), read_header(tmp_path / "records.jsonl")):
        assert as_table(found) == as_table(infinite)
        assert other_run(found, HEADER) == "config.policy: {'tempo': {'largest_factor': inf}} there, nothing here"
    given = with_config(HEADER, {**HEADER.config, "policy": {"tempo": {}}})
    assert other_run(infinite, given) == "config.policy.tempo.largest_factor: inf there, nothing here"
