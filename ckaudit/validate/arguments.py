"""What the user named: folders, each a run, and files, together with those of the same folder."""

import os
from collections.abc import Sequence
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from ckaudit.contract import violations
from ckaudit.contract.folder import RunFolder, list_files, list_folder, shown_name
from ckaudit.contract.report import Finding
from ckaudit.errors import UnreadableError

NOTHING = "holds no checkpoint, no scalar log and no run.json"
DOCUMENTS = (".json", ".json.gz", ".json.zst")


def sort_arguments(paths: Sequence[Path]) -> tuple[list[tuple[RunFolder, str]], list[Finding]]:
    """Return the runs that the user named, each with what stands before its file names, and a finding per bad argument.

    Raises:
        UnreadableError: Where nothing named can be audited.
    """
    named = list(dict.fromkeys(paths))
    runs: list[tuple[RunFolder, str]] = []
    files: dict[Path, list[Path]] = {}
    refused: list[UnreadableError] = []
    findings: list[Finding] = []
    for path in named:
        prefix = f"{path}/" if len(named) > 1 else ""
        try:
            if _is_folder(path):
                runs += [(run, prefix) for run in _runs(path, prefix)]
            else:
                files.setdefault(path.parent, []).append(path)
        except UnreadableError as error:
            refused.append(error)
            findings.append(violations.UNREADABLE.at(shown_name(str(path)), str(error)))
    runs += [(list_files(group), "") for group in files.values()]
    if not runs:
        raise refused[0] if refused else UnreadableError("nothing was named", hint="Name a run folder or a checkpoint file.")
    return runs, findings


def _is_folder(path: Path) -> bool:
    shown = shown_name(str(path))
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UnreadableError(f"cannot read {shown}: {reason}", hint="Name a run folder or a checkpoint file.") from None
    if not S_ISDIR(mode) and not S_ISREG(mode):
        raise UnreadableError(f"{shown} is neither a folder nor a file", hint="Name a run folder or a checkpoint file.")
    if not os.access(path, os.R_OK):
        raise UnreadableError(f"cannot read {shown}: permission denied", hint="Check who may read it.")
    return S_ISDIR(mode)


def _runs(path: Path, prefix: str) -> list[RunFolder]:
    """Return the run in a folder; without one, each JSON file alone, for their names do not say that they belong together."""
    folder = list_folder(path, prefix=prefix)
    if not folder.is_empty() or folder.manifest is not None:
        return [folder]
    loose = sorted(entry for entry in path.iterdir() if entry.name.endswith(DOCUMENTS) and entry.is_file())
    if not loose:
        raise UnreadableError(f"{shown_name(str(path))} {NOTHING}", hint=_where_else(path))
    return [list_files([entry], prefix=prefix) for entry in loose]


def _where_else(path: Path, *, limit: int = 50) -> str:
    """Point at the first folder below that is a run; of a big tree only the first `limit` folders are looked at."""
    below = sorted(entry for entry in path.iterdir() if entry.is_dir() and os.access(entry, os.R_OK))
    for entry in below[:limit]:
        if not list_folder(entry).is_empty():
            return f"Name a run in it, such as {shown_name(str(entry))}."
    return "Name a folder that holds analysis_checkpoint_*.json files."
