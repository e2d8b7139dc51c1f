"""What a run on Flower nodes leaves behind: records, a model, metrics, and what the log says."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import MetricRecord

from fedtempo import InputError, optimal_sampling
from fedtempo.cli import main
from fedtempo.engine.records import RECORDS, read_records
from fedtempo.engine.run_folder import CHECKPOINT
from fedtempo.experiments.settings.config_file import load_experiment
from fedtempo.fleet_csv import read_fleet
from fedtempo.flower.app.assembly import header_of, read_setup
from fedtempo.flower.app.model_arrays import MODEL
from fedtempo.flower.strategy.model_file import MODEL_FILE
from support.flower_runs import grid_of, nodes_of, problem_of, train


def ready_header(config, policy, **more):
    """Return the header of the ready app's records."""
    return header_of(read_setup({"config": str(config), "policy": policy, **more}))


@pytest.mark.parametrize("policy", ["tempo", "weighted"])
def test_records_are_read_as_those_of_the_simulator(config, tmp_path, policy, capsys):
    train(config, policy, rounds=5, records=tmp_path / "runs" / policy, header=ready_header(config, policy))
    fleet = str(tmp_path / "clients.csv")
    for command in (
        ["report", str(tmp_path / "runs"), "-o", str(tmp_path / "report.html")],
        ["export", str(tmp_path / "runs"), "-o", str(tmp_path / "rounds.parquet")],
        ["estimate", str(tmp_path / "runs" / policy), "-o", fleet],
    ):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 0, capsys.readouterr().err
    assert policy in (tmp_path / "report.html").read_text()
    with np.load(tmp_path / "runs" / policy / MODEL_FILE) as saved:
        assert np.isfinite(saved[MODEL]).all()


def test_records_without_a_header_of_their_own_make_a_report(config, tmp_path):
    train(config, "weighted", rounds=5, records=tmp_path / "run")
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "report.html")])
    assert ended.value.code == 0


def test_what_the_records_of_an_app_tell_is_what_the_papers_scheme_needs(config, tmp_path):
    """Gradient bounds from one run, by way of a file, decide who is drawn in the next."""
    train(config, "full", rounds=3, records=tmp_path / "run")
    with pytest.raises(SystemExit) as ended:
        main(["estimate", str(tmp_path / "run"), "-o", str(tmp_path / "clients.csv")])
    assert ended.value.code == 0
    found = read_fleet(tmp_path / "clients.csv")
    options = {"beta_over_alpha": 0.5, "gradient_bound": found.gradient_bound.tolist(), "floor": 0.0}
    rounds = train(config, "proposed-oracle", rounds=4, options=options, clock="simulated").rounds
    fleet, size = problem_of(config).fleet, load_experiment(config).training.cohort_size
    q = optimal_sampling(
        replace(fleet, gradient_bound=found.gradient_bound), cohort_size=size, beta_over_alpha=0.5
    )  # fmt: skip
    for record in rounds:
        expected = fleet.data_share[record.members] * record.counts / (size * q[record.members])
        np.testing.assert_allclose(record.weights, expected, rtol=1e-6)
    with pytest.raises(InputError, match="gradient_bound"):
        train(config, "proposed-oracle", options={"beta_over_alpha": 0.5})


def test_a_run_that_had_ended_gives_its_model_again(config, tmp_path):
    grid = grid_of(config, "weighted")
    settings = {"rounds": 4, "records": tmp_path / "run", "nodes": nodes_of(grid)}
    first = train(config, "weighted", grid, **settings)
    sent = len(grid.sent)
    again = train(config, "weighted", grid, **settings)
    np.testing.assert_array_equal(again.model, first.model)
    assert (len(first.rounds), again.rounds, len(grid.sent)) == (4, [], sent)
    assert again.summary == first.summary
    (tmp_path / "run" / MODEL_FILE).unlink()
    with pytest.raises(ValueError, match="must hold the model of the run that has ended"):
        train(config, "weighted", grid, **settings)


def test_a_run_that_had_ended_goes_on_to_a_later_end(config, tmp_path):
    """Rounds of real clients are not run again; an earlier end is refused, and a kill before the last line mends."""
    grid, folder = grid_of(config, "weighted"), tmp_path / "run"
    settings = {"records": folder, "nodes": nodes_of(grid)}
    train(config, "weighted", grid, rounds=3, **settings)
    before = read_records(folder / RECORDS)
    more = train(config, "weighted", grid, rounds=5, **settings)
    assert [record.round for record in more.rounds] == [3, 4]
    assert sorted(more.result.train_metrics_clientapp) == [1, 2, 3, 4, 5]
    assert sorted(more.result.evaluate_metrics_serverapp) == [1, 2, 3, 4, 5], "w₀ was evaluated at the first start"
    found = read_records(folder / RECORDS)
    assert found.rounds[:3] == before.rounds
    assert (len(found.rounds), found.summary.rounds) == (5, 5)
    with pytest.raises(InputError, match=r"max_rounds: 5 there, 4 here\); ask for as many rounds as it has or more"):
        train(config, "weighted", grid, rounds=4, **settings)
    text = (folder / RECORDS).read_text().splitlines(keepends=True)
    (folder / RECORDS).write_text("".join(text[:-1]))
    assert (folder / CHECKPOINT).exists()
    same = train(config, "weighted", grid, rounds=5, **settings)
    assert (same.rounds, same.summary.rounds) == ([], 5)
    np.testing.assert_array_equal(same.model, more.model)
    np.testing.assert_allclose(more.model, train(config, "weighted", rounds=5).model, atol=1e-6)


