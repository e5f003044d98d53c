"""`run.json`: what the run is, and one session for each of its starts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from ckaudit import __version__
from ckaudit.contract.io.codec import SUFFIXES, encode
from ckaudit.contract.io.files import CHECKPOINT_NAME, MANIFEST_NAME, read_bytes, write_atomic
from ckaudit.contract.schema.manifest import Manifest, Session
from ckaudit.recorder.files.provenance import SOURCES, resolved
from ckaudit.recorder.guard import Guard

COMPUTED = (
    *("schema_version", "source", "parameters", "dropout", "dropout_module", "cadence", "triggers", "tensors", "attention"),
    "sessions",
)
FACTS = tuple(name for name in Manifest.__struct_fields__ if name not in COMPUTED)


def check_call(*, grids: str = "q8", suffix: str | None = None, **facts: Any) -> None:
    """Raise as `Recorder` and `Writer` do where a call cannot be meant.

    Raises:
        TypeError: If a keyword is not a fact of `run.json`.
        ValueError: If `grids` or `suffix` is not one of its words.
    """
    known = sorted((*FACTS, *SOURCES))
    if unknown := facts.keys() - set(known):
        raise TypeError(f"no fact of run.json is called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if grids not in ("q8", "nested", "none") or suffix not in (None, *SUFFIXES):
        raise ValueError("grids is one of 'q8', 'nested', 'none', and suffix one of '.json', '.json.gz', '.json.zst'")


def load(folder: Path) -> Manifest | None:
    """Return the manifest of an earlier start; None where the folder has none.

    Raises:
        msgspec.DecodeError: If it is not a manifest.
    """
    path = folder / MANIFEST_NAME
    return msgspec.json.decode(path.read_bytes(), type=Manifest) if path.exists() else None


def save(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, whole or not at all."""
    write_atomic(folder / MANIFEST_NAME, encode(manifest))


def begin(earlier: Manifest | None, facts: Mapping[str, Any], guard: Guard, *, start: float, start_step: int) -> Manifest:
    """Return the manifest of a new start: earlier facts, replaced by the new ones, and one session more.

    A fact of the wrong type is left out, and counted as a failure. What was not given and the process can tell by itself
    is added: see `provenance`.
    """
    manifest = earlier or Manifest(schema_version="ck.run.v1")
    types = get_type_hints(Manifest, include_extras=True)
    for name, value in resolved(facts, guard).items():
        with guard(f"the fact {name}"):
            setattr(manifest, name, msgspec.convert(msgspec.to_builtins(value, enc_hook=str, str_keys=True), types[name]))
    manifest.source = f"ckaudit recorder {__version__}"
    sessions = list(manifest.sessions or [])
    session = Session(start=start, commit=manifest.commit, world_size=manifest.world_size)
    if sessions:
        session.resumed_from = start_step
    manifest.sessions = [*sessions, session]
    return manifest


def set_aside(folder: Path, start_step: int, session: int) -> list[str]:
    """Rename the checkpoints that a resume at `start_step` makes history; return their new names.

    They are those of later steps, and all of them where the run starts again at 0. The number of the session that
    wrote one goes into its name; `session` is the number of this start, and names the one before it where a file does
    not say.
    """
    renamed = []
    for path in sorted(folder.iterdir()):
        found = CHECKPOINT_NAME.match(path.name)
        if not found or not found["step"] or found["session"]:
            continue
        step, place = int(found["step"]), found.end("label")
        if step < start_step or step == start_step > 0:
            continue
        target = path.with_name(f"{path.name[:place]}.session{_writer(path, session - 1):03d}{path.name[place:]}")
        path.replace(target)
        renamed.append(target.name)
    return renamed


class _Writer(msgspec.Struct):
    session: int | None = None


def _writer(path: Path, fallback: int) -> int:
    try:
        found = msgspec.json.decode(read_bytes(path, path.name), type=_Writer).session
    except Exception:  # noqa: BLE001  whatever is wrong with the file, it still has to go
        found = None
    return fallback if found is None else found
