"""Host names in requests."""

import pytest

from app.core.hosts import name_in


@pytest.mark.parametrize(
    ("header", "name"),
    [("localhost", "localhost"), ("LOCALHOST:7400", "localhost"), ("127.0.0.1:", "127.0.0.1"), ("[::1]:80", "::1")],
)
def test_host_header_names_its_host(header: str, name: str) -> None:
    assert name_in(header) == name


@pytest.mark.parametrize(
    "header",
    [
        *("", "[::1", "localhost,evil.example", "localhost:80,evil.example", "evil@localhost", "localhost/evil", "a b"),
        *("localhost:x", "localhost?x", "localhost\\evil", "localhost#x", "[::1]evil"),
    ],
)
def test_host_header_of_anything_else_names_nothing(header: str) -> None:
    assert name_in(header) is None
