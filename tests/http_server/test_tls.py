"""HTTP over TLS: the certificate that was given is shown, old versions and plain text are refused."""

import asyncio
import socket
import ssl

import httpx
import pytest
from builders.cases import for_each
from builders.raw_http import request, spoken
from builders.served import served

from penstock.frontend.http.connections.server import HttpServer
from penstock.frontend.http.options import HttpOptions
from penstock.protocol.errors import ConfigError


@pytest.fixture(scope="module")
def secure(paced, certificate):
    with served(*paced, **certificate, header_timeout=2.0) as found:
        yield found


def test_a_client_that_knows_the_certificate_is_answered_and_one_that_does_not_know_it_is_not(secure, certificate):
    assert secure.address.startswith("https://")
    trusting = ssl.create_default_context(cafile=certificate["tls_certificate"])
    with httpx.Client(base_url=secure.address, verify=trusting, timeout=60) as client:
        body = {"prompt": "What is", "max_tokens": 3, "stream": True}
        assert client.get("/health").status_code == 200
        assert client.post("/v1/completions", json=body).text.endswith("data: [DONE]\n\n")
    with pytest.raises(httpx.ConnectError, match="certificate"):
        httpx.get(secure.address + "/health", timeout=60)


def test_plain_text_is_not_answered(secure):
    assert b"200" not in spoken(secure.port, request(b"{}"))


def test_old_versions_are_refused(secure):
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", secure.port), timeout=60) as plain, pytest.raises(OSError):
        old.wrap_socket(plain)


def test_one_without_the_other_is_refused(certificate):
    with pytest.raises(ConfigError, match="belong together"):
        HttpOptions(tls_certificate=certificate["tls_certificate"])


@for_each("key", ["/nowhere/key.pem", __file__])
def test_files_that_cannot_be_used_are_told_at_the_start(certificate, key):
    options = HttpOptions(http="127.0.0.1:0", tls_certificate=certificate["tls_certificate"], tls_key=key)
    with pytest.raises(ConfigError, match="can't be used"):
        asyncio.run(HttpServer(object(), options).start())  # nobody gets as far as to ask it for models
