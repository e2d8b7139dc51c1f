"""The shared uplink on real sockets: rates, shares and who is served when.

A busy machine delays everything, so measured times have tight bounds from below and wide ones from above, and where
delays of this test itself would matter, times are counted from when the link saw the first byte.
"""

import time

import pytest
from fedtempo.flower.testbed.processes import free_port

from fedtempo.checks import InputError
from fedtempo.flower.link.shaped import ShapedLink
from fedtempo.theory.bandwidth import allocate_bandwidth
from support.uplink import (
    MBIT,
    SLACK,
    all_upload,
    connect,
    eventually,
    has_bulk,
    in_background,
    request,
    seconds,
    upload,
    whole,
)


@pytest.mark.parametrize(("rate", "share", "size"), [(1 * MBIT, 0.8, 100_000), (20 * MBIT, 0.5, 1_000_000)])
def test_an_upload_takes_its_size_over_share_times_rate(sink, rate, share, size):
    with ShapedLink(sink.address, [rate]) as link:
        link.allot([0], "paper", [share])
        (took,) = upload(link.ports[0], size)
        done = link.measured([0])[0]
        assert sink.ended(1) == [(size, "end")]
    expected = size * 8 / (share * rate)
    assert done.size == size + 8
    assert 0.98 * expected < seconds(done) < SLACK * expected
    assert seconds(done) <= took  # the client is done after the link


def test_shares_of_the_paper_end_together_and_equal_ones_do_not(sink):
    size, rates, delays, total = 150_000, [2 * MBIT, 8 * MBIT], [0.3, 0.0], 1.2
    alone = [size * 8 / rate for rate in rates]  # 0.6 s and 0.15 s with one unit of bandwidth
    round_time, shares = allocate_bandwidth(delays, alone, total)
    with ShapedLink(sink.address, rates, total_bandwidth=total) as link:
        link.allot([0, 1], "paper", shares)
        paper = all_upload(link, [size, size], delays)
        link.allot([0, 1], "equal")
        equal = all_upload(link, [size, size], delays)
    ends = [[delays[client] + seconds(uploads[client]) for client in (0, 1)] for uploads in (paper, equal)]
    assert abs(ends[0][0] - ends[0][1]) < 0.2 * round_time
    assert ends[1][0] - ends[1][1] > 0.5 * round_time
    for client, share in enumerate(shares):
        assert seconds(paper[client]) > 0.98 * alone[client] / share
        assert seconds(equal[client]) > 0.98 * alone[client] / (total / 2)


def test_shared_serves_in_order_of_arrival_and_is_never_idle(sink):
    size, rates, delays = 200_000, [4 * MBIT, 8 * MBIT, 4 * MBIT], [0.2, 0.0, 0.1]
    alone = [size * 8 / rate for rate in rates]  # 0.4, 0.2, 0.4 s
    with ShapedLink(sink.address, rates) as link:
        link.allot([0, 1, 2], "shared")
        shared = all_upload(link, [size] * 3, delays)
        link.allot([0, 1, 2], "paper", allocate_bandwidth(delays, alone).bandwidth)
        paper = all_upload(link, [size] * 3, delays)
    in_order = sorted(shared, key=lambda client: shared[client].start)
    assert sorted(shared, key=lambda client: shared[client].end) == in_order
    assert shared[in_order[2]].start < shared[in_order[1]].end  # it began when it came, and waited in line
    assert 0.98 * sum(alone) < whole(shared) < SLACK * sum(alone)
    assert whole(shared) < 1.5 * whole(paper)


def test_shared_gives_a_pause_of_the_first_to_the_next(sink):
    with ShapedLink(sink.address, [4 * MBIT] * 2) as link, connect(link.ports[0]) as first:
        link.allot([0, 1], "shared")
        request(first, 50_000)
        with in_background(upload, link.ports[1], 300_000):  # 0.6 s
            eventually(lambda: has_bulk(link, 1))
            time.sleep(0.1)
            request(first, 100_000)  # 0.2 s, before the rest of the second
        done = link.measured([0, 1])
    assert done[0].end < done[1].end
    assert done[0].size == 150_016  # both requests are one upload
    assert done[1].end - done[0].start > 0.98 * 450_000 * 8 / (4 * MBIT)


