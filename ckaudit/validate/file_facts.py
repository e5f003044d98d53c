"""Facts that are kept of each file after reading: a few numbers, whatever its size."""

from typing import Any

from msgspec import UNSET, Struct, field

from ckaudit.contract.check import CheckedCheckpoint
from ckaudit.contract.io.columns import EMPTY, Column, SectionColumns
from ckaudit.contract.io.folder import CheckpointFile, RunFiles
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.numbers import Number


class Layout(Struct, frozen=True):
    """The tensors of a checkpoint, which must be the same in all checkpoints.

    Attributes:
        names: Weight tensors, in the order of the file.
        shapes: Shape of each; empty if no tensor has one.
        dtypes: Element type of each; empty if no tensor has one.
        heads: Query heads by attention layer, as pairs.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    dtypes: tuple[str | None, ...]
    heads: tuple[tuple[str, int], ...]

    def shape_of(self) -> dict[str, tuple[int, ...] | None]:
        """Return the shapes by name."""
        return dict(zip(self.names, self.shapes, strict=True)) if self.shapes else {}

    def dtype_of(self) -> dict[str, str | None]:
        """Return the element types by name."""
        return dict(zip(self.names, self.dtypes, strict=True)) if self.dtypes else {}


class Layouts(Struct):
    """Layouts seen so far; equal ones are one object, so that a thousand checkpoints need the memory of one."""

    _known: dict[Layout, Layout] = field(default_factory=dict)
    _columns: list[Column] = field(default_factory=list)
    _last: Layout | None = None

    def of(self, tables: dict[str, SectionColumns]) -> Layout | None:
        """Return the layout of a checkpoint's sections; None if it has neither weights nor attention."""
        weights, attention = tables.get("weights", EMPTY), tables.get("attention", EMPTY)
        if not weights.names and not attention.names:
            return None
        columns = [weights.names, *(weights.columns.get(name, ()) for name in ("shape", "dtype"))]
        columns += [attention.names, attention.columns.get("heads", ())]
        if self._last is None or columns != self._columns:
            layout = _layout(*columns)
            self._columns, self._last = columns, self._known.setdefault(layout, layout)
        return self._last


def _layout(names: Column, shapes: Column, dtypes: Column, layers: Column, heads: Column) -> Layout:
    return Layout(
        names=names,
        shapes=tuple(None if shape is UNSET else tuple(shape) for shape in shapes),
        dtypes=tuple(_or_none(dtype) for dtype in dtypes),
        heads=tuple((name, count) for name, count in zip(layers, heads, strict=False) if count is not UNSET),
    )


class CheckpointFacts(Struct, frozen=True):
    """One readable checkpoint; None means not recorded."""

    named: CheckpointFile
    step: int
    session: int | None
    rank: int | None
    time: Number | None
    loss: Number | None
    grad_norm: Number | None
    only_rank_facts: bool
    layout: Layout | None

    @property
    def shown(self) -> str:
        """The file's name in findings."""
        return self.named.shown


class LogFacts(Struct, frozen=True):
    """One scalar log: the sessions in it, and the values of the steps that have a checkpoint.

    Attributes:
        shown: The file's name in findings.
        lines: Number of valid lines.
        sessions: Every session that wrote a line.
        timed: Whether any line has a time.
        values: (step, session, name) to the value and its line, for the wanted steps.
        names: Every name with a value in a line.
    """

    shown: str
    lines: int
    sessions: frozenset[int]
    timed: bool
    values: dict[tuple[int, int, str], tuple[Number, int]]
    names: frozenset[str]


class RunFacts(Struct):
    """The facts of one run that its checks read.

    Attributes:
        folder: Its files.
        checkpoints: Readable checkpoints of the run, including per-rank files, sorted by step.
        history: Readable checkpoints that a resume replaced.
        versions: Files by unknown schema_version.
        manifest: The run's own description, if readable.
        manifest_file: Its name in findings.
        logs: Scalar logs.
        recorded: Paths of all fields in checkpoints.
    """

    folder: RunFiles
    checkpoints: list[CheckpointFacts] = field(default_factory=list)
    history: list[CheckpointFacts] = field(default_factory=list)
    versions: dict[str, list[str]] = field(default_factory=dict)
    manifest: Manifest | None = None
    manifest_file: str = ""
    logs: list[LogFacts] = field(default_factory=list)
    recorded: set[str] = field(default_factory=set)

    @property
    def whole(self) -> bool:
        """Whether the user named the folder, so that a missing file is really missing."""
        return self.folder.root is not None

    def merged(self) -> list[CheckpointFacts]:
        """Return the checkpoints of the run itself, without per-rank files."""
        return [checkpoint for checkpoint in self.checkpoints if checkpoint.rank is None]

    def written_steps(self) -> dict[int, str]:
        """Return the steps with a merged file, readable or not, and its name in findings."""
        named = {
            checkpoint.step: checkpoint.shown
            for checkpoint in self.folder.checkpoints
            if checkpoint.step is not None and checkpoint.rank is None
        }
        return dict(sorted((named | {facts.step: facts.shown for facts in self.merged()}).items()))


def facts_of(named: CheckpointFile, checked: CheckedCheckpoint, layouts: Layouts) -> CheckpointFacts | None:
    """Return the facts of a checkpoint that the checks of the run need."""
    document = checked.document
    if document is None:
        return None
    rank = _or_none(document.rank)
    scalars: dict[str, Number] = _or_none(document.scalars) or {}
    return CheckpointFacts(
        named=named,
        step=document.step,
        session=_or_none(document.session),
        rank=named.rank if rank is None else rank,
        time=_or_none(document.time),
        loss=scalars.get("train_loss_raw") if document.loss is UNSET else document.loss,
        grad_norm=scalars.get("grad_global_norm"),
        only_rank_facts=document.rank_facts is not UNSET and not checked.tables,
        layout=layouts.of(checked.tables),
    )


def _or_none(value: Any) -> Any:
    return None if value is UNSET else value
