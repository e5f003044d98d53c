"""One checkpoint, file by file: its content, its faults, and files that could not be judged."""

import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import time as now
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ckaudit.contract.io.folder import shown_name
from ckaudit.contract.schema.report import Finding, ResumeCheckpoint
from ckaudit.resume.catalogue import (
    BREAKING,
    CHECKSUM,
    CUT_OFF,
    DAMAGED,
    EMPTY,
    FOREIGN_CLASS,
    INDEX,
    RUNS_CODE,
    SHARD_MISSING,
    UNNEEDED,
    UNREADABLE,
)
from ckaudit.resume.checksums import digest, look_up
from ckaudit.resume.content import Content
from ckaudit.resume.distributed import missing_pieces, read_metadata, read_pieces
from ckaudit.resume.find import DATA, FoundCheckpoint
from ckaudit.resume.open_file import FileFault, OpenFile, Unjudged, is_there, stays_inside
from ckaudit.resume.roles import PARTS, Inventory
from ckaudit.resume.safetensors_files import read_safetensors
from ckaudit.resume.scan import scan
from ckaudit.resume.tensor_files import read_torch
from ckaudit.wording import first_names, plural

MAX_JSON = 64 * 2**20

STATE_FILES = ("trainer_state", "train_state", "meta")

OPTIONAL = frozenset({"scaler"})  # only half precision needs a loss scaler

BEING_SAVED = 60.0  # seconds: a younger file may still be written

Tick = Callable[[int], None]

# Objects that torch.load(weights_only=True) creates itself, and those that common trainers store beside their tensors.
ALLOWED = re.compile(
    r"torch\.(?:[A-Za-z0-9]+Storage|storage\.(?:Untyped|Typed)Storage|Size|device|dtype|Tensor|Generator|nn\.parameter\.Parameter"
    r"|_tensor\._rebuild_from_type_v2|serialization\._get_layout|_utils\._rebuild_\w+|_C\._rebuild_\w+"
    r"|(?:u?int|float|bfloat|complex|quint|qint)\d\w*|bool|strided|per_(?:tensor|channel)_\w+|contiguous_format|preserve_format"
    r"|distributed\.(?:checkpoint\.(?:metadata\.\w+|filesystem\._StorageInfo)|_?tensor(?:\.(?:_dtensor_spec|placement_types))?\.[A-Z]\w+"
    r"|device_mesh\.DeviceMesh))"
    r"|numpy(?:\._?core)?\.(?:multiarray\.(?:_reconstruct|scalar)|ndarray|dtype|bool_?|u?int\d*|float\d*|numeric\._frombuffer)"
    r"|numpy\.dtypes\.\w+DType|numpy\.random\._pickle\.__\w+_ctor|numpy\.random\._mt19937\.MT19937|numpy\.random\._pcg64\.PCG64"
    r"|_codecs\.encode|collections\.(?:OrderedDict|defaultdict|Counter|deque)"
    r"|(?:builtins|__builtin__)\.(?:set|frozenset|list|dict|tuple|int|float|bool|str|bytes|bytearray|complex|slice|range|object)"
    r"|copyreg\._reconstructor|copy_reg\._reconstructor|argparse\.Namespace|types\.SimpleNamespace"
    r"|pathlib(?:\._local)?\.(?:Pure)?(?:Posix|Windows)?Path|datetime\.(?:datetime|date|timedelta|timezone)"
    r"|transformers\.(?:training_args|trainer_utils|trainer_pt_utils)\.[A-Z]\w+"
    r"|megatron\.(?:core\.(?:transformer\.)?|legacy\.model\.|model\.)enums\.[A-Z]\w+"
    r"|accelerate\.(?:state|utils\.dataclasses)\.[A-Z]\w+|deepspeed\.\w[\w.]*\.(?:ZeroStageEnum|LossScaler|DynamicLossScaler)"
    r"|(?:lightning\.fabric|lightning_fabric|pytorch_lightning|lightning\.pytorch)\.utilities\.\w+\.AttributeDict"
)

SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{1,6})-of-(?P<count>\d{1,6})(?P<end>\..+)")


