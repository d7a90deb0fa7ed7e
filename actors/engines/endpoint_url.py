"""What a running server's URL may look like. Cheap to import: every spec is checked with it."""

from __future__ import annotations

from urllib.parse import urlsplit


def url_problem(url: str) -> str | None:
    """Why this is not the root of an HTTP server, in one line; None when it is one."""
    example = "write the server's root, such as http://127.0.0.1:30000"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(character.isspace() for character in url):
        return f"'{url}' is not an http or https URL; {example}"
    if parts.username or parts.password:
        return "a URL must not hold a user or password; name the API key's environment variable instead"
    if parts.query or parts.fragment or parts.path.rstrip("/").endswith("/v1"):
        return f"'{url}' is not a server's root; {example}"
    return None


def root_url(host: str, port: int) -> str:
    """The root of a server that was told to listen there; an IPv6 address gets its brackets."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
