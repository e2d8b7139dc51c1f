"""Certificates and keys for a Flower federation of one's own: who the server is, and who may take part.

All of it is made here, without a public certificate authority: a CA of the federation's own, the server certificate
that it signs, and a key pair for each SuperNode. Private keys are readable by their owner alone and never printed.
"""

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedtempo.checks import InputError, check_count, check_positive

MOST_DAYS = 36_500
CLOCK_SKEW = timedelta(minutes=5)  # certificates hold from a little earlier, since clocks of devices differ


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeKey:
    """Where the key pair of one SuperNode lies."""

    private: Path
    public: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """Where the certificates and keys of a federation lie. Devices need `ca_certificate` and their own key, no more."""

    ca_certificate: Path
    server_certificate: Path
    server_key: Path
    node_keys: tuple[NodeKey, ...]


def make_credentials(
    folder: Path | str,
    num_nodes: int,
    *,
    hosts: Sequence[str] = ("127.0.0.1", "localhost"),
    valid_days: float = 30,
) -> Credentials:
    """Make a CA, a certificate for the server under each of its names or addresses, and a key pair for each node.

    The CA's own key is forgotten once it has signed: nobody can sign with it later, and a new certificate takes a new
    call into a new folder. A folder that holds credentials already is refused.
    """
    check_count("num_nodes", num_nodes)
    if check_positive("valid_days", valid_days) > MOST_DAYS:
        raise InputError(name="valid_days", rule=f"be at most {MOST_DAYS:,}", got=f"{valid_days:g}")
    if not hosts:
        raise InputError(
            name="hosts", rule="name the server at least once", got="none", remedy="give its address or its host name"
        )
    names = [_general_name(host) for host in hosts]
    folder = Path(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InputError(
            name="the folder for credentials", rule="be empty", got=f"{folder}", remedy="give another, or delete it"
        )
    folder.chmod(0o700)

    ca_key, server_key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    ca = _ca_certificate(ca_key, timedelta(days=valid_days))
    certificate = _server_certificate(server_key, names, ca, ca_key)
    made = Credentials(
        ca_certificate=folder / "ca.crt",
        server_certificate=folder / "server.crt",
        server_key=folder / "server.key",
        node_keys=tuple(make_node_key(folder / f"node-{number}") for number in range(num_nodes)),
    )
    write_secret(made.ca_certificate, ca.public_bytes(serialization.Encoding.PEM))
    write_secret(made.server_certificate, certificate.public_bytes(serialization.Encoding.PEM))
    write_secret(made.server_key, _private_bytes(server_key, serialization.PrivateFormat.PKCS8))
    return made


def make_node_key(path: Path | str) -> NodeKey:
    """Make the key pair of one SuperNode: the private key at the path, the public key beside it with `.pub`."""
    path = Path(path)
    key = ec.generate_private_key(ec.SECP384R1())
    made = NodeKey(private=path, public=path.with_name(path.name + ".pub"))
    write_secret(made.private, _private_bytes(key, serialization.PrivateFormat.OpenSSH))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_secret(made.public, public + b"\n")
    return made


def _ca_certificate(key: ec.EllipticCurvePrivateKey, validity: timedelta) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedtempo federation CA")])
    now = datetime.now(UTC)
    usage = {"key_cert_sign": True, "crl_sign": True}
    return (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + validity)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )


def _server_certificate(
    key: ec.EllipticCurvePrivateKey,
    names: list[x509.GeneralName],
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedtempo SuperLink")])
    return (
        x509.CertificateBuilder(ca.subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(ca.not_valid_before_utc)
        .not_valid_after(ca.not_valid_after_utc)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA384())
    )


def _key_usage(**allowed: bool) -> x509.KeyUsage:
    uses = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{use: allowed.get(use, False) for use in uses})


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not host or not host.isascii() or any(letter.isspace() or letter in ":/" for letter in host):
        raise InputError(name="hosts", rule="be IP addresses or host names without a port", got=repr(host))
    return x509.DNSName(host)


def _private_bytes(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def write_secret(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read, from its first moment on."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(content)
