"""The URL of a journal on PostgreSQL: what it may hold, and when it is protected."""

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, urlsplit

from flyball.app.core.hosts import is_loopback

SCHEMES = ("postgresql", "postgres")
"""Schemes that libpq accepts (https://www.postgresql.org/docs/current/libpq-connect.html)."""

VERIFYING = ("verify-ca", "verify-full")
"""Values of ``sslmode`` that check who the server is."""

SECRETS = ("password", "sslpassword")


def is_postgres(name: str) -> bool:
    """Return whether a name is the URL of a database, rather than a file's path."""
    return name.partition("://")[0] in SCHEMES and "://" in name


def check_url(url: str) -> str:
    """Return the URL of a journal if it can be used.

    Raises ``ValueError`` for another scheme, a URL without a database or with a password, and one that leads beyond
    this machine without checking who the server is. No message repeats the URL, because it might hold a password.
    """
    if not is_postgres(url):
        raise ValueError("a journal's URL is postgresql://HOST/DATABASE")
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    user, _, servers = parts.netloc.rpartition("@")
    if ":" in user or not options.keys().isdisjoint(SECRETS):
        raise ValueError(
            "a journal's URL has no password: put it into ~/.pgpass (PGPASSFILE), a service file, or PGPASSWORD"
        )
    if not parts.path.strip("/") and "dbname" not in options and "service" not in options:
        raise ValueError("a journal's URL names its database: postgresql://HOST/DATABASE")
    hosts = [host_of(server) for server in servers.split(",")] + options.get("host", "").split(",")
    if unprotected := unprotected_host(hosts, options):
        raise ValueError(unprotected_text(unprotected))
    return url


def unprotected_host(hosts: Sequence[str], options: Mapping[str, str]) -> str:
    """Return a host on another machine whose identity would not be checked; empty without such a host.

    ``options`` are libpq's parameters. A socket, whose folder's owner protects it, begins with / or @.
    """
    if options.get("sslmode") in VERIFYING:
        return ""
    addresses = [*hosts, *options.get("hostaddr", "").split(",")]
    return next((host for host in addresses if host and host[0] not in "/@" and not is_loopback(host)), "")


def unprotected_text(host: str) -> str:
    """Return what is wrong with an unprotected connection to a host, and the remedy."""
    return (
        f"{host} is another machine, and nothing would show that the server there is the right one; add "
        "?sslmode=verify-full&sslrootcert=FILE to the journal's URL"
    )


def host_of(server: str) -> str:
    """Return the host of ``host:port``, ``[address]:port`` or ``host``."""
    return server[1:].partition("]")[0] if server.startswith("[") else server.partition(":")[0].replace("%2F", "/")
