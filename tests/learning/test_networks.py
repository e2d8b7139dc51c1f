"""The networks that configurations name: their shapes, and a few rounds of each on data that they can learn."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fedtempo import simulate  # noqa: E402
from fedtempo.checks import InputError  # noqa: E402
from fedtempo.data.federation import FederatedData  # noqa: E402
from fedtempo.data.shakespeare import NUM_TOKENS  # noqa: E402
from fedtempo.learning.networks import MAKERS, CharacterLSTM, GroupNormCNN, network_of  # noqa: E402
from fedtempo.simulator.problem import NETWORKS  # noqa: E402


def federation(inputs, labels, shape, *, tokens=False):
    inputs = inputs.reshape(len(labels), -1)
    return FederatedData(
        inputs=inputs, labels=labels, offsets=np.array([0, 20, 50, len(labels)]), test_inputs=inputs,
        test_labels=labels, num_classes=3, input_shape=shape, name="made up", tokens=tokens,
    )  # fmt: skip


@pytest.fixture
def photographs():
    """Return images whose colour is their class."""
    rng, labels = np.random.default_rng(0), np.tile(np.arange(3), 30)
    images = rng.normal(size=(90, 3, 8, 8)).astype(np.float32)
    images[np.arange(90), labels] += 2
    return federation(images, labels, (3, 8, 8))


@pytest.fixture
def lines():
    """Return lines of tokens whose last one is their class."""
    rng, labels = np.random.default_rng(0), np.tile(np.arange(3), 30)
    tokens = rng.integers(0, 3, (90, 6))
    tokens[:, -1] = labels
    return federation(tokens, labels, (6,), tokens=True)


def test_the_names_of_networks_are_known_without_torch():
    assert set(NETWORKS) == set(MAKERS)


def test_networks_have_the_sizes_that_are_stated():
    def size(module):
        return sum(weight.numel() for weight in module.parameters())

    assert size(GroupNormCNN()) == 156_186
    assert size(CharacterLSTM(NUM_TOKENS)) == 22_959
    for network, stated in (
        (GroupNormCNN, "156,186 parameters"),
        (CharacterLSTM, f"22,959 parameters for the {NUM_TOKENS}"),
    ):
        assert stated in network.__doc__
    assert not list(GroupNormCNN().buffers()), "GroupNorm keeps no statistics"
    assert GroupNormCNN()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert CharacterLSTM(55)(torch.zeros(2, 80, dtype=torch.int64)).shape == (2, 55)


@pytest.mark.parametrize(("model", "data", "step_size"), [("cnn", "photographs", 0.1), ("lstm", "lines", 1.0)])
def test_a_network_learns(request, model, data, step_size):
    run = simulate(
        request.getfixturevalue(data), model=model, compute_time=[1.0, 1.0, 1.0], upload_time=[1.0, 1.0, 1.0],
        policy="weighted", cohort_size=2, local_steps=10, batch_size=8, step_size=step_size, schedule="constant",
        max_rounds=8, seed=0,
    )  # fmt: skip
    losses = [record.loss for record in run.records]
    assert losses[-1] < 0.5 * losses[0]
    assert run.records[-1].accuracy > 0.9


def test_data_of_another_kind_are_refused(photographs, lines):
    with pytest.raises(InputError, match=r"the inputs of model lstm must be lines of tokens, got float32 of shape"):
        network_of("lstm", photographs)()
    with pytest.raises(InputError, match=r"the inputs of model cnn must be images of at least 8 × 8 pixels"):
        network_of("cnn", lines)()
