"""Settings by successive halving and races: what goes on, for how long, and that a stop changes nothing."""

import dataclasses
import math
from collections import Counter
from contextlib import contextmanager

from fedtempo.experiments.comparing.statistics import Target
from fedtempo.experiments.ranking.candidates import SearchSpace, candidates
from fedtempo.experiments.ranking.halving import Search, score_until
from fedtempo.experiments.running.grid import Execution
from fedtempo.experiments.running.planned import until
from fedtempo.experiments.running.results import read_run
from fedtempo.experiments.running.runner import run
from fedtempo.experiments.settings.config_file import load_experiment
from support.grids import made_up

TARGET = Target(loss=1.0)
PARTS = (0.25, 0.5, 1.0)
STEPS = (0.001, 0.005, 0.01, 0.05)
LIMIT = 64.0


class Watching:
    """Keeps the titles of grids, and how many of their runs had to be computed."""

    def __init__(self):
        self.grids = []

    @contextmanager
    def __call__(self, grid):
        self.grids.append((grid.title, len(grid.runs), len(grid.unfinished), grid.runs[0].settings.stop.max_time))
        yield lambda run: None


def space_of(config, root, choices, target=1.0):
    stop = {"target_loss": target, "max_time": LIMIT}
    worlds = [{"data": {"seed": draw}} for draw in (7, 8)]
    return SearchSpace(
        experiment=load_experiment(config), choices=choices, seeds=[1000], stop=stop, root=root, worlds=worlds
    )


def halved(config, root, watch=None, target=1.0, policies=("weighted",)):
    own = {policy: [] for policy in policies}
    choices = {"step_size": STEPS, "cohort_size": (2,)}
    for one in candidates(list(own), space_of(config, root, choices, target=target)):
        own[one.policy].append(one)
    search = Search("small", Target(loss=target), Execution(jobs=1, watch=watch or Watching()))
    return search, search.halved(own, PARTS)


def choices_of(chosen):
    return {policy: dict(own.best.candidate.choice) for policy, own in chosen.items()}


def test_half_of_the_settings_go_on_from_where_they_stopped(setup2, tmp_path):
    watch = Watching()
    _, chosen = halved(setup2, tmp_path / "runs", watch, target=0.01, policies=("uniform", "weighted"))
    assert watch.grids == [
        (f"small: settings, part {number} of at most 3", 2 * 2 * left, 2 * 2 * left, LIMIT * part)
        for number, (left, part) in enumerate(zip((4, 2, 1), PARTS, strict=True), start=1)
    ], "policies × draws × settings"
    folders = list((tmp_path / "runs").iterdir())
    assert len(folders) == 2 * 2 * 4, "a run that goes on has one folder"
    limits = Counter(read_run(folder / "records.jsonl").time_limit for folder in folders)
    assert limits == {16.0: 8, 32.0: 4, 64.0: 4}
    for own in chosen.values():
        assert len(own.tried) == 4
        assert not own.best.reached
        for one, folder in ((one, one.folder) for one in own.best.candidate.runs):
            whole = dataclasses.replace(one, folder=tmp_path / "whole" / folder.name)
            run(whole)
            assert (folder / "records.jsonl").read_bytes() == whole.records.read_bytes(), "as run in one go"


def test_what_goes_on_has_the_lowest_loss_so_far(setup2, tmp_path):
    _, chosen = halved(setup2, tmp_path / "runs", target=0.01)
    losses = {}
    for one in chosen["weighted"].tried:
        found = [read_run(planned.records) for planned in one.candidate.runs]
        losses[tuple(one.candidate.choice.values())] = score_until(found, Target(loss=0.01), 16.0).losses
    longest = {
        tuple(one.candidate.choice.values())
        for one in chosen["weighted"].tried
        if read_run(one.candidate.runs[0].records).time_limit > 16.0
    }
    assert longest == set(sorted(losses, key=losses.get)[:2])


def test_the_fastest_to_the_target_is_chosen_and_nothing_runs_on(setup2, tmp_path):
    watch = Watching()
    _, chosen = halved(setup2, tmp_path / "runs", watch, target=1.6)
    last = watch.grids[-1][3]
    best = chosen["weighted"].best
    assert best.reached
    assert last < LIMIT
    for one in chosen["weighted"].tried:
        found = [read_run(planned.records) for planned in one.candidate.runs]
        assert score_until(found, Target(loss=1.6), last) >= best.score
    assert max(read_run(path).time_limit for path in (tmp_path / "runs").rglob("records.jsonl")) == last


