"""Samples of what roles say: windows of 80 characters and the next one, the end of each text held out."""

import numpy as np
import pytest

from fedtempo.checks import InputError
from fedtempo.data import shakespeare
from fedtempo.data.plays import Role
from fedtempo.data.shakespeare import CHARACTERS, LENGTH, NUM_TOKENS, draw_sequences, shakespeare_data, tokens_of


def roles(lengths=(600, 900, 3000, 499)):
    rng = np.random.default_rng(1)
    every = list(CHARACTERS + "ZQ")
    return [Role("play", f"ROLE {i}", "".join(rng.choice(every, length))) for i, length in enumerate(lengths)]


def text_of(tokens):
    return "".join(("_" + CHARACTERS)[token] for token in tokens)


def test_tokens_are_numbered_and_rare_characters_share_one():
    np.testing.assert_array_equal(tokens_of("\n yZ€é"), [1, 2, NUM_TOKENS - 1, 0, 0, 0])
    assert len(set(CHARACTERS)) == len(CHARACTERS)


def test_a_sample_is_80_characters_and_the_next_one():
    drawn = draw_sequences(roles(), True, num_clients=3, num_samples=900, seed=4)
    assert drawn.inputs.shape == (900, LENGTH)
    assert {array.dtype for array in (drawn.inputs, drawn.labels, drawn.owner)} == {np.dtype(np.int64)}
    assert drawn.roles == ("ROLE 0 of play", "ROLE 1 of play", "ROLE 2 of play"), "ROLE 3 says too little"
    assert np.all(np.diff(drawn.owner) >= 0)
    for samples, labels, kept in (
        (drawn.inputs, drawn.labels, lambda text: text[: round(0.85 * len(text))]),
        (drawn.test_inputs, drawn.test_labels, lambda text: text[-round(0.15 * len(text)) - LENGTH :]),
    ):
        texts = [kept(text_of(tokens_of(role.text))) for role in roles()[:3]]
        windows = [text_of([*line, label]) for line, label in zip(samples, labels, strict=True)]
        assert all(any(window in text for text in texts) for window in windows)
        assert len(set(windows)) == len(windows), "no place is drawn twice"
    own = [text_of(tokens_of(role.text)) for role in roles()]
    assert all(text_of(line) in own[owner] for line, owner in zip(drawn.inputs, drawn.owner, strict=True))


def test_who_says_more_has_more_samples():
    drawn = draw_sequences(roles(), True, num_clients=3, num_samples=370, seed=0)
    places = np.array([round(0.85 * length) - LENGTH for length in (600, 900, 3000)])
    np.testing.assert_allclose(np.bincount(drawn.owner), 370 * places / places.sum(), atol=2)
    assert len(drawn.test_labels) == round(0.15 * 370)


def test_the_seed_decides_which_roles_and_places():
    first, again, other = (
        draw_sequences(roles((600,) * 9), True, num_clients=4, num_samples=50, seed=seed) for seed in (0, 0, 1)
    )  # fmt: skip
    np.testing.assert_array_equal(first.inputs, again.inputs)
    assert first.roles == again.roles != other.roles


def test_more_samples_than_there_are_places_are_all_of_them(monkeypatch):
    monkeypatch.setattr(shakespeare, "read_roles", lambda: (roles((3000, 4000)), False))
    data = shakespeare_data(num_clients=2, num_samples=10**6, seed=0)
    assert len(data.labels) == 2550 - LENGTH + 3400 - LENGTH
    assert data.name == f"partial Shakespeare, {len(data.labels):,} samples"
    assert not data.complete


def test_roles_are_clients_of_a_federation(monkeypatch):
    monkeypatch.setattr(shakespeare, "read_roles", lambda: (roles((3000, 4000, 5000)), True))
    data = shakespeare_data(num_clients=3, num_samples=3000, seed=0)
    assert (data.num_clients, data.input_shape, data.num_classes) == (3, (LENGTH,), NUM_TOKENS)
    assert (data.inputs.dtype, data.test_inputs.dtype, data.name) == (np.int64, np.int64, "Shakespeare")
    assert data.inputs.max() < NUM_TOKENS
    with pytest.raises(InputError, match="clients must be at most the 3 roles with 500 characters, got 4"):
        shakespeare_data(num_clients=4, num_samples=3000, seed=0)


def test_few_samples_need_not_have_each_character(monkeypatch):
    monkeypatch.setattr(shakespeare, "read_roles", lambda: (roles((600,) * 3), True))
    data = shakespeare_data(num_clients=3, num_samples=30, seed=0)
    assert data.num_classes == NUM_TOKENS > np.unique(data.labels).size
    assert data.describe().counts.shape == (3, NUM_TOKENS)
