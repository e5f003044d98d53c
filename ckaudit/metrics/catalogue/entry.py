"""One entry of the catalogue: what a number means to someone who has to act on it."""

from typing import Literal, NamedTuple

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


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


class Way(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    huggingface: Way | None = None
    lightning: Way | None = None
    like: str = ""
    between: str = ", "
    alone: bool = False

    def way(self, trainer: Trainer) -> Way:
        """Return its line where that trainer runs the loop."""
        ways = {"": None, "huggingface": self.huggingface, "lightning": self.lightning}
        return ways[trainer] or Way(call=self.call, where=self.where, more=self.more)


class Category(NamedTuple):
    """One file of the catalogue: what its numbers are about, and its entries by name, in the order of the file."""

    name: str
    title: str
    entries: dict[str, Entry]
