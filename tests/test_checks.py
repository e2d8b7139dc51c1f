"""What input must satisfy: the fields of an error, its sentence, where it was found, and how names are spelled."""

import pickle

import numpy as np
import pytest

from fedtempo import InputError
from fedtempo.checks import (
    MissingDependencyError,
    as_integers,
    as_numbers,
    check_choice,
    check_count,
    check_fraction,
    check_nonnegative,
    check_positive,
    check_seed,
    first_violation,
    near_miss,
)
from fedtempo.data.sources import NoFilesError


def as_option(name):
    return "--" + name.replace("_", "-")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (InputError("seed", "be there"), "seed must be there"),
        (InputError("seed", "be there", remedy="give one"), "seed must be there; give one"),
        (InputError("seed", "be 0", 1), "seed must be 0, got 1"),
        (InputError("seed", "be 0", 0.5, "round it"), "seed must be 0, got 0.5; round it"),
        (InputError("name", "be known", "nothing"), "name must be known, got nothing"),
        (InputError("name", "be known", repr("a b")), "name must be known, got 'a b'"),
        (InputError("list", "be full", []), "list must be full, got []"),
        (InputError("flag", "be true", got=False), "flag must be true, got False"),
    ],
)
def test_the_sentence_is_made_of_the_fields(error, sentence):
    assert str(error) == error.sentence() == sentence
    assert isinstance(error, ValueError)


def test_the_fields_can_be_read():
    error = InputError("seed", "be 0", 1, "leave it out")
    assert (error.name, error.rule, error.got, error.remedy, error.places) == ("seed", "be 0", 1, "leave it out", ())


def test_places_stand_before_the_sentence_the_outermost_first():
    inner = InputError("seed", "be 0", 1)
    outer = inner.within("[training]").within("a.toml")
    assert outer.places == ("a.toml", "[training]")
    assert str(outer) == "a.toml: [training]: seed must be 0, got 1"
    assert str(inner) == "seed must be 0, got 1", "the error itself stays as it is"
    assert (outer.name, outer.rule, outer.got) == (inner.name, inner.rule, inner.got)


def test_settings_are_spelled_as_their_reader_knows_them():
    error = InputError(
        "max_time", "come with {max_rounds}", "{max_time}", "give {model_megabytes} or {a} {Not This} {}"
    )
    assert str(error) == "max_time must come with max_rounds, got {max_time}; give model_megabytes or a {Not This} {}"
    assert error.sentence(as_option) == (
        "--max-time must come with --max-rounds, got {max_time}; give --model-megabytes or --a {Not This} {}"
    )
    assert error.within("a.toml").sentence(as_option).startswith("a.toml: max_time must come with --max-rounds"), (
        "in a file, a name is the file's own"
    )


ERRORS = [
    InputError("seed", "be 0"),
    InputError("seed", "be 0", 1, "leave it out").within("a.toml").within("study"),
    NoFilesError("EMNIST", "be on this machine", "no files").within("data"),
    MissingDependencyError("torch", "this model"),
    MissingDependencyError("torch", "this model").within("a.toml"),
]


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_errors_pass_from_one_process_to_another(error):
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is type(error)
    assert vars(other) == vars(error)
    assert other.args == error.args
    assert str(other.within("here")) == f"here: {error}"


def test_a_missing_package_is_named_with_what_brings_it():
    error = MissingDependencyError("flwr", "flower_run")
    assert str(error).startswith("flower_run needs flwr, which is not installed; ")
    assert error.sentence(as_option).startswith("--flower-run needs flwr")
    assert "pip install 'fedtempo[flower]'" in error.remedy
    assert error.package == "flwr"
    assert str(error.within("a.toml")) == f"a.toml: {error}"


def test_a_near_miss_is_asked_for_and_otherwise_all_are_named():
    assert near_miss("wieghted", ["uniform", "weighted"]) == "did you mean 'weighted'?"
    assert near_miss("x", ["uniform", "weighted"]) == "known are uniform, weighted"
    assert near_miss("x", [], otherwise="there are {}") == "there are none"


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (check_count, [1, np.int64(7)], [0, -1, True, 1.0, "1", None]),
        (check_seed, [0, np.int64(7)], [-1, False, 0.0, "1", None]),
        (check_positive, [1, 0.5, np.float32(2)], [0, -1.0, True, np.nan, np.inf, "1", None]),
        (check_nonnegative, [0, 0.5], [-1e-9, True, np.nan, np.inf, "1", None]),
        (check_fraction, [0, 0.5, 1], [-1e-9, 1.01, True, np.nan, "1", None]),
    ],
)
def test_numbers_are_taken_or_refused_with_their_name(check, right, wrong):
    for value in right:
        assert check("it", value) == value
        assert type(check("it", value)) in (int, float)
    for value in wrong:
        with pytest.raises(InputError, match=r"^it must ") as caught:
            check("it", value)
        assert str(caught.value).endswith(f", got {value!r}")


def test_choices_and_arrays_are_taken_or_refused():
    assert check_choice("it", "a", ("a", "b")) == "a"
    with pytest.raises(InputError, match="it must be one of a, b, got 'c'"):
        check_choice("it", "c", ("a", "b"))
    assert as_integers("it", []).dtype == np.int64
    for values in ([0.5], [True], ["a"]):
        with pytest.raises(InputError, match="it must hold whole numbers"):
            as_integers("it", values)
    for values in (None, ["a"], [[1.0], [1.0, 2.0]]):
        with pytest.raises(InputError, match="it must hold numbers"):
            as_numbers("it", values)


@pytest.mark.parametrize("allow_zero", [False, True])
def test_the_first_wrong_value_is_found(allow_zero):
    right = np.array([0.5, 2.0, 1.0])
    assert first_violation(right, allow_zero=allow_zero) is None
    for wrong in (np.nan, np.inf, -np.inf, -1.0, *(() if allow_zero else (0.0,))):
        assert first_violation(np.array([0.5, wrong, 1.0, wrong]), allow_zero=allow_zero) == 1
    assert first_violation(np.array([0.0, 1.0]), allow_zero=True) is None
