"""Numbers as a person reads them."""

import pytest

from fedtempo.experiments.comparing.amounts import amount, count, limits_in_words, multiple


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (1234.5, "1,234"), (99.96, "100.0"), (0.01234, "0.0123"), (3.14159, "3.14")]
)
def test_seconds_have_three_digits(value, text):
    assert amount(value) == text


def test_ratios_are_bounded_by_the_side_that_missed_and_unknown_where_both_did():
    assert [multiple(value) for value in (0.01234, 0.5, 12.345, 1234.5)] == ["0.012 ×", "0.50 ×", "12.35 ×", "1,234 ×"]
    assert multiple(2.0, numerator_missed=True) == "> 2.00 ×"
    assert multiple(2.0, denominator_missed=True) == "< 2.00 ×"
    assert multiple(2.0, numerator_missed=True, denominator_missed=True) == "-"


def test_limits_and_counts_have_units():
    assert limits_in_words({"max_rounds": 2000, "max_time": 1500.5, "target_loss": 1.0}) == "2,000 rounds or 1,500.5 s"
    assert limits_in_words({"max_rounds": None, "max_time": 60.0}) == "60 s"
    assert [count(number, "run") for number in (1, 2, 1000)] == ["1 run", "2 runs", "1,000 runs"]