class ExaminedCheckpoint(Struct):
    """The results of examining a checkpoint.

    Attributes:
        checkpoint: The checkpoint.
        entry: Its entry in the report.
        findings: Faults of its files.
        skipped: Files that could not be judged, with the reason.
        digests: SHA-256 of its files, if requested.
        forms: The formats that were read.
        scanned: The parts whose bytes were scanned.
        compared: Number of files with a checksum.
        indexed: Whether it has an index or `.metadata`.
        pickled: Whether a pickle was read.
    """

    checkpoint: FoundCheckpoint
    entry: ResumeCheckpoint
    findings: list[Finding] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    digests: dict[Path, str] = field(default_factory=dict)
    forms: set[str] = field(default_factory=set)
    scanned: set[str] = field(default_factory=set)
    compared: int = 0
    indexed: bool = False
    pickled: bool = False


def examine(checkpoint: FoundCheckpoint, root: Path, sums: Mapping[Path, str], tick: Tick, *, hashed: bool) -> ExaminedCheckpoint:
    """Read every file of a checkpoint.

    Args:
        checkpoint: The checkpoint.
        root: The folder that links must not leave.
        sums: Expected SHA-256 by file.
        tick: Called with the number of bytes read since the last call.
        hashed: Whether to compute the digest of every file.
    """
    return _Examiner(checkpoint, root, sums, tick, hashed=hashed).run()


