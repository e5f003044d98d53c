"""The index of a sharded model: each tensor must stand in the file that it names, and each file must be there."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckaudit.contract.report import Finding
from ckaudit.material.counts import plural
from ckaudit.resume.catalogue import DAMAGED, INDEX, SHARD_MISSING
from ckaudit.resume.source import is_there, stays_inside
from ckaudit.resume.trouble import Trouble

SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{1,6})-of-(?P<count>\d{1,6})(?P<end>\..+)")


def read_index(document: Any, path: Path, shown: str, names: Mapping[Path, set[str]]) -> list[Finding]:
    """Return what is wrong between an index and the files that it names.

    Args:
        document: The index.
        path: Its file.
        shown: Its name in findings.
        names: The tensors of each file that could be read.

    Raises:
        Trouble: Where it is no index.
    """
    chart = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(chart, dict) or not all(isinstance(file, str) for file in chart.values()):
        raise Trouble(DAMAGED, "has no weight_map from tensors to files")
    by_file: dict[str, list[str]] = {}
    for tensor, file in chart.items():
        by_file.setdefault(file, []).append(tensor)
    found = []
    for file, tensors in sorted(by_file.items()):
        place = path.parent / file
        if not stays_inside(file):
            found.append(DAMAGED.at(shown, f"names a file outside of its folder: {file!r}", found=repr(file)))
        elif not is_there(place):
            message = f"names {file}, which is missing, for {plural(len(tensors), 'tensor')}"
            found.append(SHARD_MISSING.at(shown, message, where=tensors[0], also=tensors[1:50]))
        elif place in names and (lost := [name for name in tensors if name not in names[place]]):
            message = f"says that {file} holds {lost[0]}, which it does not"
            more = f"; nor {plural(len(lost) - 1, 'other tensor')}" if len(lost) > 1 else ""
            found.append(INDEX.at(shown, message + more, where=lost[0], also=lost[1:50]))
    return found


def missing_shards(files: list[Path], shown: str | None) -> list[Finding]:
    """Return the shards that the names of others say there must be, such as the second of `-00001-of-00002`."""
    there: dict[tuple[str, int, str], set[int]] = {}
    for path in files:
        if match := SHARD.fullmatch(path.name):
            there.setdefault((match["stem"], int(match["count"]), match["end"]), set()).add(int(match["number"]))
    found = []
    for (stem, count, end), numbers in sorted(there.items()):
        first = 0 if 0 in numbers else 1
        lost = [number for number in range(first, min(count, 100_000) + first) if number not in numbers]
        if lost:
            message = f"{plural(len(lost), 'shard')} of {count:,} missing, number {lost[0]} first: {stem}-...{end}"
            found.append(SHARD_MISSING.at(shown, message, value=len(numbers), limit=count, unit="files"))
    return found
