"""Keys and certificates: private, of one authority, and never overwritten."""

import stat
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("flwr", reason="flwr is not installed; it comes with fedtempo[flower]")

from cryptography import x509

from fedtempo.checks import InputError
from fedtempo.flower.credentials import make_credentials


def test_credentials_are_private_and_the_server_certificate_is_the_authoritys(tmp_path):
    made = make_credentials(tmp_path / "keys", 2, hosts=("127.0.0.1", "fl.example.org"), valid_days=2)

    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    files = list((tmp_path / "keys").iterdir())
    assert len(files) == 3 + 2 * 2  # the authority's own key is not among them
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    authority = x509.load_pem_x509_certificate(made.ca_certificate.read_bytes())
    server = x509.load_pem_x509_certificate(made.server_certificate.read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["127.0.0.1", "fl.example.org"]
    assert abs(server.not_valid_after_utc - datetime.now(UTC) - timedelta(days=2)) < timedelta(minutes=1)
    assert made.node_keys[0].public.read_bytes() != made.node_keys[1].public.read_bytes()


@pytest.mark.parametrize("hosts", [(), ("",), ("127.0.0.1:8000",), ("https://fl.example.org",)])
def test_hosts_that_no_certificate_can_name_are_refused(tmp_path, hosts):
    with pytest.raises(InputError, match="hosts must"):
        make_credentials(tmp_path, 1, hosts=hosts)


def test_credentials_are_never_overwritten(tmp_path):
    make_credentials(tmp_path, 1)
    with pytest.raises(InputError, match="must be empty"):
        make_credentials(tmp_path, 1)
