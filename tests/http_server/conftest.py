"""Models that the whole folder shares, servers before them, one Chromium, and a certificate."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from builders.later import Later
from builders.page import CHROMIUM, Browser, Page, assert_nothing_from_elsewhere, browser, opened
from builders.served import Served, running_model, served

openai = Later("openai")
STAND_IN = {"load_format": "stand-in", "max_model_len": 2048, "num_gpu_blocks_override": 1024, "max_num_seqs": 16}


@pytest.fixture(scope="session")
def pocket() -> Iterator[tuple]:
    options = {"max_model_len": 2048, "max_num_seqs": 16, "num_threads": 1}
    with running_model("pocket", **options) as found:
        yield found


@pytest.fixture(scope="session")
def server(pocket) -> Iterator[Served]:
    with served(*pocket) as found:
        yield found


@pytest.fixture(scope="session")
def http(server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.address, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def client(server) -> "Iterator[openai.OpenAI]":
    with openai.OpenAI(base_url=server.address + "/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def quick() -> Iterator[tuple]:
    """A model that computes nothing, as fast as it can."""
    with running_model("pocket", **STAND_IN) as found:
        yield found


@pytest.fixture(scope="session")
def paced() -> Iterator[tuple]:
    """A model that computes nothing and takes its time: a long answer is still on its way whatever else the machine
    does meanwhile, and ends early only if somebody ends it."""
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.1")
            model = stack.enter_context(running_model("pocket", **STAND_IN))
        yield model


@pytest.fixture
def keys(tmp_path) -> dict[str, str]:
    (tmp_path / "keys").write_text("first\n# a note\n\nsecond\n")
    return {"api_key_file": str(tmp_path / "keys")}


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One for all tests; what they open knows nothing of one another."""
    if CHROMIUM is None:
        pytest.skip("THE PAGE IS NOT TESTED: there is no Chromium here (`apt install chromium`)")
    with browser() as found:
        yield found


@pytest.fixture
def page(chromium, server) -> Iterator[Page]:
    found = opened(chromium, server.address)
    yield found
    assert_nothing_from_elsewhere(found, server.address)
    found.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory) -> dict[str, str]:
    """Of this machine's own names; it is told as the options that name its files."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    made = {"tls_certificate": str(folder / "certificate.pem"), "tls_key": str(folder / "key.pem")}
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-out", made["tls_certificate"], "-keyout", made["tls_key"]],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return made
