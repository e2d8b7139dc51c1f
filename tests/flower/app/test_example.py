"""The example app, a standard Flower app with PyTorch: two lines make it a fedtempo app."""

import importlib
import sys
import tomllib

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from fedtempo.flower import TempoStrategy, tempo_client
from fedtempo.flower.testbed.federation import APP
from support.flower_grid import InProcessGrid
from support.marks import slow_after
from support.paths import ROOT

torch = pytest.importorskip("torch", reason="the example trains with PyTorch; pip install '.[torch]'")

EXAMPLE = ROOT / "examples" / "flower"
NODES = 8
TWO_LINES = {
    "server_app.py": ("TempoStrategy(", "FedAvg(fraction_train=0.5)"),
    "client_app.py": ("ClientApp(", "ClientApp()"),
}


@pytest.fixture
def quickstart(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    for name in [name for name in sys.modules if name.split(".")[0] == "quickstart"]:
        del sys.modules[name]
    return importlib.import_module


def grid_of(app):
    return InProcessGrid(app, [{"partition-id": n} for n in range(NODES)], {"local-steps": 5, "learning-rate": 0.1})


def start(strategy, app, make_model, rounds=8):
    return strategy.start(
        grid=grid_of(app), initial_arrays=ArrayRecord(make_model().state_dict()), num_rounds=rounds,
        train_config=ConfigRecord({"lr": 0.1}),
    )  # fmt: skip


def loss_of(arrays, task):
    model = task.make_model()
    model.load_state_dict(arrays.to_torch_state_dict())
    return np.mean([task.test(model, task.load_data(number))[0] for number in range(NODES)])


@pytest.mark.parametrize("policy", slow_after(1, ["tempo", "weighted", "oort", "ocs"]))
def test_the_app_learns_under_any_policy(quickstart, policy):
    app, task = quickstart("quickstart.client_app").app, quickstart("quickstart.task")
    records = []
    strategy = TempoStrategy(
        policy, cohort_size=3, step_size=0.1, local_steps=5, evaluate="clients", min_available_nodes=NODES,
        progress=lambda loop, record: records.append(record),
    )  # fmt: skip
    result = start(strategy, app, task.make_model)
    assert len(records) == 8
    for record in records:
        assert not record.failed, record.note
        assert all(0 < x < 100 for x in record.compute_time)
        largest, mean = np.array(record.largest_gradient_norm), np.array(record.mean_gradient_norm)
        assert (largest >= mean).all()
        assert (mean > 0).all()
        # A path is at least as long as its ends are apart; norms are of gradients at batches, steps of 0.1.
        assert (np.array(record.update_norm) <= 0.1 * 5 * mean * 1.001).all()
    before, after = loss_of(ArrayRecord(task.make_model().state_dict()), task), loss_of(result.arrays, task)
    assert after < 0.9 * before


def test_data_shares_are_what_nodes_report(quickstart):
    app, task = quickstart("quickstart.client_app").app, quickstart("quickstart.task")
    seen = []
    strategy = TempoStrategy(
        "full",
        cohort_size=1,
        step_size=0.1,
        local_steps=2,
        min_available_nodes=NODES,
        progress=lambda loop, record: seen.append(loop.fleet.data_share),
    )
    start(strategy, app, task.make_model, rounds=1)
    sizes = np.array([len(task.load_data(number)[1]) for number in range(NODES)])
    np.testing.assert_allclose(seen[0], sizes / sizes.sum())


def test_without_the_two_lines_it_is_an_app_of_flower_alone(quickstart, capsys):
    """Put back what Flower's own strategy needs, one line in each file, and it runs."""
    task, apps = quickstart("quickstart.task"), {}
    for name, (ours, theirs) in TWO_LINES.items():
        source = (EXAMPLE / "quickstart" / name).read_text()
        (line,) = [line for line in source.splitlines() if ours in line]
        names = {"__name__": "plain", "FedAvg": FedAvg}
        exec(compile(source.replace(line, line.split(" = ")[0] + " = " + theirs), name, "exec"), names)
        apps[name] = names["app"]
    grid = grid_of(apps["client_app.py"])
    settings = {"num-server-rounds": 3, "learning-rate": 0.1}
    apps["server_app.py"](grid, Context(1, 0, {}, RecordDict(), settings))
    assert f"trained {len(task.make_model().state_dict())} arrays" in capsys.readouterr().out
    trained = [message for message in grid.sent if message.metadata.message_type == "train"]
    assert len(trained) == 3 * NODES // 2
    result = start(FedAvg(fraction_train=0.5, fraction_evaluate=0.0), apps["client_app.py"], task.make_model)
    before, after = loss_of(ArrayRecord(task.make_model().state_dict()), task), loss_of(result.arrays, task)
    assert after < before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # flwr 1.41 uses an old name of pathspec's
@pytest.mark.parametrize("app", [EXAMPLE, APP], ids=["example", "ready app"])
def test_apps_ask_for_nothing_that_flower_would_look_for_elsewhere(app):
    settings = tomllib.loads((app / "pyproject.toml").read_text())
    assert settings["project"]["dependencies"] == []
    assert build_fab_from_disk(app)


def test_where_clients_lack_the_mod_the_error_says_so(quickstart):
    app, task = quickstart("quickstart.client_app").app, quickstart("quickstart.task")
    plain = ClientApp()
    plain.train()(lambda message, context: (_ for _ in ()).throw(KeyError("arrays")))
    with pytest.raises(ValueError, match=r"mods=\[tempo_client\(\)\]"):
        start(TempoStrategy("uniform", cohort_size=2), plain, task.make_model)
    assert app is not plain
    assert callable(tempo_client())
