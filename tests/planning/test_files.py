"""The files of a plan: all of them or none."""

import csv
import json
import os

import pytest

from fedtempo import Fleet, InputError
from fedtempo.planning.files import PlanFiles, write_plan
from fedtempo.planning.plan import plan_fleet
from fedtempo.planning.settings import PlanSettings


@pytest.fixture
def plan(small_fleet: Fleet):
    return plan_fleet(small_fleet, PlanSettings(cohort_size=2, draws=50))


def test_all_that_is_wanted_is_written(plan, tmp_path):
    pytest.importorskip("matplotlib")
    wanted = PlanFiles(csv=tmp_path / "a.csv", json=tmp_path / "a.json", plot=tmp_path / "a.PNG")
    write_plan(plan, wanted)
    with open(tmp_path / "a.csv", encoding="utf-8", newline="") as stream:
        shares = [float(row["sampling_prob"]) for row in csv.DictReader(stream)]
    assert shares == plan.sampling_prob.tolist()
    assert json.loads((tmp_path / "a.json").read_text()) == plan.as_json()
    assert (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")
    assert wanted.paths == [tmp_path / "a.csv", tmp_path / "a.json", tmp_path / "a.PNG"]


def test_a_picture_that_cannot_be_drawn_is_refused_first(plan, tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(InputError, match=r"plot must end in \.png, \.pdf or \.svg"):
        write_plan(plan, PlanFiles(csv=tmp_path / "a.csv", plot=tmp_path / "a.gif"))
    assert os.listdir(tmp_path) == []
    write_plan(plan, PlanFiles())
