"""`container/object` as clients write it in headers, and as servers write it back."""

from urllib.parse import quote, unquote


def container_and_object(text: str, *, reserved: bool = False) -> tuple[str, str] | None:
    """The two names in `[/]container/object`, percent-decoded; None if it is not of that form.

    Names with NUL, which only servers use, count only where the text is the servers' own (`reserved`).
    """
    container, slash, name = unquote(text, errors="surrogateescape").removeprefix("/").partition("/")
    if not (container and slash and name) or ("\0" in text + container + name and not reserved):
        return None
    return container, name


def quote_path(*names: str) -> str:
    """Names as a path, percent-encoded, without a leading slash."""
    return "/".join(quote(name, errors="surrogateescape") for name in names)