class _Examiner:
    def __init__(self, checkpoint: FoundCheckpoint, root: Path, sums: Mapping[Path, str], tick: Tick, *, hashed: bool) -> None:
        self.root, self.sums, self.tick, self.hashed = root, sums, tick, hashed
        self.inventory = Inventory()
        self.seen = ExaminedCheckpoint(checkpoint, ResumeCheckpoint(name=checkpoint.name))
        self.names: dict[Path, set[str]] = {}
        self.times: list[float] = []
        self.size = 0

    def run(self) -> ExaminedCheckpoint:
        files = self.seen.checkpoint.files
        for path in files:
            self.file(path)
        indexes = [path for path in files if path.name.endswith(".index.json")]
        for path in indexes:
            self.index(path)
        if not indexes:
            self.seen.findings += missing_shards(files, self.seen.checkpoint.file)
        if any(path.suffix == ".distcp" for path in files) and not any(path.name == ".metadata" for path in files):
            message = ".metadata is missing: it is written last, so the save did not end"
            self.seen.findings.append(SHARD_MISSING.at(self.seen.checkpoint.file, message))
        self.seen.indexed |= bool(indexes)
        self.close()
        return self.seen

    def shown(self, path: Path) -> str:
        return shown_name(path.relative_to(self.root).as_posix())

    def file(self, path: Path) -> None:
        """Examine one file; faults become findings."""
        shown = self.shown(path)
        try:
            with OpenFile(path, shown, self.root) as source:
                self.size += source.size
                if DATA.match(path.name):
                    self.times.append(source.time)
                self.sums_of(source)
                self.content(source)
        except FileFault as trouble:
            self.wrong(shown, trouble, path)
        except Unjudged as reason:
            self.seen.skipped.append((shown, str(reason)))

    def wrong(self, shown: str, trouble: FileFault, path: Path) -> None:
        message = trouble.message
        if trouble.kind is UNREADABLE and not os.path.lexists(path):
            self.seen.skipped.append((shown, "was removed before it could be read"))  # a rolling window may delete it
            return
        try:
            age = now() - path.stat().st_mtime
        except OSError:
            age = BEING_SAVED
        if trouble.kind in (CUT_OFF, EMPTY) and age < BEING_SAVED:
            message += f"; it was written {max(age, 0):.0f} s ago, and may still be"
        self.seen.findings.append(trouble.kind.at(shown, message))

    def sums_of(self, source: OpenFile) -> None:
        expected = look_up(source.path, self.sums)
        if expected is None and not self.hashed:
            return
        sha256 = digest(source, self.tick)
        self.seen.digests[source.path] = sha256
        if expected is not None:
            self.seen.compared += 1
        if expected not in (None, sha256):
            message = "has another SHA-256 than its checksum says"
            self.seen.findings.append(CHECKSUM.at(source.shown, message, expected=expected, found=sha256))

    def content(self, source: OpenFile) -> None:
        name = source.path.name
        known = bool(DATA.match(name)) or name == ".metadata" or _is_state(name)
        if known and source.size == 0:
            raise FileFault(EMPTY, "is empty")
        if known:
            self.inventory.take_file(name)
        if name == ".metadata":
            self.distributed(source)
        elif name.endswith(".safetensors"):
            self.take(source, read_safetensors(source))
        elif DATA.match(name) and not name.endswith(".distcp"):
            self.take(source, read_torch(source))
        elif _is_state(name):
            self.inventory.take_values(_json(source))

    def take(self, source: OpenFile, content: Content) -> None:
        """Examine the content of one file, or of one piece of it."""
        self.seen.forms.add(content.form)
        self.seen.pickled |= content.form == "torch"
        self.seen.findings += judge_names(content, source.shown)
        self.names.setdefault(source.path, set()).update(tensor.name for tensor in content.tensors)
        roles = self.inventory.take(content, source.shown)
        self.seen.scanned |= set(roles.values())
        self.seen.findings += scan(source, content, roles, self.tick)
        self.unneeded(source, content)

    def unneeded(self, source: OpenFile, content: Content, *, times: float = 1.5, min_excess_bytes: int = 16 * 2**20) -> None:
        """Find a file more than `times` its tensors plus `min_excess_bytes` in size: SIZ-3 asks what a resume needs."""
        needs = [0] * len(content.ranges)
        for tensor in content.tensors:
            needs[tensor.at] += tensor.needs
        needed = sum(min(need, place.size) for need, place in zip(needs, content.ranges, strict=True))
        if (
            content.form == "torch"
            and not source.path.name.endswith(".distcp")
            and source.size > times * needed + min_excess_bytes
        ):
            message = f"has {source.size:,} bytes, where its tensors need {needed:,}"
            self.seen.findings.append(
                UNNEEDED.at(source.shown, message, value=source.size, limit=int(times * needed + min_excess_bytes), unit="bytes")
            )

    def distributed(self, source: OpenFile) -> None:
        plan = read_metadata(source)
        self.seen.forms.add("distributed")
        self.seen.indexed = self.seen.pickled = True
        self.seen.findings += [*judge_names(plan.content, source.shown), *missing_pieces(plan, source.shown)]
        folder = source.path.parent
        prefix = "" if folder == self.root else self.shown(folder) + "/"
        for shown, trouble in read_pieces(folder, plan, prefix, self.root, self.take):
            self.wrong(shown, trouble, self.root / shown)

    def index(self, path: Path) -> None:
        shown = self.shown(path)
        try:
            with OpenFile(path, shown, self.root) as source:
                self.seen.findings += read_index(_json(source), path, shown, self.names)
        except FileFault as trouble:
            self.wrong(shown, trouble, path)

    def close(self) -> None:
        """Build the report's entry of the checkpoint."""
        checkpoint, inventory = self.seen.checkpoint, self.inventory
        broken = any(finding.code in BREAKING for finding in self.seen.findings)
        unknown = bool(self.seen.skipped) or any(finding.code == UNREADABLE.code for finding in self.seen.findings)
        forms = self.seen.forms - {"torch"} if "distributed" in self.seen.forms else self.seen.forms
        self.seen.entry = ResumeCheckpoint(
            name=checkpoint.name,
            step=checkpoint.step if inventory.step is None else inventory.step,
            form=", ".join(sorted(forms)),
            files=len(checkpoint.files),
            size=self.size,
            written=round(max(self.times), 3) if self.times else None,
            seconds=round(max(self.times) - min(self.times), 3) if len(self.times) > 1 else None,
            parameters=inventory.parameters,
            weight_bytes=inventory.weight_bytes,
            optimizer_bytes=inventory.optimizer_bytes,
            other_bytes=inventory.other_bytes,
            present=[part for part in PARTS if part in inventory.parts],
            absent=[part for part in PARTS if part not in inventory.parts | OPTIONAL],
            ok=False if broken else None if unknown or not self.seen.forms else True,
        )
        step = self.seen.entry.step
        self.seen.findings = [replace(finding, first_step=step, last_step=step) for finding in self.seen.findings]


def _is_state(name: str) -> bool:
    """Tell whether a JSON file contains the state of a training."""
    return name.endswith(".json") and name.startswith(STATE_FILES)


