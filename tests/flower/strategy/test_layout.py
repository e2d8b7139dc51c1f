"""Arrays of a model: which are trained, which are averaged, and how both become flat vectors."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from fedtempo import InputError
from fedtempo.flower.app.model_arrays import pack
from fedtempo.flower.strategy.layout import Layout, is_trained

FIRST = {
    "weight": np.array([[1.0, 2.0]], np.float32),
    "bn.running_var": np.array([3.0, 4.0], np.float32),
    "bn.num": np.array(5),
    "bias": np.array([6.0]),
    "bn.running_mean": np.array([7.0, 8.0], np.float16),
}


def record(arrays):
    return ArrayRecord({name: Array(values) for name, values in arrays.items()})


def test_only_arrays_that_are_trained_count_as_trained():
    assert is_trained("layer.weight", "float32")
    assert not any(is_trained(*one) for one in (("bn.running_mean", "float32"), ("bn.num_batches", "int64")))


def test_a_model_is_parameters_and_buffers():
    layout = Layout.of(record(FIRST))
    assert (layout.num_parameters, layout.num_buffers) == (3, 4)
    for model, buffers in ((layout.initial_model, layout.initial_buffers), layout.read(record(FIRST))):
        assert (model.tolist(), model.dtype) == ([1.0, 2.0, 6.0], np.float32)
        assert (buffers.tolist(), buffers.dtype) == ([3.0, 4.0, 7.0, 8.0], np.float64)


def test_what_is_packed_has_the_names_shapes_and_types_of_the_start():
    layout = Layout.of(record(FIRST))
    packed = layout.pack(layout.initial_model + 1, layout.initial_buffers * 2)
    assert list(packed) == list(FIRST)
    for name, first in FIRST.items():
        found = packed[name].numpy()
        assert (found.dtype, found.shape) == (first.dtype, first.shape)
        expected = first + 1 if is_trained(name, first.dtype) else first if name == "bn.num" else 2 * first
        np.testing.assert_array_equal(found, expected)


def test_a_model_without_buffers_has_none():
    layout = Layout.of(record({"weight": FIRST["weight"]}))
    assert layout.initial_buffers.size == layout.num_buffers == 0
    assert layout.negative_variance(layout.initial_buffers) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bias": np.array([1])}, r"array 'bias' must be real numbers of shape \(1,\), got int64"),
        ({"bn.running_var": np.ones(3, np.float32)}, "array 'bn.running_var' must be real numbers"),
        ({"more": np.ones(1)}, "a model must have the arrays"),
    ],
)
def test_another_layout_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        Layout.of(record(FIRST)).read(record(FIRST | change))
    with pytest.raises(InputError, match="at least one array of real numbers"):
        Layout.of(record({"bn.num": FIRST["bn.num"]}))


def test_negative_variances_are_named():
    layout = Layout.of(record(FIRST))
    assert layout.negative_variance(np.array([1.0, 0.0, -1.0, -1.0])) is None, "means may be negative"
    assert layout.negative_variance(np.array([1.0, -1e-9, 1.0, 1.0])) == "bn.running_var"


def test_buffers_are_those_of_the_simulator_in_the_ready_app_and_by_their_names_in_others():
    torch = pytest.importorskip("torch")
    from fedtempo.learning.flat_module import FlatModule

    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    flat, layout = FlatModule(module), Layout.of(ArrayRecord(module.state_dict()))
    assert layout.averaged == tuple(flat.averaged) == ("1.running_mean", "1.running_var")
    assert layout.num_parameters == flat.num_parameters
    module.register_buffer("centre", torch.zeros(4))
    module.register_buffer("own_running_mean", torch.zeros(5))
    module.register_buffer("left_out", torch.zeros(6), persistent=False)
    flat, layout = FlatModule(module), Layout.of(ArrayRecord(module.state_dict()))
    ready = Layout.of(pack(flat.parameters(), buffers=flat.buffers()))
    assert set(flat.averaged) == {"1.running_mean", "1.running_var", "centre", "own_running_mean"}
    assert (ready.num_parameters, ready.num_buffers) == (flat.num_parameters, flat.num_buffers)
    assert set(flat.averaged) - set(layout.averaged) == {"centre"}, "as docs/models.md says"
    assert layout.num_parameters == flat.num_parameters + 4
