"""Libraries that come with an extra of this package: what to say, and what to run, where one is not installed."""

import json
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import unquote, urlsplit


def install_command(extra: str) -> str:
    """Return the command that installs an extra from where this copy of the package came from.

    That is a local folder, a repository or an archive, as pip noted it (PEP 610), else the package index.
    """
    origin = _origin()
    url = str(origin.get("url", ""))
    if url.startswith("file:"):
        path = Path(unquote(urlsplit(url).path))
        place = "." if path == Path.cwd() else str(path)
        editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
        return f"pip install {editable}{quote(f'{place}[{extra}]')}"
    if url:
        vcs = origin.get("vcs_info", {}).get("vcs")
        address = f"{vcs}+{url}" if vcs else url
        return f"pip install {quote(f'ckaudit[{extra}] @ {address}')}"
    return f"pip install {quote(f'ckaudit[{extra}]')}"


def _origin() -> dict[str, Any]:
    """Return what pip noted of where the package came from; nothing for one from the index."""
    try:
        noted = Distribution.from_name("ckaudit").read_text("direct_url.json")
    except PackageNotFoundError:
        return {}
    try:
        origin = json.loads(noted or "{}")
    except ValueError:
        return {}
    return origin if isinstance(origin, dict) else {}
