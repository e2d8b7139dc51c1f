"""Arrays of a model: which are trained, and which are averaged."""

import numpy as np
from flwr.app import Array, ArrayRecord

from fedtempo.flower.strategy.layout import Layout


def test_statistics_of_batch_normalisation_are_averaged():
    first = {"weight": np.ones(2, np.float32), "bn.running_var": np.ones(2, np.float32), "bn.num": np.array(3)}
    layout = Layout(ArrayRecord({name: Array(value) for name, value in first.items()}))
    assert layout.size == 2
    trained = [ArrayRecord({n: Array(np.asarray(v * f, v.dtype)) for n, v in first.items()}) for f in (0.1, 0.3)]
    layout.blend(np.array([3.0, 1.0]), [layout.buffers_of(one) for one in trained])
    packed = layout.pack(np.zeros(2, np.float32))
    np.testing.assert_allclose(packed["bn.running_var"].numpy(), [0.15, 0.15], rtol=1e-6)
    layout.blend(np.array([0.5]), [layout.buffers_of(trained[0])])
    np.testing.assert_allclose(layout.buffers["bn.running_var"], [0.125, 0.125], rtol=1e-6)
    assert packed["bn.num"].numpy() == 3
    layout.start_again()
    np.testing.assert_array_equal(layout.buffers["bn.running_var"], [1.0, 1.0])