def test_total_throughput_never_exceeds_what_was_allotted(sink):
    rate, size = 4 * MBIT, 100_000
    for mode in ("equal", "shared"):
        with ShapedLink(sink.address, [rate] * 4) as link:
            link.allot(range(4), mode)
            done = all_upload(link, [size] * 4)
        assert sum(upload.size for upload in done.values()) * 8 / whole(done) < 1.02 * rate


def test_connections_of_one_client_share_its_rate_and_count_as_one_upload(sink):
    with ShapedLink(sink.address, [4 * MBIT]) as link:
        link.allot([0], "paper", [1.0])
        with in_background(upload, link.ports[0], 60_000, 60_000), in_background(upload, link.ports[0], 80_000):
            upload(link.ports[0], 500, 50_000)
        done = link.measured([0])[0]
    size = 60_000 + 60_000 + 80_000 + 50_000 + 4 * 8
    assert done.size == size
    assert 0.98 * size * 8 / (4 * MBIT) < seconds(done) < SLACK * size * 8 / (4 * MBIT)


def test_bulk_without_a_share_trickles_until_there_is_one(sink):
    with ShapedLink(sink.address, [8 * MBIT]) as link, in_background(upload, link.ports[0], 200_000):
        time.sleep(0.6)  # with a share 0.2 s would do
        assert not sink.received
        assert link.measured([0]) == {}
        assert has_bulk(link, 0)
        link.allot([0], "paper", [1.0])
        began = time.monotonic()
        sink.ended(1)
        assert time.monotonic() - began > 0.5 * 0.2  # no more than half had trickled
        assert link.measured([0]) == {}  # begun before the allotment


def test_the_trickle_ends_too(sink):
    with ShapedLink(sink.address, [8 * MBIT]) as link:
        (took,) = upload(link.ports[0], 20_000)
    assert took > 0.9 * 20_000 * 8 / (0.02 * 8 * MBIT)


def test_the_rest_of_a_late_upload_does_not_count_for_the_next(sink):
    with ShapedLink(sink.address, [2 * MBIT]) as link:
        link.allot([0], "paper", [1.0])
        with in_background(upload, link.ports[0], 200_000, 30_000):  # 0.8 s, 0.12 s
            time.sleep(0.3)
            early = link.measured([0])[0]
            link.allot([0], "paper", [1.0])
        time.sleep(1.1)  # it computes
        began = time.monotonic()
        upload(link.ports[0], 30_000)
        done = link.measured([0])[0]
    assert early.size < 200_000
    assert done.size == 30_008
    assert done.start >= began


def test_a_share_stays_until_it_is_measured_and_others_keep_theirs(sink):
    with ShapedLink(sink.address, [4 * MBIT] * 2) as link:
        link.allot([0], "paper", [0.5])
        link.allot([1], "paper", [0.5])
        for client in (0, 1):
            upload(link.ports[client], 50_000)
        assert link.measured([1]).keys() == {1}
        upload(link.ports[0], 50_000)
        done = link.measured([0, 1])
    assert done.keys() == {0}
    assert done[0].size == 100_016


def test_bad_links_are_refused():
    with pytest.raises(InputError, match="rates must have one entry for each client, got none"):
        ShapedLink(("127.0.0.1", 1), [])
    with pytest.raises(InputError, match="rates must be positive"):
        ShapedLink(("127.0.0.1", 1), [0.0])
    with pytest.raises(InputError, match="host must be an address of this machine"):
        ShapedLink(("127.0.0.1", 1), [1.0], host="192.0.2.1").start()


def test_a_link_that_is_started_again_has_the_same_ports():
    first = free_port("127.0.0.1")
    for _ in range(2):
        with ShapedLink(("127.0.0.1", 1), [1 * MBIT, 1 * MBIT], first_port=first) as link:
            assert link.ports == [first, first + 1]
            with pytest.raises(InputError, match=f"ports from {first} on free"):
                ShapedLink(("127.0.0.1", 1), [1 * MBIT], first_port=first).start()
