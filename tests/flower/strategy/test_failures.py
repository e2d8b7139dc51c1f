"""Why an update is missing: kinds by which programs count, sentences that people read, records of both formats."""

import pytest

from fedtempo import InputError
from fedtempo.flower.strategy.failures import Failure, FailureKind, refused, shortened
from fedtempo.flower.strategy.notes import failures_in, uploads_in
from support.testbed_records import record

FAILURES = {
    "refused: an update must be finite": Failure(FailureKind.REFUSED, "an update must be finite"),
    "no reply within 3 s": Failure(FailureKind.NO_REPLY, "within 3 s"),
    "lost": Failure(FailureKind.LOST),
    "KeyError('lr')": Failure(FailureKind.ERROR, "KeyError('lr')"),
}


@pytest.mark.parametrize("text", FAILURES)
def test_records_of_both_formats_are_read_alike(text):
    failure = FAILURES[text]
    assert str(failure) == text
    for written in (text, {"kind": str(failure.kind), "detail": failure.detail}):
        assert failures_in(record([], note={"failures": {"12": written}})) == {12: failure}


def test_a_round_in_which_nobody_failed_has_no_failures():
    assert failures_in(record([])) == {}
    assert uploads_in(record([])) == {}


def test_a_note_that_fedtempo_did_not_write_is_refused():
    with pytest.raises(InputError, match="failures in the note of round 0 must be as fedtempo writes them"):
        failures_in(record([], note={"failures": {"0": {"kind": "bored", "detail": ""}}}))


def test_what_clients_send_is_shortened_and_its_colours_are_left_out():
    assert shortened("\x1b[31mno\x1b[0m more ") == "no more"
    assert len(refused("x" * 999).detail) == 300
    assert shortened("x" * 999 + "end", keep_end=True).endswith("end")
