"""Emulated devices begin together, and wait for nobody who died."""

import time
from concurrent.futures import ThreadPoolExecutor

from fedtempo.flower.app.emulated import meet


def test_emulated_devices_begin_when_the_last_has_come(tmp_path):
    with ThreadPoolExecutor() as several:
        early = [several.submit(meet, tmp_path / "cohort", client, 3, 30.0) for client in range(2)]
        time.sleep(0.3)
        assert not any(one.done() for one in early)
        last = meet(tmp_path / "cohort", 2, 3, 30.0)
        assert [one.result() for one in early] == [last, last]
    assert last == max(path.stat().st_mtime for path in (tmp_path / "cohort").iterdir())
    assert last == (tmp_path / "cohort" / "2").stat().st_mtime


def test_emulated_devices_do_not_wait_for_one_that_died_beyond_their_patience(tmp_path):
    asked = time.time()
    assert asked + 0.2 <= meet(tmp_path, 0, 2, 0.2) <= time.time()
