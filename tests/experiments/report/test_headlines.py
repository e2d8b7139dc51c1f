"""Headlines: who was first, by how much, with all time counted."""

from dataclasses import replace

import numpy as np

from fedtempo.experiments.comparing.statistics import times_to
from fedtempo.experiments.report.headlines import headline
from support.reports import TARGET, times_of


def test_the_headline_names_the_first_and_the_ratios(runs):
    times = times_to(runs, TARGET)
    counted = [one.with_pilots() for one in times.values()]
    first, last = sorted(counted, key=lambda one: one.mean)
    text = headline(times, TARGET)
    after = f"after {first.mean:,.0f} s, pilots counted, in the mean of 2 seeds."
    assert text.startswith(f"{first.policy} was first at loss 1.95 {after}")
    assert f"Next was {last.policy}, which took {last.mean / first.mean:.2f} times as long." in text
    trained = min(times.values(), key=lambda one: one.mean)
    other = f"With all pilots left out, {trained.policy} would be first, after {trained.mean:,.0f} s."
    assert text.endswith(other) == (trained.policy != first.policy)
    alone = {"uniform": times["uniform"]}
    assert headline(alone, TARGET).startswith("uniform reached loss 1.95 after"), "there are no pilots to speak of"
    assert "pilots" not in headline(alone, TARGET)


def test_a_headline_names_the_next_or_a_few_and_how_many_more_there_are():
    times = {f"p{n}": times_of(f"p{n}", 100.0 * n) for n in range(1, 20)}
    text = headline(times, TARGET)
    assert text == (
        "p1 was first at loss 1.95 after 100 s in the mean of 3 seeds. "
        "Next was p2, which took 2.00 times as long (95 % interval 2.00–2.00)."
    )
    short = {label: one if label == "p1" else replace(one, reached=~one.reached) for label, one in times.items()}
    assert headline(short, TARGET).endswith(
        "The others missed it: p2 in 3 of 3 runs, p3 in 3 of 3 runs, p4 in 3 of 3 runs, and 15 more below."
    )
    missed = {label: replace(one, reached=np.zeros(3, dtype=bool)) for label, one in times.items()}
    assert headline(missed, TARGET).endswith("p1 in 0 of 3, p2 in 0 of 3, p3 in 0 of 3, and 16 more below.")
    assert "more below" not in headline({label: times[label] for label in list(times)[:5]}, TARGET)


def test_who_takes_pilots_for_granted_is_no_contender():
    times = {"oracle": times_of("oracle", 1.0, oracle=True), "uniform": times_of("uniform", 300.0)}
    assert headline(times, TARGET) == "uniform reached loss 1.95 after 300 s in the mean of 3 seeds."
    times["proposed"] = times_of("proposed", 200.0, pilots=200.0)
    text = headline(times, TARGET)
    assert text.startswith("uniform was first at loss 1.95 after 300 s, pilots counted, in the mean of 3 seeds.")
    assert text.endswith("With all pilots left out, proposed would be first, after 200 s.")
    alone = {label: times_of(label, seconds, oracle=True) for label, seconds in (("K = 1", 9.0), ("K = 2", 8.0))}
    assert headline(alone, TARGET).startswith("K = 2 was first at loss 1.95 after 8.00 s, pilots taken for granted,")
