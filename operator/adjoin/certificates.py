"""A self-made certificate authority and the serving certificate it signs.

In come the present bundle, the time and the names to serve under; out goes the bundle to use. Both certificates are
renewed after two thirds of their life. A new authority is trusted beside the old one for as long as that lives, and
signs only from the next serving certificate on, so there is no moment at which a served certificate is not trusted.
Nothing here stores, sends or logs anything; keys stay in the bundle.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE: Final = timedelta(days=3650)
SERVING_LIFE: Final = timedelta(days=90)
SKEW: Final = timedelta(minutes=5)
"""Certificates begin so long before they are made: an API server's clock may be behind ours."""

FIELDS: Final = ("ca.crt", "ca.key", "tls.crt", "tls.key")


@dataclass(frozen=True, slots=True)
class Bundle:
    """Everything as PEM. `authorities` holds the newest authority first, and older ones while they are valid."""

    authorities: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes

    def to_data(self) -> Mapping[str, str]:
        """As the `data` of a Secret."""
        values = (self.authorities, self.authority_key, self.certificate, self.key)
        return {name: base64.b64encode(value).decode() for name, value in zip(FIELDS, values, strict=True)}

    @staticmethod
    def from_data(data: Mapping[str, str]) -> Bundle | None:
        """From the `data` of a Secret; None when a part is missing, unreadable, or does not fit to the others."""
        try:
            bundle = Bundle(*(base64.b64decode(data[name], validate=True) for name in FIELDS))
            serving, key = bundle.serving, _key(bundle.key)
            authority, authority_key = bundle.chain[0], _key(bundle.authority_key)
        except (KeyError, IndexError, ValueError, TypeError, binascii.Error):
            return None
        fits = serving.public_key() == key.public_key() and authority.public_key() == authority_key.public_key()
        return bundle if fits and any(_signed_by(serving, one) for one in bundle.chain) else None

    @property
    def serving(self) -> x509.Certificate:
        """The serving certificate."""
        return x509.load_pem_x509_certificate(self.certificate)

    @property
    def chain(self) -> list[x509.Certificate]:
        """The authorities, newest first."""
        return x509.load_pem_x509_certificates(self.authorities)

    @property
    def due(self) -> datetime:
        """When something has to be renewed: the serving certificate or the authority, whichever is first."""
        return min(_due(self.serving), _due(self.chain[0]))


def names_of(certificate: x509.Certificate) -> frozenset[str]:
    """The DNS names and addresses that a certificate is good for."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = (str(address) for address in names.get_values_for_type(x509.IPAddress))
    return frozenset({*names.get_values_for_type(x509.DNSName), *addresses})


def renew(
    bundle: Bundle | None,
    now: datetime,
    hosts: Sequence[str],
    *,
    serving_life: timedelta = SERVING_LIFE,
    authority_life: timedelta = AUTHORITY_LIFE,
) -> Bundle:
    """What has to take the place of `bundle` at `now`: `bundle` itself while nothing is due, a first one without it.

    `hosts` are DNS names and IP addresses. Serving certificates live at most a third of what their authority lives.
    """
    if bundle is None:
        key, authority = _authority(now, authority_life)
        pem = authority.public_bytes(serialization.Encoding.PEM)
        return _serve(pem, key, now, hosts, min(serving_life, authority_life / 3))
    if now >= _due(bundle.chain[0]):
        key, authority = _authority(now, authority_life)
        kept = [one for one in bundle.chain if one.not_valid_after_utc > now]
        pem = b"".join(one.public_bytes(serialization.Encoding.PEM) for one in (authority, *kept))
        return Bundle(pem, _pem(key), bundle.certificate, bundle.key)
    if now >= _due(bundle.serving) or not names_of(bundle.serving) >= set(hosts):
        # Other replicas may serve under names of their own: they stay.
        names = sorted({*hosts, *names_of(bundle.serving)})
        life = min(serving_life, authority_life / 3)
        return _serve(bundle.authorities, _key(bundle.authority_key), now, names, life)
    return bundle


def install(context: ssl.SSLContext, bundle: Bundle) -> None:
    """Lets new connections of a running server show the bundle's certificate."""
    with _readable(bundle.certificate) as certificate, _readable(bundle.key) as key:
        context.load_cert_chain(certificate, key)


def serving_context(bundle: Bundle) -> ssl.SSLContext:
    """TLS settings of a server."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    install(context, bundle)
    return context


def _due(certificate: x509.Certificate) -> datetime:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return begin + (end - begin) * 2 / 3


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # cryptography raises ValueError, TypeError and InvalidSignature here
        return False
    return True


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("not a key of ours")
    return key


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _authority(now: datetime, life: timedelta) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    # The serial in the name keeps two authorities apart that are trusted at the same time.
    serial = x509.random_serial_number()
    name = _name(f"adjoin-ca-{serial:x}"[:64])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key, certificate


def _serve(
    authorities: bytes,
    authority_key: ec.EllipticCurvePrivateKey,
    now: datetime,
    hosts: Sequence[str],
    life: timedelta,
) -> Bundle:
    authority = x509.load_pem_x509_certificates(authorities)[0]
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name("adjoin-webhook"))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(min(now + life, authority.not_valid_after_utc))
        .add_extension(x509.SubjectAlternativeName([_general(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return Bundle(authorities, _pem(authority_key), certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@contextmanager
def _readable(content: bytes) -> Iterator[str]:
    """A path under which OpenSSL can read `content`: in memory if possible, since the root may be read-only."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("adjoin", os.MFD_CLOEXEC)
        try:
            os.write(number, content)
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.name
