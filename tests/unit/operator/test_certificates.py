"""Certificates: always one that is trusted, never one that is about to end, and nothing renewed before its time."""

from __future__ import annotations

import socket
import ssl
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from adjoin.certificates import Bundle, install, names_of, renew, serving_context

NOW = datetime.now(UTC).replace(microsecond=0)
HOSTS = ("adjoin-webhook.adjoin-system.svc", "127.0.0.1")
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def first() -> Bundle:
    return renew(None, NOW, HOSTS)


def shake_hands(server: ssl.SSLContext, authorities: bytes, name: str = HOSTS[0]) -> x509.Certificate:
    """Connects as the API server does; returns what the server showed. Raises `ssl.SSLError` when it is not trusted."""
    client = ssl.create_default_context(cadata=authorities.decode())
    ours, theirs = socket.socketpair()

    def answer() -> None:
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except (ssl.SSLError, OSError):
            theirs.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=name) as connection:
            shown = connection.getpeercert(binary_form=True)
            assert shown is not None
            return x509.load_der_x509_certificate(shown)
    finally:
        ours.close()
        thread.join()


@pytest.mark.parametrize("name", HOSTS)
def test_a_first_bundle_is_trusted_under_its_names(first: Bundle, name: str) -> None:
    assert shake_hands(serving_context(first), first.authorities, name) == first.serving


def test_a_bundle_is_not_trusted_under_other_names(first: Bundle) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(serving_context(first), first.authorities, "elsewhere.svc")


def test_a_bundle_is_not_trusted_by_another_authority(first: Bundle) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(serving_context(first), renew(None, NOW, HOSTS).authorities)


def test_the_serving_key_cannot_sign(first: Bundle) -> None:
    constraints = first.serving.extensions.get_extension_for_class(x509.BasicConstraints)
    assert not constraints.value.ca


def test_g6_renewal_is_due_after_two_thirds(first: Bundle) -> None:
    begin, end = first.serving.not_valid_before_utc, first.serving.not_valid_after_utc
    assert first.due == begin + (end - begin) * 2 / 3
    assert renew(first, first.due - timedelta(seconds=1), HOSTS) is first
    renewed = renew(first, first.due, HOSTS)
    assert renewed.serving.not_valid_after_utc > end
    assert renewed.authorities == first.authorities


def test_g6_a_running_server_shows_the_new_certificate_at_once(first: Bundle) -> None:
    context = serving_context(first)
    renewed = renew(first, first.due, HOSTS)
    early = replace(renewed, certificate=renew(first, NOW, (*HOSTS, "new.svc")).certificate)
    early = renew(first, NOW, (*HOSTS, "new.svc"))
    install(context, early)
    assert shake_hands(context, first.authorities, "new.svc") == early.serving


def test_g6_at_no_time_is_what_is_served_untrusted_or_over() -> None:
    """Two authorities' lives, looked at every few days as a replica would; trust is always that of the last look."""
    life = timedelta(days=90)
    bundle = renew(None, NOW, HOSTS, serving_life=DAY * 20, authority_life=life)
    moment, authorities = NOW, set()
    while moment < NOW + life * 3:
        moment += DAY * 2
        trusted = bundle.chain
        after = renew(bundle, moment, HOSTS, serving_life=DAY * 20, authority_life=life)
        # The new certificate may be served before the API server was told of a new authority.
        assert any(_issued(after.serving, one) and one.not_valid_after_utc > moment for one in trusted)
        assert after.serving.not_valid_after_utc > moment
        bundle = after
        authorities.add(bundle.chain[0].subject)
        assert len(bundle.chain) <= 3
    assert len(authorities) >= 3


def _issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:
        return False
    return True


def test_new_names_are_added_and_old_ones_stay(first: Bundle) -> None:
    more = renew(first, NOW, ("other.svc",))
    assert names_of(more.serving) == {*HOSTS, "other.svc"}
    assert renew(more, NOW, HOSTS) is more


def test_a_secret_holds_everything(first: Bundle) -> None:
    assert Bundle.from_data(first.to_data()) == first


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"tls.crt": None}, id="a part is missing"),
        pytest.param({"tls.crt": "!"}, id="a part is no base64"),
        pytest.param({"tls.crt": "eA=="}, id="a part is no certificate"),
        pytest.param({"ca.crt": ""}, id="no authority"),
        pytest.param({"tls.key": "other"}, id="the key is another's"),
        pytest.param({"ca.key": "other"}, id="the authority's key is another's"),
        pytest.param({"ca.crt": "other", "ca.key": "other"}, id="the authority did not sign it"),
    ],
)
def test_a_secret_that_does_not_fit_together_is_none(first: Bundle, change: dict[str, str | None]) -> None:
    other = renew(None, NOW, HOSTS).to_data()
    data = dict(first.to_data())
    for key, value in change.items():
        if value is None:
            del data[key]
        else:
            data[key] = other[key] if value == "other" else value
    assert Bundle.from_data(data) is None


def test_an_empty_secret_is_none() -> None:
    assert Bundle.from_data({}) is None
