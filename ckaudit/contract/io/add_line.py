"""Adds values measured outside a training to its run, as lines of a separate scalar log."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import time
from typing import Any

import msgspec

from ckaudit.contract.io.files import BrokenFile, read_bytes, write_atomic
from ckaudit.contract.io.folder import RunFiles, list_folder
from ckaudit.contract.io.jsonl import read_lines
from ckaudit.contract.schema.numbers import encode_float
from ckaudit.contract.schema.scalars import VERSION
from ckaudit.errors import CkauditError, UnreadableError, UsageError

BESIDE = re.compile(r"scalars-(?:data|hash|resume|probe-\w+)\.jsonl")  # logs for added lines, which the training does not write


def add_line(root: Path, name: str, values: Mapping[str, float | str], *, step: int | None = None) -> int:
    """Write `values` as the line of a step into a log of the run, and return the step.

    New values replace those of an existing line of the same step and session. The line belongs to the session in which the step
    was trained, so that it replaces no session and is not replaced by one.

    Args:
        root: The run folder.
        name: File name of the log, such as `scalars-data.jsonl`; it is created if missing.
        values: Values by catalogue name.
        step: The step; None: the last step of the run, 0 if it has none.

    Raises:
        UnreadableError: If there is no such folder, or the existing log is broken.
        UsageError: If the run ends before the step.
        CkauditError: If the log cannot be written.
    """
    at, session = step_and_session(root, step)
    _write(root / name, {(at, session): values})
    return at


def add_lines(root: Path, name: str, by_step: Mapping[int, Mapping[str, float | str]]) -> tuple[list[int], list[int]]:
    """Write the values of several steps into a log of the run at once, each like `add_line`.

    Returns:
        The written steps, and the steps after the end of the run, which are not written.

    Raises:
        UnreadableError: If there is no such folder, or the existing log is broken.
        CkauditError: If the log cannot be written.
    """
    _check_folder(root)
    starts, last = _sessions(list_folder(root))
    added = [step for step in sorted(by_step) if last is None or step <= last]
    if added:
        _write(root / name, {(step, _session_at(starts, step)): by_step[step] for step in added})
    return added, [step for step in sorted(by_step) if step not in added]


def _write(path: Path, lines: Mapping[tuple[int, int], Mapping[str, float | str]]) -> None:
    """Write values by step and session into a log, in addition to its existing ones."""
    rows = _rows(path)
    for (step, session), values in lines.items():
        new: dict[str, Any] = {"step": step, "session": session, "time": round(time(), 3)}
        new |= {key: encode_float(value) if isinstance(value, float) else value for key, value in values.items()}
        rows = list(_merged(rows, new))
    rows[0] = {"schema_version": VERSION, **rows[0]}
    try:
        write_atomic(path, b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    except OSError as error:
        raise CkauditError(f"cannot write {path}: {error.strerror or error}") from None


def step_and_session(root: Path, step: int | None) -> tuple[int, int]:
    """Return the step that values belong to, and the session in which it was trained.

    Args:
        root: The run folder.
        step: The step; None: the last recorded step, 0 if there is none.

    Raises:
        UnreadableError: If there is no such folder.
        UsageError: If the training has records, but none from this step on: the values would move its end.
    """
    _check_folder(root)
    starts, last = _sessions(list_folder(root))
    if step is not None and last is not None and step > last:
        raise UsageError(f"{root} ends at step {last}, before --step {step}", hint=f"name a step that was trained: --step {last}")
    at = (last or 0) if step is None else step
    return at, _session_at(starts, at)


def _check_folder(root: Path) -> None:
    if not root.is_dir():
        raise UnreadableError(f"{root} is no run folder", hint="Name the folder that run.json stands in.")


def _session_at(starts: Mapping[int, int], step: int) -> int:
    """Return the session in which a step was trained, from the first step of each session."""
    return max((session for session, start in starts.items() if start <= step), default=0)


def _sessions(folder: RunFiles) -> tuple[dict[int, int], int | None]:
    """Return the first step of each session in the training's logs, and the last recorded step."""
    starts: dict[int, int] = {}
    steps = [file.step for file in folder.checkpoints if file.step is not None]
    for path in folder.scalars:
        for lines in () if BESIDE.fullmatch(path.name) else read_lines(path, path.name, root=folder.root):
            for row in lines.rows:
                session, step = int(row.get("session") or 0), int(row["step"] or 0)
                starts[session] = min(starts.get(session, step), step)
            steps += [max(int(row["step"] or 0) for row in lines.rows)] if lines.rows else []
    return starts, max(steps, default=None)


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        return [msgspec.json.decode(line, type=dict[str, Any]) for line in read_bytes(path, path.name).splitlines() if line]
    except (BrokenFile, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UnreadableError(f"{path} is broken", hint="Move it away: nothing but such values stands in it.") from None


def _merged(rows: list[dict[str, Any]], new: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place = new["step"], new["session"]
    is_written = False
    for row in sorted([*rows, new], key=lambda row: (row.get("step", 0), row.get("session") or 0)):
        if (row.get("step", 0), row.get("session") or 0) != place:
            yield row
        elif not is_written:
            is_written = True
            same = [row for row in rows if (row.get("step", 0), row.get("session") or 0) == place]
            joined: dict[str, Any] = {}
            for same_row in (*same, new):
                joined |= same_row
            yield joined
