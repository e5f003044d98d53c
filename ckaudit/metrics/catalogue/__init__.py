"""The prose of the catalogue: one TOML file per category, which is read only when a metric is to be explained."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import Struct

Importance = Literal["must", "should", "nice"]
Condition = Literal[
    "",
    "attention",
    "experts",
    "loss_scaler",
    "ranks",
    "device",
    "text",
    "chosen_weights",
    "claims",
    "loss_terms",
    "clipping",
    "recorder",
    "dropout",
]
Trainer = Literal["", "huggingface", "lightning"]  # owner of the training loop; empty: the program itself
RANKS: tuple[Importance, ...] = ("must", "should", "nice")


class ByScale(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Importance of a number by the size of the run."""

    nano: Importance
    medium: Importance
    large: Importance


class ByStage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Importance of a number by the part of the run."""

    early: Importance
    steady: Importance
    late: Importance


class CatalogueEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table of a metric in a TOML file.

    Name, unit, shape, definition and formula come from the metric and its docstring.

    Attributes:
        rows: Rows of the mission's lists that the metric answers: "M01" to "M67", "F1" to "F16".
        also_called: Other names of the metric.
        covers: Metrics that share this playbook because they show the same quantity in another form.
        computed: How the number is computed, in words.
        typical: Values to expect.
        sampling: How often it is worth recording.
        alert: When to intervene.
        alert_source: Source of that limit.
        scale: Importance by the size of the run.
        stage: Importance by the part of the run.
        intuition: What it is, for a beginner.
        why: What goes wrong without it.
        good: The shape of a healthy series, in words.
        bad: The shape of an unhealthy series.
        failures: Usual causes of the unhealthy shape.
        mitigations: What to do, in order.
        good_shape: A healthy series, drawn beside the unhealthy one on the same axis.
        bad_shape: An unhealthy series.
        record: How it gets into the run folder, in words.
        action: Name of the action that records it.
        options: Options that the action's line needs for it.
        arguments: Arguments that the Recorder also needs for it, whatever line records it.
        absent: Why the Recorder may measure nothing although its line is there; empty: no reason is known.
        otherwise: The entry whose line records it in that case; empty: none.
        together: Entries without which its own line records nothing.
        evidence: Metrics or scalars of which one must be recorded for the entry to count as recorded, if other inputs are not
            enough; empty: any value counts.
        needs: Entries that it is computed from; if one is missing, the line of that entry records it.
        least: Points of the first of them that its first value needs.
        elsewhere: Covered metrics that another entry's line records, each with that entry.
        columns: Columns of a sample from which `ckaudit data` computes it.
        only_with: What a run must have for the metric to apply; empty: every run.
        formulas: Formulas of rows that the docstring lacks, in TeX by row.
    """

    rows: tuple[str, ...] = ()
    also_called: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()
    computed: str
    typical: str
    sampling: str
    alert: str
    alert_source: str
    scale: ByScale
    stage: ByStage
    intuition: str
    why: str
    good: str
    bad: str
    failures: tuple[str, ...]
    mitigations: tuple[str, ...]
    good_shape: tuple[float, ...]
    bad_shape: tuple[float, ...]
    record: str
    action: str
    options: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    absent: str = ""
    otherwise: str = ""
    together: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    least: int = 0
    elsewhere: dict[str, str] = {}
    columns: str = ""
    only_with: Condition = ""
    formulas: dict[str, str] = {}


class TrainerCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The line of an action for a trainer that runs the loop, with a callback that records.

    Attributes:
        call: The line.
        where: Where it goes.
        more: The line if the call is already there and options are added; empty: the same.
        gives: Options that are not needed, because the callback finds their values.
        spells: Options that have another name there.
        only_with: What a run must have for the line to record anything; empty: every run.
    """

    call: str
    where: str
    more: str = ""
    gives: tuple[str, ...] = ()
    spells: dict[str, str] = {}
    only_with: Condition = ""


class Action(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line that records numbers.

    Attributes:
        call: The line, with `{options}` in place of the entries' options.
        where: Where it goes.
        more: The line if the call is already there and options are added; empty: the same.
        huggingface: The line for the Hugging Face Trainer; None: no other line.
        lightning: The line for Lightning.
        like: Action whose line replaces it if a trainer runs the loop; empty: its own.
        between: Separator before each option.
        alone: Whether entries that need no option are listed under the line without options.
    """

    call: str
    where: str
    more: str = ""
    huggingface: TrainerCall | None = None
    lightning: TrainerCall | None = None
    like: str = ""
    between: str = ", "
    alone: bool = False

    def way(self, trainer: Trainer) -> TrainerCall:
        """Return the line for a trainer."""
        ways = {"": None, "huggingface": self.huggingface, "lightning": self.lightning}
        return ways[trainer] or TrainerCall(call=self.call, where=self.where, more=self.more)