def test_a_report_says_whose_seconds_they_are(config, tmp_path):
    page = tmp_path / "report.html"
    header = ready_header(config, "weighted", clock="simulated")  # which the simulator can run
    for folder, clock, given in (
        ("real", "wall", None), ("simulated", "simulated", None), ("ready", "simulated", header),
    ):  # fmt: skip
        train(config, "weighted", records=tmp_path / folder, clock=clock, header=given)
    for folders, said, commands in (
        (["real"], "Times are real seconds of training", False),
        (["simulated"], "Times are simulated seconds of training", False),
        (["real", "simulated"], "Times are simulated and real seconds of training", False),
        (["ready"], "Times are simulated seconds of training", True),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["report", *(str(tmp_path / name) for name in folders), "-o", str(page)])
        assert ended.value.code == 0
        text = page.read_text()
        assert said in text
        assert ("fedtempo run CONFIG" in text) == commands
        assert ("clock real" in text) == (len(folders) == 2)


def lines_of(caplog, *arguments, **settings):
    """Return what the log says of a run."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "flwr"):
        train(*arguments, **settings)
    return [record.getMessage() for record in caplog.records]


def test_the_log_says_where_records_are_and_what_became_of_the_run(config, tmp_path, caplog, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grid = grid_of(config, "weighted")
    settings = {"records": Path("run"), "nodes": nodes_of(grid)}
    said = lines_of(caplog, config, "weighted", grid, rounds=2, **settings)
    assert f"records: {tmp_path / 'run'}" in said
    assert said[-1].startswith("2 rounds in ")
    assert "s with start and evaluations" in said[-1]
    assert said[-1].endswith("ended by max_rounds")
    said = lines_of(caplog, config, "weighted", grid, rounds=2, **settings)
    assert "that run ended before, by max_rounds: its model is returned, nothing was trained" in said
    said = lines_of(caplog, config, "weighted", grid, rounds=3, **settings)
    assert "the run goes on from its checkpoint" in said
    assert [line.split(":")[0] for line in said if line.startswith("round ")] == ["round 3 of 3"]


def test_the_log_tells_pilots_from_training(config, caplog):
    said = lines_of(caplog, config, "statistical", rounds=2)
    places = [line.split(":")[0] for line in said if "round " in line and "clients" in line]
    pilots = [place for place in places if place.startswith("pilot")]
    assert places == [f"pilot round {number + 1}" for number in range(len(pilots))] + ["round 1 of 2", "round 2 of 2"]
    assert pilots


def test_nodes_that_are_not_connected_are_named_at_once(config, caplog):
    grid = grid_of(config, "weighted")
    with pytest.raises(RuntimeError, match=r"some node must be connected, got none for 1 s; nodes \[1000"):
        lines_of(caplog, config, "weighted", grid, nodes={1: 0, 2: 1, 3: 2, 4: 3, 5: 4, 6: 5}, deadline=1.0)
    assert any("nodes [1, 2, 3, 4, 5, 6] of nodes= are not connected yet" in one.getMessage() for one in caplog.records)


def test_metrics_of_clients_and_of_the_server_are_in_the_result(config):
    """Clients' own are averaged by their data; with both, the loss of the clients counts."""
    calls = []

    def evaluate(server_round, arrays):
        calls.append(server_round)
        return MetricRecord({"loss": 100.0 + server_round, "seen": server_round})

    run = train(config, "full", rounds=2, evaluate="clients", evaluate_fn=evaluate)
    result = run.result
    assert calls == [0, 1, 2]
    assert [result.evaluate_metrics_serverapp[number]["seen"] for number in calls] == calls
    assert [record.loss for record in run.rounds] == [
        pytest.approx(result.evaluate_metrics_clientapp[number]["loss"]) for number in (1, 2)
    ]
    assert all(record.loss < 100 for record in (*run.rounds, run.summary))
    sizes = problem_of(config).data.sizes
    for number, record in enumerate(run.rounds, 1):
        metrics = result.train_metrics_clientapp[number]
        assert metrics["mean-loss"] == pytest.approx(np.average(record.mean_loss, weights=sizes[record.members]))
        assert (metrics["members"], metrics["failed"]) == (len(record.members), 0)
        assert "compute-seconds" not in metrics
