"""Which nodes are which clients: those that connect late, return, are sick or do not describe themselves."""

import json
import threading
import time

import pytest
from flwr.app import Error, Message
from flwr.clientapp import ClientApp

from fedtempo import InputError
from fedtempo.flower.strategy import describing, roster
from fedtempo.flower.strategy.client_mod import tempo_client
from fedtempo.flower.strategy.messages import ASK, CONFIG, DESCRIBE
from fedtempo.flower.strategy.roster import ROSTER_FILE, find_roster
from support.flower_runs import StoppedError, failing, grid_of, joined, stop_after_three, train


def test_a_node_that_failed_to_describe_itself_is_asked_again(config, monkeypatch):
    monkeypatch.setattr(describing, "DESCRIBE_SECONDS", 0.05)
    asked = []

    def once(config):
        if config.get(ASK) == DESCRIBE:
            asked.append(1)
        return config.get(ASK) == DESCRIBE and len(asked) < 3

    grid = grid_of(config, "full", app=failing(2, when=once))
    rounds = train(config, "full", grid, rounds=30).rounds
    assert 2 not in rounds[0].members
    assert 2 in rounds[-1].members


def test_a_sick_node_at_the_start_is_left_out(config, caplog):
    grid = grid_of(config, "full", app=failing(2, when=lambda config: config.get(ASK) == DESCRIBE))
    rounds = train(config, "full", grid, rounds=2).rounds
    assert all(record.members == [0, 1, *range(3, 10)] for record in rounds)
    assert "node 1014 must describe itself, got no more memory" in caplog.text


def test_where_all_are_sick_the_last_reason_is_given(config):
    grid = grid_of(config, "full", app=ClientApp(mods=[lambda message, context, call_next: 1 / 0]))
    with pytest.raises(InputError, match=r"at least 2 nodes must describe themselves, got 0; node .*lacks mods"):
        train(config, "full", grid)


def test_without_a_fleet_clients_are_the_nodes_that_connect_one_after_another(config, monkeypatch):
    monkeypatch.setattr(roster, "SETTLE_SECONDS", 1.0)
    grid = grid_of(config, "full")
    late, grid.online = sorted(grid.online)[2:], {1000, 1007}

    def come():
        for node in late:
            time.sleep(0.1)
            grid.online.add(node)

    thread = threading.Thread(target=come)
    thread.start()
    found = find_roster(grid, fleet=None, least=2, seconds=20.0, folder=None)
    thread.join()
    assert len(found.fleet) == 10


def test_a_run_starts_and_goes_on_while_a_device_is_not_connected(config, tmp_path, monkeypatch):
    monkeypatch.setattr("fedtempo.engine.run.CHECKPOINT_SECONDS", 0.0)

    grid = grid_of(config, "uniform")
    grid.online.discard(1000)
    with pytest.raises(StoppedError):
        train(config, "uniform", grid, rounds=6, records=tmp_path, deadline=1.0, progress=stop_after_three)
    assert [row["client"] for row in json.loads((tmp_path / ROSTER_FILE).read_text())] == [*range(1, 10)]
    asked = len(grid.sent)
    grid.online ^= {1000, 1007}  # the first is connected now, the second is not
    run = train(config, "uniform", grid, rounds=12, records=tmp_path, deadline=1.0)
    drawn = {client for record in run.rounds for client in record.members}
    assert 0 in drawn
    assert 1 not in drawn
    describing = [one for one in grid.sent[asked:] if ASK in one.content.config_records[CONFIG]]
    assert [one.metadata.dst_node_id for one in describing] == [1000], "those who are known are not asked again"


def test_who_connects_later_is_drawn(config, tmp_path):
    """Client 2 is not connected at the start; then its device connects, with an id that nobody knew."""
    grid = grid_of(config, "full")
    grid.online -= {1014}

    def come(loop, record):
        if record.round == 1:
            joined(grid, 5000, 2)

    settings = {"rounds": 6, "deadline": 2.0, "records": tmp_path / "run", "progress": come}
    rounds = train(config, "full", grid, **settings).rounds
    assert not any(2 in record.members for record in rounds[:2])
    assert 2 in rounds[-1].members
    assert {row["client"]: row["node"] for row in json.loads((tmp_path / "run" / ROSTER_FILE).read_text())}[2] == 5000


def test_a_restarted_device_with_a_new_id_takes_its_place_once_the_old_one_is_gone(config, tmp_path, caplog):
    grid = grid_of(config, "full")

    def change(loop, record):
        if record.round == 0:
            joined(grid, 5000, 2)
            joined(grid, 6000, 99)  # nobody's place
        if record.round == 3:
            grid.online -= {1014}

    rounds = train(config, "full", grid, rounds=8, deadline=2.0, progress=change).rounds
    assert not any(record.failed for record in rounds)
    assert all(record.members == rounds[0].members for record in (*rounds[:4], rounds[-1]))
    asked = [message.metadata.dst_node_id for message in grid.sent]
    assert 2 <= asked.count(5000) <= 1 + 4, "who it is, and rounds after the old one is gone"
    assert asked.count(1014) == 1 + 4
    assert asked.count(6000) == 1
    assert "node 5000 takes the place of client 2" in caplog.text


def test_a_stranger_that_cannot_describe_itself_does_no_harm(config, caplog):
    grid = grid_of(config, "uniform")
    answer = grid.answer
    grid.answer = lambda message, context: (
        answer(message, context)
        if context.node_id < 5000
        else Message(Error(0, "no such mod"), reply_to=message)
    )  # fmt: skip

    def come(loop, record):
        if record.round == 0:
            joined(grid, 5000, 1)

    run = train(config, "uniform", grid, rounds=4, progress=come)
    assert run.summary.rounds == 4
    assert not any(record.failed for record in run.rounds)
    assert "it is not drawn: node 5000 must describe itself, got no such mod" in caplog.text


def test_a_node_that_does_not_describe_itself_is_left_out(config, monkeypatch):
    monkeypatch.setattr("fedtempo.flower.strategy.describing.DESCRIBE_SECONDS", 0.5)
    grid = grid_of(config, "uniform")
    grid.silent = {1007}
    run = train(config, "uniform", grid, rounds=10)
    assert run.summary.rounds == 10
    assert not any(1 in record.members for record in run.rounds)
    grid.silent = set(grid.online)
    with pytest.raises(InputError, match="at least 2 nodes must describe themselves, got 0"):
        train(config, "uniform", grid)


def test_where_some_are_not_connected_nodes_need_numbers(config):
    app = ClientApp(mods=[tempo_client()])
    app.train()(lambda message, context: message)
    grid = grid_of(config, "uniform", app=app)
    grid.online.discard(1000)
    for context in grid.contexts.values():
        context.node_config["partition-id"] += 5
    with pytest.raises(InputError, match="9 nodes for 10 clients"):
        train(config, "uniform", grid, deadline=0.5)
