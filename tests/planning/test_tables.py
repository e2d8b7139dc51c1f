"""The tables of a plan: its own numbers, all of a name, and columns that a narrow terminal can do without."""

import pytest

from fedtempo import Fleet
from fedtempo.planning.plan import plan_fleet
from fedtempo.planning.settings import PlanSettings

NAMES = ("a", "b" * 30, "c\x1b[2J", "d")


def planned(size=4, **settings):
    fleet = Fleet([0.4, 0.3, 0.2, 0.1], [1.0] * 4, [1.0, 2.0, 3.0, 4.0], [1.0] * 4, names=NAMES)
    return plan_fleet(fleet, PlanSettings(cohort_size=size, draws=50, **settings))


def test_each_policy_has_the_numbers_of_its_forecast():
    plan = planned(beta_over_alpha=0.5, rounds_weighted=100.0)
    table = plan.table()
    noise = f"{plan.forecasts[0].noise:.3g}"
    assert table.title == f"4 clients, 4 drawn a round, β/α = 0.5 beside a sampling noise of {noise}"
    assert table.marked == 0
    rows = list(table.records())
    assert [row["policy"] for row in rows] == ["optimal", "uniform", "weighted", "statistical"]
    assert [row["round"] for row in rows] == [forecast.round_time.mean for forecast in plan.forecasts]
    assert rows[2]["rounds"] == pytest.approx(100.0)
    assert rows[0]["hours"] == plan.hours(plan.forecasts[0])
    equal = list(planned(link="equal").table().records())
    assert [equal[0]["lower"], equal[0]["upper"], "hours" in equal[0]] == [None, None, False]


def test_all_but_what_decides_is_dispensable():
    plan = planned()
    needed = [[c.name for c in table.columns if not c.dispensable] for table in (plan.table(), plan.client_table())]
    assert needed == [["policy", "round", "time ×"], ["client", "cost s", "draw prob. q"]]
    for table in (plan.table(), plan.client_table()):
        ranks = [column.dispensable for column in table.columns if column.dispensable]
        assert len(set(ranks)) == len(ranks), "one after the other"


def test_clients_stand_in_the_order_of_their_draws_and_values_have_the_whole_name():
    plan = planned()
    table = plan.client_table()
    shares = [row["draw prob. q"] for row in table.records()]
    assert shares == sorted(plan.sampling_prob.tolist(), reverse=True)
    cells = {row[0].value: row[0].text for row in table.rows}
    assert cells == {"a": "a", "b" * 30: "b" * 23 + "…", "c\x1b[2J": "c?[2J", "d": "d"}


def test_the_sensitivity_names_the_best_size_where_it_was_chosen():
    assert "best K" not in [column.name for column in planned().sensitivity_table().columns]
    chosen = planned(None, beta_over_alpha=0.5)
    assert [row["best K"] for row in chosen.sensitivity_table().records()] == [
        case.best_cohort for case in chosen.sensitivities
    ]


def test_nothing_is_lost_by_less_than_nothing():
    alone = plan_fleet(Fleet([1.0], [1.0], [0.3], [0.7]), PlanSettings(cohort_size=1, draws=50, beta_over_alpha=0.1))
    column = [row[1].text for row in alone.sensitivity_table().rows]
    assert column == ["+0.0%"] * len(column)


def test_notes_name_settings_as_their_reader_knows_them():
    plan = planned(20)
    (plain,) = [note for note in plan.notes() if "different clients" in note]
    assert plain.endswith("every draw as an upload, duplicates physical counts each client once")
    options = plan.as_json(lambda name: f"--{name}")["notes"]
    assert any("--duplicates physical counts each client once" in note for note in options)
