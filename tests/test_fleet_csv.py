"""Files of fleets: what planners' tables turn into, what is refused, and that files come back to the last bit."""

import numpy as np
import pytest

from fedtempo import Fleet, FleetNotice, InputError, read_fleet, write_fleet
from support.fleets import random_fleet
from support.marks import slow_after


def written(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "fleet.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return path


@pytest.mark.parametrize("named", slow_after(1, [False, True]))
def test_a_file_comes_back_to_the_last_bit(tmp_path, named):
    rng = np.random.default_rng(60)
    plain = random_fleet(rng, 100_000, decades=8)
    fleet = Fleet(
        plain.data_share, plain.gradient_bound, plain.compute_time, plain.upload_time, 3.0,
        names=[f"Gerät {i}, \"{i % 7}\"" for i in range(100_000)] if named else None,
        download_time=rng.random(100_000), bandwidth_cap=rng.random(100_000) + 0.1,
    )  # fmt: skip
    path = tmp_path / "fleet.csv"
    write_fleet(path, fleet, {"sampling_prob": plain.data_share})
    again = read_fleet(path, total_bandwidth=3.0)
    for field in ("data_share", "gradient_bound", "compute_time", "upload_time", "download_time", "bandwidth_cap"):
        np.testing.assert_array_equal(getattr(again, field), getattr(fleet, field))
    assert [again.name(i) for i in (0, 99_999)] == [fleet.name(i) for i in (0, 99_999)]


def test_what_planners_hold_is_accepted(tmp_path):
    path = written(
        tmp_path,
        "\ufeffname, samples ,compute_time,uplink_mbps,site\nA,30,0,8\nB,10,1.5,80\n".replace(",8\n", ",8,x\n").replace(
            ",80\n", ",80,y\n"
        ),
    )
    with pytest.warns(FleetNotice) as notices:
        fleet = read_fleet(path, model_megabytes=5.0)
    said = [str(notice.message) for notice in notices]
    assert any("columns not used: site" in message for message in said)
    assert any("no column gradient_bound: 1 assumed" in message for message in said)
    np.testing.assert_allclose(fleet.data_share, [0.75, 0.25])
    np.testing.assert_allclose(fleet.upload_time, [5.0, 0.5])  # 40 Mbit at 8 and at 80 Mbit/s
    np.testing.assert_allclose(fleet.gradient_bound, 1.0)
    assert fleet.name(1) == "B"
    with pytest.warns(FleetNotice):
        wider = read_fleet(path, model_megabytes=5.0, total_bandwidth=4.0)
    np.testing.assert_allclose(wider.upload_time / wider.total_bandwidth, fleet.upload_time)


HEADER = "name,data_share,gradient_bound,compute_time,upload_time\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty file"),
        ("\n\n", "empty file or line"),
        (HEADER, "a line for each client"),
        ("name,compute_time,upload_time\na,1,1\n", "a column data_share or samples must be there"),
        ("data_share,upload_time\n1,1\n", "a column compute_time must be there"),
        ("data_share,compute_time\n1,1\n", "a column upload_time or uplink_mbps must be there"),
        ("data_share,compute_tme,upload_time\n1,1,1\n", "is 'compute_tme' meant to be 'compute_time'"),
        ("samples,compute_time,uplink_mbsp\n1,1,1\n", "; is 'uplink_mbsp' meant to be 'uplink_mbps'?"),
        ("sample,compute_time,upload_time\n1,1,1\n", "; is 'sample' meant to be 'samples'?"),
        ("data_share,compute_time,upload_time,gradient_bond\n1,1,1,1\n", "did you mean 'gradient_bound'"),
        ("data_share,samples,compute_time,upload_time\n1,1,1,1\n", "both data_share and samples"),
        ("data_share,data_share,compute_time,upload_time\n1,1,1,1\n", "'data_share' more than once"),
        (HEADER + "a,1,1,1,fast\n", "upload_time must be a number, got 'fast' in line 2"),
        (HEADER + "a,1,1,1,\n", "upload_time must be a number, got an empty cell in line 2"),
        (HEADER + "a,1,1,1,1\n\nb,1,1,1\n", "5 cells as the first, got 4 in line 4"),
        (HEADER + "a,1,1,1,1,1\n", "5 cells as the first, got 6 in line 2"),
        (HEADER + "a,nan,1,1,1\n", "data_share must be positive and finite, got nan for client 'a'"),
        (HEADER + "a,1,1,inf,1\n", "compute_time must be zero or positive, and finite, got inf"),
        (HEADER + "a,1,1,-1,1\n", "compute_time must be zero or positive"),
        (HEADER + "a,0,1,1,1\nb,0,1,1,1\n", "data_share must be positive"),
        (HEADER + "a,30,1,1,1\n", "sum to 1, got 30; divide sample counts"),
        (HEADER + "a,60,1,1,1\nb,39.9,1,1,1\n", "divide percentages by 100"),
        ("samples,compute_time,upload_time\n1.150,1,1\n", "samples must be whole numbers, got 1.15; write 1150"),
        (HEADER + "a,4.8%,1,1,1\n", "as in 1150 or 0.048"),
        (HEADER + "a,1,0,1,1\n", "gradient_bound must be positive"),
        (HEADER + "a,0.5,1,1,1\na,0.5,1,1,1\n", "names must be distinct, got 'a'"),
        ("samples,compute_time,upload_time\n0,1,1\n0,1,1\n", "samples must be positive"),
        ("samples,compute_time,uplink_mbps\n1,1,1\n", "got none; give model_megabytes in megabytes"),
        ("samples,compute_time,uplink_mbps\n1,1,1\n".encode("utf-16"), "UTF-8"),
        (HEADER + 'a,1,1,1,"1\n', "unexpected end of data"),
        (HEADER.encode() + b"a,1,1,1,1\x00\n", "upload_time must be a number, got '1.x00'"),
    ],
)
@pytest.mark.filterwarnings("ignore::fedtempo.FleetNotice")
def test_bad_files_are_refused_in_one_sentence(tmp_path, text, said):
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=said) as caught:
        read_fleet(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_bad_rate_or_size_is_refused(tmp_path):
    path = written(tmp_path, "samples,compute_time,uplink_mbps,gradient_bound\n1,1,0,1\n")
    with pytest.raises(InputError, match="uplink_mbps must be positive"):
        read_fleet(path, model_megabytes=1.0)
    path = written(tmp_path, "samples,compute_time,uplink_mbps,gradient_bound\n1,1,1,1\n")
    with pytest.raises(InputError, match="model_megabytes must be positive"):
        read_fleet(path, model_megabytes=-1.0)


def test_missing_files_and_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_fleet(tmp_path / "none.csv")
    with pytest.raises(InputError, match="must be readable"):
        read_fleet(tmp_path)


def test_numbers_are_written_in_full(tmp_path):
    write_fleet(tmp_path / "fleet.csv", Fleet([1.0], [0.1 + 0.2], [1e-300], [1e300]))
    assert (tmp_path / "fleet.csv").read_text().splitlines()[1] == "0,1.0,0.30000000000000004,1e-300,1e+300"


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_spreadsheets_may_separate_spell_and_pad_as_they_like(tmp_path, separator):
    lines = [
        "Name,Samples,Compute  time,UPLOAD_TIME,Gradient_Bound,",
        "a,1150,1,2,1,",
        " , , , , , ",
        "b,50,0,1,2,",
        "",
    ]
    path = written(tmp_path, "\r\n".join(lines).replace(",", separator))
    fleet = read_fleet(path)
    assert [fleet.name(0), fleet.name(1)] == ["a", "b"]
    np.testing.assert_allclose(fleet.data_share, [1150 / 1200, 50 / 1200])


def test_a_model_size_that_is_not_used_is_said(tmp_path):
    path = written(tmp_path, HEADER + "a,1,1,1,1\n")
    with pytest.warns(FleetNotice, match="the model size is not used"):
        read_fleet(path, model_megabytes=5.0)
    with pytest.raises(InputError, match="model_megabytes must be positive"):
        read_fleet(path, model_megabytes=float("nan"))


def test_whoever_shows_a_remedy_spells_the_size_as_its_reader_knows_it(tmp_path):
    path = written(tmp_path, "samples,compute_time,uplink_mbps\n1,1,1\n")
    with pytest.raises(InputError) as caught:
        read_fleet(path)
    assert caught.value.sentence({"model_megabytes": "--model-size"}.get).endswith(
        "got none; give --model-size in megabytes"
    )
