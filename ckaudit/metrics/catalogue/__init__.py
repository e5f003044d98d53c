"""The prose of the catalogue: one TOML file per category, read only when somebody asks what a number means."""

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
Trainer = Literal["", "huggingface", "lightning"]  # whose loop trains; empty: the program's own
RANKS: tuple[Importance, ...] = ("must", "should", "nice")


class ByScale(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much a number matters to a run of each size."""

    nano: Importance
    medium: Importance
    large: Importance


class ByStage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much a number matters in each part of a run."""

    early: Importance
    steady: Importance
    late: Importance


class CatalogueEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands in a TOML file under the name of a metric.

    Name, unit, shape, definition and formula are the metric's own, in its docstring.

    Attributes:
        rows: Rows of the mission's lists that it answers: "M01" to "M67", "F1" to "F16".
        also_called: What other people call it.
        covers: Metrics that share this playbook because they show the same thing from another side.
        computed: How the number is made, in words.
        typical: Values to expect.
        sampling: How often it is worth taking.
        alert: When to look up from other work.
        alert_source: Where that limit comes from.
        scale: Importance by size of the run.
        stage: Importance by part of the run.
        intuition: What it is, for someone who meets it first.
        why: What goes wrong without it.
        good: The shape of a healthy series, in words.
        bad: The shape of an ill one.
        failures: What usually lies behind the ill one.
        mitigations: What to do, in order.
        good_shape: A healthy series, drawn beside the ill one on the same axis.
        bad_shape: An ill series.
        record: What brings it into the run folder, in words.
        action: Name of the action that does so.
        options: What the action's line needs for it.
        arguments: Arguments that the Recorder needs for it besides, whatever line records it.
        absent: Why the Recorder may measure none of it though its line is there; empty: nothing is known.
        otherwise: The entry whose line says it then; empty: there is none.
        together: Entries without which its own line brings nothing.
        evidence: Metrics or scalars of which one must be there for it to count as recorded, where some of what it reads
            says too little; empty: any value counts.
        needs: Entries that it is made of: where one is missing, the line of that one records it.
        least: Points of the first of them that its first value takes.
        elsewhere: Of what it covers, the metrics that another entry's line records, each with that entry.
        columns: Columns of a sample that `ckaudit data` makes it of.
        only_with: What a run must have for it to make sense; empty: every run.
        formulas: Formulas of rows that the docstring does not carry, in TeX by row.
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
    """The line of an action where a trainer runs the loop and a callback records.

    Attributes:
        call: The line.
        where: Where it goes.
        more: The line where it stands already and options are added to it; empty: the same.
        gives: Options that it does not need, because the callback finds what they say.
        spells: Options that are called otherwise there.
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
        call: The line, with `{options}` where those of the entries go.
        where: Where it goes.
        more: The line where it stands already and options are added to it; empty: the same.
        huggingface: The same for the Hugging Face Trainer; None: no other.
        lightning: The same for Lightning.
        like: Action whose line stands for it where a trainer runs the loop; empty: its own.
        between: What stands before each option.
        alone: Whether what needs no option stands under the line without any.
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
        """Return its line where that trainer runs the loop."""
        ways = {"": None, "huggingface": self.huggingface, "lightning": self.lightning}
        return ways[trainer] or TrainerCall(call=self.call, where=self.where, more=self.more)


class Category(NamedTuple):
    """One file of the catalogue: what its numbers are about, and its entries by name, in the order of the file."""

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
    """Every entry by name, in the order of the categories, read when it is asked for: reading all takes 30 ms."""

    def __init__(self) -> None:
        """Cut the files into the lines of each entry."""
        self._lines: dict[str, str] = {}
        self._read: dict[str, CatalogueEntry] = {}
        self._fields: dict[tuple[str, str], Any] = {}
        for category in CATEGORIES:
            for table in f"\n{(HERE / f'{category}.toml').read_text(encoding='utf-8')}".split("\n[")[1:]:
                name = table.partition("]")[0].partition(".")[0].strip('"')
                self._lines[name] = f"{self._lines.get(name, '')}[{table}\n"

    def field(self, name: str, key: str) -> Any:
        """Return one field of an entry that stands on one line, without reading the others; None where it has none."""
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
        """Tell whether there is an entry of a name, without reading it."""
        return name in self._lines

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._lines)

    def __len__(self) -> int:
        """Return how many there are."""
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
    """Return every line that records something, by name.

    Raises:
        msgspec.ValidationError: If the file has a field too many, too few, or of another type.
    """
    import tomllib

    import msgspec

    return msgspec.convert(tomllib.loads((HERE / "actions.toml").read_text(encoding="utf-8")), dict[str, Action])


def entry_of(metric: str) -> str | None:
    """Return the name of the entry that tells about a metric: its own, or the one that covers it."""
    if metric in entries():
        return metric
    return _covered().get(metric)


@cache
def covered_elsewhere() -> tuple[tuple[str, str], ...]:
    """Return each metric that one entry covers and another one's line records, with the name of that one."""
    return tuple(pair for name in entries() for pair in (entries().field(name, "elsewhere") or {}).items())


def owner_of(metric: str) -> str | None:
    """Return the name of the entry whose line records a metric: of what an entry covers, another's line may."""
    return next((by for covered, by in covered_elsewhere() if covered == metric), None) or entry_of(metric)


def _read(path: Path) -> Category:
    import tomllib

    import msgspec

    document = tomllib.loads(path.read_text(encoding="utf-8"))
    title = msgspec.convert(document.pop("title"), str)
    return Category(path.stem, title, msgspec.convert(document, dict[str, CatalogueEntry]))


# What is looked at with every step and every minute, by `watch` as by a report: the intensive-care panel of the playbook.
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
"""The playbook speaks of ten and names nine; the tenth is the loss as it is, of which a smoothed one shows too little."""
PER_MINUTE = (
    "tokens_per_sec",
    "step_time",
    "step_time_tail",
    "mfu",
    "dataloader_stall_frac",
    "comm_time_frac",
    "straggler_ratio",
)