class Category(NamedTuple):
    """One file of the catalogue: name, title, and entries by name in the order of the file."""

    name: str
    title: str
    entries: dict[str, CatalogueEntry]


__all__ = [
    "CATEGORIES",
    "RANKS",
    "Action",
    "CatalogueEntry",
    "Category",
    "Condition",
    "Importance",
    "Trainer",
    "Way",
    "actions",
    "categories",
    "entries",
    "entry_of",
    "owner_of",
]

HERE = Path(__file__).parent
CATEGORIES = ("optimization", "tensors", "behaviour", "evaluation", "data", "hardware", "safety", "observability")


@cache
def categories() -> tuple[Category, ...]:
    """Return every category with its entries.

    Raises:
        msgspec.ValidationError: If a file has a field too many, too few, or of another type.
    """
    return tuple(_read(HERE / f"{name}.toml") for name in CATEGORIES)


class Entries(Mapping[str, CatalogueEntry]):
    """Every entry by name, in the order of the categories, parsed on demand: parsing all takes 30 ms."""

    def __init__(self) -> None:
        """Split the files into the lines of each entry."""
        self._lines: dict[str, str] = {}
        self._read: dict[str, CatalogueEntry] = {}
        self._fields: dict[tuple[str, str], Any] = {}
        for category in CATEGORIES:
            for table in f"\n{(HERE / f'{category}.toml').read_text(encoding='utf-8')}".split("\n[")[1:]:
                name = table.partition("]")[0].partition(".")[0].strip('"')
                self._lines[name] = f"{self._lines.get(name, '')}[{table}\n"

    def field(self, name: str, key: str) -> Any:
        """Return a one-line field of an entry without parsing the others; None if the entry lacks it."""
        if (name, key) not in self._fields:
            import tomllib

            line = self._lines[name].partition(f"\n{key} = ")[2].partition("\n")[0]
            self._fields[name, key] = tomllib.loads(f"{key} = {line}")[key] if line else None
        return self._fields[name, key]

    def __getitem__(self, name: str) -> CatalogueEntry:
        """Return an entry."""
        if name not in self._read:
            import tomllib

            import msgspec

            self._read[name] = msgspec.convert(tomllib.loads(self._lines[name])[name], CatalogueEntry)
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        """Tell whether an entry exists, without parsing it."""
        return name in self._lines

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._lines)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._lines)


@cache
def entries() -> Entries:
    """Return every entry by name, in the order of the categories."""
    return Entries()


@cache
def _covered() -> dict[str, str]:
    """Return the first entry that covers each metric, by metric."""
    numbers: dict[str, str] = {}
    for name in entries():
        for metric in entries().field(name, "covers") or ():
            numbers.setdefault(metric, name)
    return numbers


@cache
def actions() -> dict[str, Action]:
    """Return every action by name.

    Raises:
        msgspec.ValidationError: If the file has a field too many, too few, or of another type.
    """
    import tomllib

    import msgspec

    return msgspec.convert(tomllib.loads((HERE / "actions.toml").read_text(encoding="utf-8")), dict[str, Action])


def entry_of(metric: str) -> str | None:
    """Return the name of the entry that explains a metric: its own, or the one that covers it."""
    if metric in entries():
        return metric
    return _covered().get(metric)


@cache
def covered_elsewhere() -> tuple[tuple[str, str], ...]:
    """Return each metric that one entry covers and the line of another entry records, with the name of the other entry."""
    return tuple(pair for name in entries() for pair in (entries().field(name, "elsewhere") or {}).items())


def owner_of(metric: str) -> str | None:
    """Return the name of the entry whose line records a metric; for a covered metric it may be another entry's line."""
    return next((by for covered, by in covered_elsewhere() if covered == metric), None) or entry_of(metric)


def _read(path: Path) -> Category:
    import tomllib

    import msgspec

    document = tomllib.loads(path.read_text(encoding="utf-8"))
    title = msgspec.convert(document.pop("title"), str)
    return Category(path.stem, title, msgspec.convert(document, dict[str, CatalogueEntry]))


# The playbook's intensive-care panel: numbers to check every step and every minute, for `watch` and for reports.
PER_STEP = (
    "train_loss_raw",
    "train_loss_ema",
    "grad_global_norm",
    "update_to_weight_global",
    "loss_scale",
    "overflow_rate",
    "steps_seen",
    "tokens_seen",
    "max_attn_logit",
    "attn_entropy",
)
"""The playbook announces ten and names nine. The tenth is the raw loss, because a smoothed one shows too little."""
PER_MINUTE = (
    "tokens_per_sec",
    "step_time",
    "step_time_tail",
    "mfu",
    "dataloader_stall_frac",
    "comm_time_frac",
    "straggler_ratio",
)
