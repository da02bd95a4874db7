"""Requests that have broken other engines: each is refused or answered, and a good one after it is served as before."""

from pathlib import Path

import pytest
from builders.hostile import ADVISORIES, CLOSED, COMPLETIONS, EVERY, Hostile
from builders.raw_http import spoken

GOOD = {"model": "pocket", "prompt": "What is", "max_tokens": 2, "temperature": 0}


@pytest.mark.parametrize("hostile", EVERY, ids=lambda hostile: hostile.name)
def test_a_hostile_request_is_refused_and_the_next_one_is_served(server, http, hostile: Hostile):
    said = spoken(server.port, hostile.sent)
    status = int(said.split(b" ", 2)[1]) if said.startswith(b"HTTP/1.1 ") else CLOSED
    assert status in hostile.right, said[:500]
    assert_no_secret(said.decode("latin-1"))
    assert http.post(COMPLETIONS, json=GOOD).status_code == 200


def assert_no_secret(text: str) -> None:
    for secret in ("/root", "/home", "/tmp", "/work", "site-packages", ".py", "0x7", "Traceback", "root:x:"):
        assert secret not in text


def test_at_least_sixty_of_them_are_drawn_from_advisories():
    assert sum(bool(hostile.advisories) for hostile in EVERY) >= 60


def test_every_kind_with_advisories_has_requests():
    assert {hostile.kind for hostile in EVERY} == set(ADVISORIES)


def test_the_page_about_safety_lists_every_kind_with_its_number_and_its_advisories():
    page = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    for kind, advisories in ADVISORIES.items():
        number = sum(hostile.kind == kind for hostile in EVERY)
        [row] = [line for line in page.splitlines() if line.startswith(f"| {kind} | {number} |")]
        assert all(advisory in row for advisory in advisories)
    drawn = sum(bool(hostile.advisories) for hostile in EVERY)
    assert f"holds {len(EVERY)} requests, {drawn} of them" in page
