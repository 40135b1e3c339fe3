"""Certificates for tests: an authority and a server certificate for 127.0.0.1, made on the spot."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PASSWORD = "open sesame"


@dataclass(frozen=True)
class Certificates:
    authority: Path
    certificate: Path
    key: Path
    encrypted_key: Path
    other_key: Path


def make_certificates(folder: Path) -> Certificates:
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("test authority", authority_key, "test authority", authority_key, is_authority=True)
    certificate = _certificate("127.0.0.1", key, "test authority", authority_key, is_authority=False)
    plain = serialization.NoEncryption()
    files = {
        "authority.pem": authority.public_bytes(serialization.Encoding.PEM),
        "certificate.pem": certificate.public_bytes(serialization.Encoding.PEM),
        "key.pem": _pem(key, plain),
        "encrypted.pem": _pem(key, serialization.BestAvailableEncryption(PASSWORD.encode())),
        "other.pem": _pem(ec.generate_private_key(ec.SECP256R1()), plain),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return Certificates(*(folder / name for name in files))


def _pem(key: ec.EllipticCurvePrivateKey, encryption: serialization.KeySerializationEncryption) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if not is_authority:
        address = x509.IPAddress(ipaddress.ip_address(name))
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
