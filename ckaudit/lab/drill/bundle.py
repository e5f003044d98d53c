"""The bundle for reporting a false alarm or a miss: its recordings, without names, paths or facts about the user."""

import json
import random
import shutil
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec.structs import replace

from ckaudit.contract.io.codec import encode, pack
from ckaudit.contract.io.files import CHECKPOINT_NAME, MANIFEST_NAME, SCALARS_PATTERN, BrokenFile, read_bytes, write_atomic
from ckaudit.lab.drill.outcomes import DrillReport, Seen
from ckaudit.lab.drill.trainings import Trained
from ckaudit.metrics import metrics

# Facts that `Recorder` determines by itself, for any model.
OWN = {
    "schema_version",
    "source",
    "parameters",
    "commit",
    "lock_hash",
    "environment",
    "cadence",
    "triggers",
    "world_size",
    "tensors",
    "sessions",
    "model",
    "dropout",
    "dropout_module",
    "batch_norm_batches",
}
# Facts that a careful user would pass; none of them is specific to a fault.
USER_FACTS = {
    "vocabulary",
    "sequence_length",
    "clip_norm",
    "warmup_steps",
    "planned_steps",
    "planned_learning_rate",
    "loss_ema_beta",
}
HINTS = ("model_scale_hint",)  # text of the user that is repeated in each checkpoint

FACTS = (OWN | USER_FACTS) - {"commit", "lock_hash", "environment", "model"}
"""Members of run.json that do not depend on who trains: nothing about the machine, the code, or the model's configuration."""
BY_NAME = ("weights", "gradients", "weight_deltas", "activations", "attention", "moe", "probes")
"""Sections of a checkpoint whose keys are names from the user's model."""
COMMON = ("weight", "bias")
NUMBERS_IN_WORDS, HASHES = ("NaN", "Infinity", "-Infinity"), ("batch_hash", "input_hash")
KEPT = ("step", "time", "session", "schema_version", "batch_hash")
OF_TENSOR = ("depth", "block", "kind", "module", "shape", "dtype", "trainable", "stride", "device", "tied_to")


def write_bundle(report: DrillReport, trained: Sequence[Trained], path: Path) -> list[str]:
    """Write the records of flagged healthy trainings and of missed faults to a zip file.

    Args:
        report: The report of the drill.
        trained: The trainings of the drill.
        path: The file.

    Returns:
        Names of the trainings in the bundle; empty: there is nothing to report, and no file.
    """
    wanted = [healthy.name for healthy in report.healthy if healthy.findings] + [fault.fault for fault in report.of("missed")]
    chosen = [training for training in trained if training.name in wanted and training.folder.is_dir()]
    if not chosen:
        return []
    with TemporaryDirectory(prefix="ckaudit-bundle-") as temporary:
        rng = random.Random(report.seed)
        files = {"drill.json": msgspec.json.format(msgspec.json.encode(without_names(report)), indent=1)}
        for training in chosen:
            target = Path(temporary) / training.name
            disguise(training.folder, target, rng)
            files |= {f"{training.name}/{file.name}": file.read_bytes() for file in sorted(target.iterdir())}
        packed = Path(temporary) / "bundle.zip"
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, data in files.items():
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        write_atomic(path, packed.read_bytes())
    return [training.name for training in chosen]


def without_names(report: DrillReport) -> DrillReport:
    """Return a report without the command, places in the model, and quotations."""
    healthy = tuple(replace(outcome, findings=tuple(map(_bare, outcome.findings))) for outcome in report.healthy)
    faults = tuple(
        replace(outcome, place="", remedy="", reason="", finding=outcome.finding and _bare(outcome.finding))
        for outcome in report.faults
    )
    return replace(report, command=(), to_judge_more=None, healthy=healthy, faults=faults)


def _bare(seen: Seen) -> Seen:
    return replace(seen, where=None, message="")


def disguise(folder: Path, target: Path, rng: random.Random) -> None:
    """Write a run to another folder without names of its model, labels and texts; the structure of names and all numbers stay.

    Args:
        folder: The run folder.
        target: Folder to create.
        rng: Draws the names.
    """
    anonymous(folder, target, facts=FACTS, rng=rng, names=_new_names(folder, rng))
    for file in target.iterdir():
        if file.name == MANIFEST_NAME:
            _rewrite(file, _manifest)
        elif CHECKPOINT_NAME.match(file.name):
            _rewrite(file, _checkpoint)
        elif SCALARS_PATTERN.match(file.name):
            lines = [encode(_values(json.loads(line))) for line in file.read_bytes().splitlines()]
            file.write_bytes(b"".join(line + b"\n" for line in lines))
        else:
            file.unlink()


