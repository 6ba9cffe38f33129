"""Host names in requests."""

import pytest

from flyball.app.core.hosts import name_in


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost", "localhost"),
        ("LOCALHOST:7400", "localhost"),
        ("127.0.0.1:", "127.0.0.1"),
        ("[::1]:80", "::1"),
        *((text, None) for text in ("", "[::1", "a b", "localhost,evil.example", "localhost:80,evil.example")),
        *((text, None) for text in ("evil@localhost", "localhost/evil", "localhost\\evil", "[::1]evil")),
        *((text, None) for text in ("localhost:x", "localhost?x", "localhost#x")),
    ],
)
def test_host_header_names_its_host_or_nothing(header: str, name: str | None) -> None:
    assert name_in(header) == name
