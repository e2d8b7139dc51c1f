"""Updates of few bits: what a client puts in the place of its model, and what the server makes of any bytes."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from fedtempo.flower.strategy.failures import Failure, FailureKind
from fedtempo.flower.strategy.judge import Judge
from fedtempo.flower.strategy.layout import Layout
from fedtempo.flower.strategy.messages import CLIENT, NOISE_METRICS, ROUND_INDEX
from fedtempo.flower.strategy.packing import UPLOAD, Packing, noise_in, packing_config, unpack_upload
from fedtempo.learning.quantisation import BLOCK, Quantiser, _rotate_back, _words, upload_bytes
from fedtempo.theory.bits import BITS

QUANTISER = Quantiser(5)
SIZE = 700


def model(rng=None):
    """Return the arrays of a model with batch normalisation and a counter; those of a generator are trained a step."""
    numbers = np.linspace(-1, 1, SIZE, dtype=np.float32)
    if rng is not None:
        numbers = numbers + rng.normal(0, 0.1, SIZE).astype(np.float32)
    return ArrayRecord({
        "0.weight": Array(numbers[:600].reshape(20, 30)),
        "0.running_mean": Array(np.full(20, 0.5, np.float32)),
        "0.running_var": Array(np.full(20, 2.0, np.float32)),
        "0.num_batches_tracked": Array(np.array(7)),
        "0.bias": Array(numbers[600:]),
    })  # fmt: skip


def packing(bits):
    return Packing(bits=bits, key=tuple(QUANTISER.key.tolist()), client=3, round_index=4)


def expected(bits, trained):
    """Return the update as the simulator rounds it, and its noise."""
    layout = Layout.of(model())
    update = layout.update(layout.initial_model, trained)[None]
    noise = QUANTISER.round(update, np.array([bits]), np.array([3]), 4)
    return update[0], noise[0]


@pytest.mark.parametrize("bits", BITS)
def test_the_server_reads_what_the_simulator_would_have_rounded_to(bits):
    trained = model(np.random.default_rng(1))
    packed = packing(bits).pack(model(), trained)
    assert set(packed.arrays) == {UPLOAD, "0.running_mean", "0.running_var", "0.num_batches_tracked"}
    assert packed.arrays[UPLOAD].numpy().nbytes == upload_bytes(bits, SIZE)
    update, buffers = unpack_upload(Layout.of(model()), packed.arrays, packing(bits))
    rounded, noise = expected(bits, trained)
    np.testing.assert_array_equal(update, rounded)
    np.testing.assert_array_equal(buffers, [0.5] * 20 + [2.0] * 20)
    assert list(packed.noise) == list(NOISE_METRICS)
    np.testing.assert_array_equal(noise_in(packed.noise), noise)
    assert packed.norm == pytest.approx(np.linalg.norm(rounded), rel=1e-6)


def test_what_is_asked_for_in_a_message_is_read_on_the_client():
    config = {CLIENT: 3, ROUND_INDEX: 4, **packing_config(8, QUANTISER.key.tolist())}
    assert Packing.read(config) == packing(8)
    assert packing_config(None, QUANTISER.key.tolist()) == {}


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_models_of_other_types_are_packed_too(dtype):
    received = ArrayRecord({"w": Array(np.zeros(300, dtype))})
    trained = ArrayRecord({"w": Array(np.linspace(-1, 1, 300).astype(dtype))})
    packed = packing(16).pack(received, trained)
    update, _ = unpack_upload(Layout.of(received), packed.arrays, packing(16))
    np.testing.assert_allclose(update, np.linspace(-1, 1, 300), atol=3e-3)


def header(bits=8, numbers=SIZE):
    return b"fr" + bytes([bits, 0]) + numbers.to_bytes(4, "little")


def honest(bits=8):
    return packing(bits).pack(model(), model(np.random.default_rng(1))).arrays


def spoiled(how):
    """Return what a hostile client sends where 8 bits a number were asked for."""
    arrays = honest()
    data = arrays[UPLOAD].numpy().tobytes()
    others = {name: array for name, array in arrays.items() if name != UPLOAD}

    def scale_of(value):
        return data[:8] + np.float32(value).tobytes() + data[12:]

    sent = {
        "too short": data[:-1],
        "too long": data + b"\0",
        "nothing": b"",
        "other header": b"xx" + data[2:],
        "other bits in the header": header(4) + data[8:],
        "more numbers in the header": header(numbers=SIZE + 1) + data[8:],
        "a scale that is no number": scale_of(np.nan),
        "an infinite scale": scale_of(np.inf),
        "a negative scale": scale_of(-1.0),
        "garbage": np.random.default_rng(2).bytes(len(data)),
        "fewer bits": honest(4)[UPLOAD].numpy().tobytes(),
    }
    if how in sent:
        return ArrayRecord({UPLOAD: Array(np.frombuffer(sent[how], np.uint8)), **others})
    whole = {
        "bytes as numbers": {UPLOAD: Array(arrays[UPLOAD].numpy().astype(np.float32)), **others},
        "bytes in a square": {UPLOAD: Array(arrays[UPLOAD].numpy()[:700].reshape(7, 100)), **others},
        "no counter": {name: array for name, array in arrays.items() if name != "0.num_batches_tracked"},
        "the model beside it": {UPLOAD: arrays[UPLOAD], **dict(model().items())},
        "a negative variance": {**dict(arrays.items()), "0.running_var": Array(np.full(20, -1.0, np.float32))},
        "the model as it is": dict(model(np.random.default_rng(1)).items()),
        "a model that is no number": dict(model().items()) | {"0.bias": Array(np.full(100, np.nan, np.float32))},
        "a model of another shape": dict(model().items()) | {"0.bias": Array(np.zeros(99, np.float32))},
        "no arrays": {},
    }
    return ArrayRecord(whole[how])


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("too short", "an upload must have 788 bytes with 8 bits a number, got 787"),
        ("too long", "got 789"),
        ("nothing", "got 0"),
        ("fewer bits", "an upload must have 788 bytes"),
        ("other header", "an upload must begin with the header of 700 numbers of 8 bits"),
        ("other bits in the header", "an upload must begin with the header"),
        ("more numbers in the header", "an upload must begin with the header"),
        ("garbage", "an upload must begin with the header"),
        ("a scale that is no number", "the scales of an upload must be from 0 to 1e+18"),
        ("an infinite scale", "the scales of an upload must be from 0 to 1e+18"),
        ("a negative scale", "the scales of an upload must be from 0 to 1e+18"),
        ("bytes as numbers", "an upload must be one row of bytes"),
        ("bytes in a square", "an upload must be one row of bytes"),
        ("no counter", "a model must have the arrays"),
        ("the model beside it", "a model must have the arrays ['fedtempo-upload', '0.running_mean'"),
        ("a negative variance", "'0.running_var' must be variances"),
        (
            "the model as it is",
            "an upload must be packed with 8 bits a number, got whole arrays; the ClientApp needs the",
        ),
        ("a model that is no number", "an update must be finite"),
        ("a model of another shape", "array '0.bias' must be real numbers of shape (100,)"),
        ("no arrays", "a model must have the arrays"),
    ],
)
def test_what_nobody_has_packed_so_is_refused_in_a_sentence(how, said):
    layout = Layout.of(model())
    found = Judge(layout).read(layout.initial_model, spoiled(how), packing(8))
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.REFUSED
    assert said in found.detail


def test_packed_updates_that_nobody_asked_for_are_refused():
    layout = Layout.of(model())
    found = Judge(layout).read(layout.initial_model, honest())
    assert isinstance(found, Failure)
    assert "a model must have the arrays" in found.detail


@pytest.mark.parametrize("how", ["a model of another shape", "a model that is no number", "no arrays"])
def test_what_cannot_be_packed_travels_as_it_is_and_the_server_says_why(how):
    assert packing(8).pack(model(), spoiled(how)) is None


@pytest.mark.parametrize("said", [np.nan, np.inf, -0.1, 9.5, 1e30])
def test_noise_that_cannot_be_counts_as_not_reported(said):
    found = noise_in(dict.fromkeys(NOISE_METRICS, 0.25) | {NOISE_METRICS[1]: said})
    np.testing.assert_array_equal(found, [0.25, np.nan, *[0.25] * 4])
    assert np.isnan(noise_in({})).all()


def test_no_update_has_more_noise_than_may_be_reported():
    """The most has a block that is rotated into a single number."""
    single, worst = np.zeros(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    single[7] = 1.0
    _rotate_back(single, _words(QUANTISER.key, 3, np.uint64(4)), worst)
    noise = QUANTISER.noise(worst, 3, 4)
    assert noise[0] == pytest.approx(BLOCK / 27, rel=1e-5)
    assert not np.isnan(noise_in(dict(zip(NOISE_METRICS, noise.tolist(), strict=True)))).any()