def _new_names(folder: Path, rng: random.Random) -> dict[str, str]:
    """Return a new name for every name of a tensor or a module: numbers stay, and equal words are replaced by equal ones."""
    old: set[str] = set()
    for name in json.loads((folder / MANIFEST_NAME).read_bytes()).get("tensors", {}):
        parts = name.split(".")
        old.update(".".join(parts[:count]) for count in range(1, len(parts) + 1))
    for file in folder.iterdir():
        if CHECKPOINT_NAME.match(file.name):
            document = json.loads(read_bytes(file, file.name))
            old.update(name for section in BY_NAME for name in document.get(section, ()))
    words: dict[str, str] = {}
    for word in sorted({word for name in old for word in name.split(".")}):
        words[word] = word if word.isdecimal() or word in COMMON else f"n{rng.randrange(16**6):06x}"
    return {name: ".".join(words[word] for word in name.split(".")) for name in sorted(old)}


def _rewrite(file: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    document = change(json.loads(read_bytes(file, file.name)))
    file.write_bytes(pack(json.dumps(document).encode(), file.name[file.name.index(".json") :]))


def _manifest(document: dict[str, Any]) -> dict[str, Any]:
    run_facts = {name: value for name, value in document.items() if name not in ("sessions", "tensors")}
    sessions = [
        {name: value for name, value in session.items() if not isinstance(value, str)} for session in document.get("sessions", ())
    ]
    tensors = {
        name: {key: value for key, value in facts.items() if key in OF_TENSOR}
        for name, facts in document.get("tensors", {}).items()
    }
    return run_facts | {"sessions": sessions, "tensors": tensors}


def _checkpoint(document: dict[str, Any]) -> dict[str, Any]:
    for section in ("scalars", "data"):
        if section in document:
            document[section] = _values(document[section], any_name=section == "data")
    return document


def _values(row: dict[str, Any], *, any_name: bool = False) -> dict[str, Any]:
    """Return the values of a log line with names from the catalogue, without texts except hashes and special numbers."""
    known = {*KEPT, *metrics(), *(path for metric in metrics().values() for path in metric.paths)}
    return {
        name: value
        for name, value in row.items()
        if (any_name or name.partition("/")[0] in known)
        and (not isinstance(value, str) or name in HASHES or value in NUMBERS_IN_WORDS)
    }


# A run folder reduced to what any real run has: no telling names, labels, or facts that only the lab knows.
def anonymous(
    folder: Path, target: Path, *, facts: set[str], rng: random.Random, names: dict[str, str] | None = None
) -> dict[str, str]:
    """Write a run to another folder with new names of tensors, another seed and a selection of facts.

    Tensors keep their order, and in the tensor table their shape, module and kind. A file that cannot be read is copied.

    Args:
        folder: The run folder.
        target: Folder to create.
        facts: Members of run.json to keep.
        rng: Draws the names.
        names: New names by old ones; None: an unstructured name for each tensor.

    Returns:
        The new names by the old ones.
    """
    manifest = json.loads((folder / "run.json").read_bytes())
    if names is None:
        names = {name: f"t{rng.randrange(16**8):08x}" for name in manifest.get("tensors", {})}
    target.mkdir()
    kept = {name: value for name, value in manifest.items() if name in facts}
    if "seed" in facts and "seed" in manifest:
        kept["seed"] = rng.randrange(10_000)
    (target / "run.json").write_bytes(encode(renamed(kept, names)))
    for file in folder.iterdir():
        if CHECKPOINT_NAME.match(file.name):
            _rename_in_checkpoint(file, target / file.name, names)
        elif SCALARS_PATTERN.match(file.name):
            (target / file.name).write_bytes(
                b"".join(_renamed_line(line, names) for line in file.read_bytes().splitlines(keepends=True))
            )
        elif file.is_file() and file.name != "run.json":
            shutil.copy(file, target)
    return names


def renamed(value: Any, names: dict[str, str]) -> Any:
    """Return a document with every key and text that is a tensor's name replaced, also after the slash of a label."""
    if isinstance(value, dict):
        return {_renamed_text(key, names): renamed(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [renamed(item, names) for item in value]
    return _renamed_text(value, names) if isinstance(value, str) else value


def _renamed_text(text: str, names: dict[str, str]) -> str:
    name, slash, label = text.partition("/")
    return names.get(text) or (f"{name}/{names[label]}" if slash and label in names else text)


def _rename_in_checkpoint(file: Path, target: Path, names: dict[str, str]) -> None:
    try:
        document = json.loads(read_bytes(file, file.name))
    except (BrokenFile, ValueError):  # being unreadable may be the fault
        shutil.copy(file, target)
        return
    for hint in HINTS:
        document.pop(hint, None)
    text = json.dumps(renamed(document, names)).encode()  # a bare NaN stays one
    target.write_bytes(pack(text, file.name[file.name.index(".json") :]))


def _renamed_line(line: bytes, names: dict[str, str]) -> bytes:
    try:
        row = json.loads(line)
    except ValueError:
        return line
    return json.dumps(renamed(row, names)).encode() + line[len(line.rstrip(b"\r\n")) :]