def _json(source: OpenFile) -> Any:
    if source.size > MAX_JSON:
        raise FileFault(DAMAGED, f"has {source.size:,} bytes of JSON; the limit is {MAX_JSON:,}")
    data = source.read(0, source.size)
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    import json

    try:  # trainers write a bare NaN, which is invalid JSON and which msgspec rejects
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FileFault(DAMAGED, f"is not JSON: {error}") from None


# Names that unpickling a checkpoint may import: a closed list, everything else is reported.
def is_allowed(name: str) -> bool:
    """Tell whether a checkpoint may import a name.

    >>> is_allowed("torch._utils._rebuild_tensor_v2"), is_allowed("os.system"), is_allowed("torch.hub.load")
    (True, False, False)
    """
    return ALLOWED.fullmatch(name) is not None


def is_dangerous(name: str, called: frozenset[str]) -> bool:
    """Tell whether a name that is not allowed could run code: it is called, or belongs to the standard library.

    A class that is only used to create an empty object and fill it needs its program, and does nothing else.
    """
    return name in called or name.partition(".")[0] in sys.stdlib_module_names


def judge_names(content: Content, file: str) -> list[Finding]:
    """Return findings for the names that unpickling a file would import."""
    foreign = [name for name in (*content.names, *sorted(content.called - {*content.names})) if not is_allowed(name)]
    dangerous = [name for name in foreign if is_dangerous(name, content.called)]
    findings = [
        RUNS_CODE.at(file, f"unpickling it would call {name}; nothing was executed here", where=name, found=name)
        for name in dangerous[:5]
    ]
    if len(dangerous) > 5:
        findings.append(
            RUNS_CODE.at(file, f"unpickling it would call {len(dangerous) - 5:,} other names", found=", ".join(dangerous[5:50]))
        )
    if others := [name for name in foreign if name not in dangerous]:
        message = f"unpickling it needs {first_names(others, 5)}"
        findings.append(FOREIGN_CLASS.at(file, message, where=others[0], also=others[1:50]))
    return findings


# The index of a sharded model: each tensor must be in the file that the index names, and each file must exist.
def read_index(document: Any, path: Path, shown: str, names: Mapping[Path, set[str]]) -> list[Finding]:
    """Return findings for contradictions between an index and the files that it names.

    Args:
        document: The index.
        path: File of the index.
        shown: Name of the file in findings.
        names: The tensors of each file that could be read.

    Raises:
        FileFault: If the document is no index.
    """
    chart = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(chart, dict) or not all(isinstance(file, str) for file in chart.values()):
        raise FileFault(DAMAGED, "has no weight_map from tensors to files")
    by_file: dict[str, list[str]] = {}
    for tensor, file in chart.items():
        by_file.setdefault(file, []).append(tensor)
    findings = []
    for file, tensors in sorted(by_file.items()):
        place = path.parent / file
        if not stays_inside(file):
            findings.append(DAMAGED.at(shown, f"names a file outside of its folder: {file!r}", found=repr(file)))
        elif not is_there(place):
            message = f"names {file}, which is missing, for {plural(len(tensors), 'tensor')}"
            findings.append(SHARD_MISSING.at(shown, message, where=tensors[0], also=tensors[1:50]))
        elif place in names and (lost := [name for name in tensors if name not in names[place]]):
            message = f"says that {file} holds {lost[0]}, which it does not"
            more = f"; nor {plural(len(lost) - 1, 'other tensor')}" if len(lost) > 1 else ""
            findings.append(INDEX.at(shown, message + more, where=lost[0], also=lost[1:50]))
    return findings


def missing_shards(files: list[Path], shown: str | None) -> list[Finding]:
    """Return findings for shards that must exist according to the names of others, such as the second of `-00001-of-00002`."""
    numbers_by_group: dict[tuple[str, int, str], set[int]] = {}
    for path in files:
        if match := SHARD.fullmatch(path.name):
            numbers_by_group.setdefault((match["stem"], int(match["count"]), match["end"]), set()).add(int(match["number"]))
    findings = []
    for (stem, count, end), numbers in sorted(numbers_by_group.items()):
        first = 0 if 0 in numbers else 1
        lost = [number for number in range(first, min(count, 100_000) + first) if number not in numbers]
        if lost:
            message = f"{plural(len(lost), 'shard')} of {count:,} missing, number {lost[0]} first: {stem}-...{end}"
            findings.append(SHARD_MISSING.at(shown, message, value=len(numbers), limit=count, unit="files"))
    return findings