def test_asked_again_the_choice_is_the_same_and_nothing_runs(setup2, tmp_path):
    target = 1.0
    _, first = halved(setup2, tmp_path / "runs", target=target)
    watch = Watching()
    _, again = halved(setup2, tmp_path / "runs", watch, target=target)
    assert choices_of(again) == choices_of(first)
    assert [one.score for own in again.values() for one in own.tried] == [
        one.score for own in first.values() for one in own.tried
    ]
    assert all(unfinished == 0 for _, _, unfinished, _ in watch.grids)


def test_killed_on_the_way_to_a_later_limit_the_choice_is_the_same(setup2, tmp_path):
    _, first = halved(setup2, tmp_path / "runs", target=0.01)
    for place, one in enumerate(first["weighted"].best.candidate.runs):
        lines = one.records.read_bytes().splitlines(keepends=True)
        kept = len(lines) - 1 if place == 0 else 3  # beyond the first limits, and before them
        one.records.write_bytes(b"".join(lines[:kept]) + b'{"round": 9')
    _, again = halved(setup2, tmp_path / "runs", target=0.01)
    assert choices_of(again) == choices_of(first)
    assert again["weighted"].best.score == first["weighted"].best.score


def test_levers_race_against_the_best_so_far(setup2, tmp_path):
    watch = Watching()
    search, chosen = halved(setup2, tmp_path / "runs", watch, target=1.6)
    before = chosen["weighted"].best
    took = [read_run(one.records).time_to(loss=1.6) for one in before.candidate.runs]
    base = {name: [value] for name, value in before.candidate.choice.items()}
    faster, slower = (
        candidates(["weighted"], space_of(setup2, tmp_path / "runs", base | over, target=1.6))
        for over in ({"upload_bits": [4]}, {"step_size": [1e-7]})
    )
    raced = search.raced(1, chosen, {"weighted": slower})
    assert raced["weighted"].best is before, "a lever that is slower replaces nothing"
    title, _, computed, limit = watch.grids[-1]
    assert (title, computed, limit) == ("small: levers, stage 1", 2, max(took))
    assert len(raced["weighted"].tried) == len(chosen["weighted"].tried) + 1
    raced = search.raced(2, raced, {"weighted": faster})
    assert raced["weighted"].best.candidate.choice["upload_bits"] == 4, "an eighth of each upload"
    assert raced["weighted"].best.score < before.score


def test_judged_is_what_happened_before_the_limit():
    going = made_up("uniform", 0, [3.0, 2.0, 0.9], 10.0, end="target")
    assert score_until([going], TARGET, 30.0).missed == 0
    assert score_until([going], TARGET, 30.0).seconds == 30.0
    short = score_until([going], TARGET, 25.0)
    assert (short.missed, short.seconds, short.losses) == (1, 25.0, 2.0)
    assert score_until([going], TARGET, 20.0).losses == 3.0, "the look at the limit is none of a run that goes on"
    assert score_until([going], TARGET, 5.0).losses == math.inf
    gone = made_up("uniform", 0, [3.0, 2.0], 10.0, end="diverged")
    assert (score_until([gone], TARGET, 15.0).diverged, score_until([gone], TARGET, 15.0).losses) == (0, 3.0)
    assert (score_until([gone], TARGET, 25.0).diverged, score_until([gone], TARGET, 25.0).losses) == (1, math.inf)
    assert score_until([made_up("proposed", 0, [0.5], 10.0, pilot=7.0)], TARGET, 30.0).seconds == 17.0


def test_a_limit_leaves_the_folder_as_it_is(setup2, tmp_path):
    (one,) = candidates(["uniform"], space_of(setup2, tmp_path, {"step_size": [0.01]}))[:1]
    shorter = until(one.runs[0], 5.0)
    assert shorter.folder == one.runs[0].folder
    assert shorter.settings.stop.max_time == shorter.header.config["stop"]["max_time"] == 5.0
    assert one.runs[0].settings.stop.max_time == LIMIT
