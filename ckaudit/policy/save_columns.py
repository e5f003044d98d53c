"""Writing of log columns into the policy's `[import.map]`; everything else in the file stays, including comments."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckaudit.contract.io.files import write_atomic
from ckaudit.errors import UsageError
from ckaudit.policy.read import POLICY_NAME, PYPROJECT_NAME, find

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(
    r"^[ \t]*\[[ \t]*(?:tool[ \t]*\.[ \t]*ckaudit[ \t]*\.[ \t]*)?import[ \t]*\.[ \t]*map[ \t]*\][ \t]*(?:#.*)?\r?$", re.MULTILINE
)
_NEXT_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)


def lines_of(columns: Mapping[str, str], header: str = "[import.map]") -> list[str]:
    """Return the TOML lines that name columns.

    >>> lines_of({"loss": "train/nll", "slice_val_loss/web": "nll web"})
    ['[import.map]', 'loss = "train/nll"', '"slice_val_loss/web" = "nll web"']
    """
    return [header, *(_line(name, column) for name, column in columns.items())]


def save_columns(columns: Mapping[str, str], folder: Path) -> Path:
    """Write columns into the policy that applies to a folder, or into a new one there, and return its path.

    Raises:
        UsageError: If the file cannot be read or written, or writes `import.map` in another form than as a table of its own.
    """
    path = find(folder) or folder / POLICY_NAME
    try:
        text = path.read_bytes().decode("utf-8-sig") if path.exists() else ""
        written = _changed(text, columns, is_shared=path.name == PYPROJECT_NAME)
        write_atomic(path, written.encode())
    except (OSError, ValueError, AttributeError, TypeError) as error:
        reason = getattr(error, "strerror", None) or error
        hint = f"write it yourself: {', '.join(lines_of(columns))}"
        raise UsageError(f"cannot save --map in {path.name}: {reason}", hint=hint) from None
    return path


def _changed(text: str, columns: Mapping[str, str], *, is_shared: bool) -> str:
    """Return the text of a policy with the columns added; raise `ValueError` if it would not parse to exactly that."""
    import tomllib

    written = _with_lines(text, columns, "[tool.ckaudit.import.map]" if is_shared else "[import.map]")
    try:
        parsed = tomllib.loads(written)
    except ValueError:
        parsed = {}
    if parsed != _with_columns(tomllib.loads(text), columns, is_shared=is_shared):
        raise ValueError("import.map stands there in another form")
    return written


def _line(name: str, column: str) -> str:
    key = name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)
    return f"{key} = {json.dumps(column, ensure_ascii=False)}"


def _with_columns(document: Mapping[str, Any], columns: Mapping[str, str], *, is_shared: bool) -> dict[str, Any]:
    """Return the intended contents of the file."""
    if is_shared:
        tool = document.get("tool", {})
        return {**document, "tool": {**tool, "ckaudit": _with_map(tool.get("ckaudit", {}), columns)}}
    return _with_map(document, columns)


def _with_map(document: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    own = document.get("import", {})
    return {**document, "import": {**own, "map": {**own.get("map", {}), **columns}}}


def _with_lines(text: str, columns: Mapping[str, str], header: str) -> str:
    """Return the text with a line for each column in its table, replacing lines with the same name."""
    match = _HEADER.search(text)
    if match is None:
        before = text if not text or text.endswith("\n") else f"{text}\n"
        return before + ("\n" if before else "") + "\n".join(lines_of(columns, header)) + "\n"
    after = _NEXT_TABLE.search(text, match.end())
    end = after.start() if after else len(text)
    same = tuple(_line(name, "").partition(" = ")[0] for name in columns)
    kept = [line for line in text[match.end() : end].split("\n") if line.partition("=")[0].strip() not in same]
    new = [_line(name, column) for name, column in columns.items()]
    return text[: match.end()] + "\n" + "\n".join(new) + "\n".join(kept) + text[end:]
