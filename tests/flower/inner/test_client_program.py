"""A ClientApp that answers one message, as Flower's own program does."""

from fedtempo.flower.inner import client_program
from fedtempo.flower.inner.client_task import ClientTask


def test_flower_gets_what_its_program_would_give_it(monkeypatch):
    given = {}
    monkeypatch.setattr(client_program, "run_clientapp", lambda **arguments: given.update(arguments))
    task = ClientTask(address="127.0.0.1:9", token="a token", root_certificates=None, insecure=True, parent=3)
    client_program.run_client_program(task)
    assert given == {
        "runtime_api_address": "127.0.0.1:9", "token": "a token", "insecure": True, "certificates": None,
        "parent_pid": 3,
    }  # fmt: skip
