"""A server behind the link."""

import pytest

from support.uplink import Sink


@pytest.fixture
def sink():
    server = Sink()
    yield server
    server.close()
