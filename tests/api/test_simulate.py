"""The functions that people call: samplers of their own, and one sentence for bad arguments."""

import ast
import os
import subprocess
import sys

import pytest

from fedtempo import InputError
from fedtempo.api.simulate import simulate
from fedtempo.engine.settings import TrainingSettings
from fedtempo.policies.policy import PolicySetting
from fedtempo.policies.registry import make
from support.marks import slow_after
from support.simulations import run


def test_a_sampler_of_ones_own_is_one_function_or_class(data, times):
    def fastest_more(fleet):
        q = 1 / fleet.compute_time
        return q / q.sum()

    by_function = run(data, times, fastest_more)

    class Mine:
        def __init__(self, setting: PolicySetting):
            self.inner = make(fastest_more, setting)
            self.seen = 0

        def plan(self, context):
            return self.inner.plan(context)

        def observe(self, report):
            self.seen += 1

    by_class = run(data, times, Mine)
    assert by_function.records == by_class.records
    with pytest.raises(InputError, match="plan and observe"):
        run(data, times, dict)
    with pytest.raises(InputError, match="did you mean 'weighted'"):
        run(data, times, "weigthed")
    with pytest.raises(InputError, match="policy must be"):
        run(data, times, 7)


def test_models_are_checked_and_torch_is_named_where_it_is_missing(data, times, monkeypatch):
    with pytest.raises(InputError, match="model must be softmax"):
        run(data, times, model="resnet")
    for module in ("fedtempo.learning.networks", "fedtempo.learning.torch_module"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"pip install 'fedtempo\[torch\]'"):
        run(data, times, model=lambda: None)


def test_a_finished_run_without_its_model_says_what_to_do(data, times, tmp_path):
    run(data, times, rounds=1, out=tmp_path / "a")
    model = tmp_path / "a" / "model.npz"
    whole = model.read_bytes()
    for content, said in ((b"junk", "other content"), (whole[:200], "other content"), (None, "no such file")):
        model.unlink() if content is None else model.write_bytes(content)
        with pytest.raises(InputError) as caught:
            run(data, times, rounds=1, out=tmp_path / "a")
        assert f"{model} must be the model of the finished run, got {said}" in str(caught.value)
        assert str(caught.value).endswith(f"; delete {tmp_path / 'a'} to run it again")


def test_every_setting_of_training_is_in_the_help_of_simulate():
    for name in ("lstm", "cnn", *TrainingSettings.__dataclass_fields__):
        assert name in simulate.__doc__


def test_bad_arguments_of_simulate_get_one_sentence(data, times):
    for more, said in (
        ({"seed": -1}, "seed must be"),
        ({"seed": 1.5}, "seed must be"),
        ({"cohort_sise": 3}, "did you mean 'cohort_size'"),
        ({"options": {"speed": 1}}, "options"),
        ({"policy": "uniform", "options": {"replacement": "no"}}, "true or false"),
        ({"policy": "proposed", "options": {"losses": 5}}, "list of positive losses"),
        ({"policy": "proposed", "options": {"losses": ["a"]}}, "must hold numbers"),
        ({"policy": "statistical", "options": {"losses": [1.0], "floor": 0.5}}, "'floor'"),
        ({"policy": lambda fleet: fleet.data_share, "options": {"a": 1}}, "options"),
        ({"server_momentum": 1.0}, "below 1"),
        ({"target_accuracy": 70}, "target_accuracy must lie between 0 and 1 without a metric of your own, got 70"),
        ({"callbacks": print}, "callbacks must be a list of functions, got <built-in function print>"),
        ({"callbacks": [print, 3]}, "callbacks must be a list of functions"),
        ({"callbacks": None}, "callbacks must be a list of functions, got None"),
    ):
        with pytest.raises(InputError, match=said):
            run(data, times, **more)
    with pytest.raises(InputError, match="FederatedData"):
        simulate((1, 2), **times, max_rounds=1, cohort_size=2)
    with pytest.raises(InputError, match="compute_time and upload_time"):
        simulate(data, max_rounds=1, cohort_size=2)
    assert repr(run(data, times, rounds=1)).startswith("RunResult(end=max_rounds, rounds=1")


def test_callbacks_get_the_record_of_each_round(data, times, tmp_path):
    first, second = [], []
    for more in ({}, {"out": tmp_path / "out"}):
        found = run(data, times, rounds=4, callbacks=[first.append, second.append], **more)
        assert first == second == found.records
        first.clear()
        second.clear()


def test_what_a_callback_raises_ends_the_run(data, times):
    def stop(record):
        raise RuntimeError(f"after round {record.round}")

    with pytest.raises(RuntimeError, match="after round 0"):
        run(data, times, rounds=4, callbacks=[stop])


ONE_THREAD = """
import numpy as np, threadpoolctl
from fedtempo import simulate
from fedtempo.data.federation import FederatedData
rng = np.random.default_rng(0)
inputs, labels = rng.random((40, 784), dtype=np.float32), np.arange(40) % 10
data = FederatedData(inputs, labels, np.array([0, 20, 40]), inputs, labels, 10, (1, 28, 28), "noise")
def look(fleet):
    return fleet.data_share
class Looking:
    def plan(self, context):
        from fedtempo.policies.policy import RoundPlan
        print([(pool["filepath"], pool["num_threads"]) for pool in threadpoolctl.threadpool_info()])
        return RoundPlan(members=[0], weights=[1.0])
    def observe(self, report):
        pass
MODEL
simulate(data, compute_time=1.0, upload_time=1.0, policy=Looking(), model=model, max_rounds=2, cohort_size=1)
"""


@pytest.mark.parametrize(
    "model",
    slow_after(1, ["model = 'softmax'", "model = 'lenet5'", "from fedtempo.learning.networks import LeNet5 as model"]),
)
def test_one_thread_does_all_products(model):
    """In a new process, since libraries that are loaded too late would keep all their threads."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    script = ONE_THREAD.replace("MODEL", model)
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    lines = shown.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "openblas" in line
        assert all(threads == 1 for _, threads in ast.literal_eval(line))
