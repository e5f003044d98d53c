"""Libraries that come with an extra of this package: the message and the install command if one is missing."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import unquote, urlsplit


@contextmanager
def needed(what: str, extra: str) -> Iterator[None]:
    """Guard the import of libraries that come with an extra.

    Args:
        what: What needs them, as the subject of a sentence.
        extra: The extra that brings them.

    Raises:
        ModuleNotFoundError: If one of them is not installed; the message has the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"{what} needs {error.name}, which is not installed: {install_command(extra)}"
        raise ModuleNotFoundError(message, name=error.name) from None


def install_command(extra: str) -> str:
    """Return the command that installs an extra from the source of this copy of the package.

    The source is a local folder or file that still exists, a repository or an archive, as recorded by pip (PEP 610), else the
    package index.
    """
    origin = _origin()
    url = str(origin.get("url", ""))
    path = Path(unquote(urlsplit(url).path))
    if url.startswith("file:") and not path.exists():
        url = ""
    if url.startswith("file:"):
        place = "." if path == Path.cwd() else str(path)
        editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
        return f"pip install {editable}{quote(f'{place}[{extra}]')}"
    if url:
        vcs = origin.get("vcs_info", {}).get("vcs")
        address = f"{vcs}+{url}" if vcs else url
        return f"pip install {quote(f'ckaudit[{extra}] @ {address}')}"
    return f"pip install {quote(f'ckaudit[{extra}]')}"


def _origin() -> dict[str, Any]:
    """Return what pip recorded about the package's source; empty for a package from the index."""
    try:
        noted = Distribution.from_name("ckaudit").read_text("direct_url.json")
    except PackageNotFoundError:
        return {}
    try:
        origin = json.loads(noted or "{}")
    except ValueError:
        return {}
    return origin if isinstance(origin, dict) else {}
