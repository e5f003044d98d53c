"""`ck.panels.v1`: the charts of one run, or of two, as data: tabs that are questions, with their charts.

The HTML report embeds it, and any other program can draw from it. All data are down-sampled to what a screen can show. A chart
names its metric, formula and unit, and a finding links to its chart and step.
"""

from typing import Annotated, Literal

from msgspec import Struct

from ckaudit.contract.schema.checkpoint import Grid
from ckaudit.contract.schema.diff import Word
from ckaudit.contract.schema.numbers import Number, Step, doc
from ckaudit.contract.schema.report import Answer, Diagnosis, Severity

VERSION: Literal["ck.panels.v1"] = "ck.panels.v1"

Shape = Literal["lines", "bars", "heatmap", "ridges", "grids"]
Answered = Literal["good", "watch", "bad", "unknown"]


class Trace(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One curve, or one row of bars."""

    name: Annotated[str, doc("What it is of.")]
    x: Annotated[list[Number | str], doc("Steps, or labels of bars.", shape="(N,)")]
    y: Annotated[list[Number | None], doc("Values; null where not recorded.", shape="(N,)")]
    low: Annotated[list[Number | None], doc("Lower edge of a band; empty: none.", shape="(N,)")] = []
    high: Annotated[list[Number | None], doc("Upper edge of a band; empty: none.", shape="(N,)")] = []
    run: Annotated[int, doc("Which run it is of: 0 the first, 1 the other.")] = 0
    axis: Annotated[Literal["left", "right"], doc("Which axis it is measured on.")] = "left"


class Matrix(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Cells of a heatmap by row and column."""

    rows: Annotated[list[str], doc("Names of the rows.", shape="(R,)")]
    columns: Annotated[list[str], doc("Names of the columns.", shape="(C,)")]
    values: Annotated[list[list[Number | None]], doc("Cells; null where not recorded.", shape="(R, C)")]


class Frame(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The content that a slider shows at one step."""

    step: Annotated[Step, doc("The step.", unit="steps")]
    where: Annotated[str, doc("Tensor, layer or head.")]
    cells: Annotated[Grid, doc("Its cells: bytes between two ends, or nested numbers where one is not finite.", shape="(R, C)")]
    rows: Annotated[list[str], doc("Names of the rows; empty: they have none.", shape="(R,)")] = []
    columns: Annotated[list[str], doc("Names of the columns; empty: they have none.", shape="(C,)")] = []


class Ridge(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One histogram among several over time."""

    step: Annotated[Step, doc("The step.", unit="steps")]
    where: Annotated[str, doc("The tensor.")]
    edges: Annotated[list[Number], doc("Edges of the bins.", shape="(N + 1,)")]
    shares: Annotated[list[Number], doc("Share of the values in each bin.", shape="(N,)")]


class Mark(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A step at which something happened."""

    step: Annotated[Step, doc("The step.", unit="steps")]
    kind: Annotated[Literal["finding", "spike", "event", "resume", "parting"], doc("What it is.")]
    text: Annotated[str, doc("What happened, in one sentence.")]
    until: Annotated[Step | None, doc("Last step of an interval.", unit="steps")] = None
    severity: Annotated[str | None, doc("Of a finding.")] = None
    code: Annotated[str | None, doc("Of a finding.")] = None
    finding: Annotated[int | None, doc("Which finding of the report it is, by its place.")] = None


class Chart(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One chart."""

    id: Annotated[str, doc("Name that findings and links know it by.")]
    title: Annotated[str, doc("The question it answers.")]
    shape: Annotated[Shape, doc("How it is drawn.")]
    metrics: Annotated[list[str], doc("Catalogue names of what it shows.")] = []
    formula: Annotated[str, doc("How it is computed, as TeX; empty: as recorded.")] = ""
    unit: Annotated[str, doc("Unit of its values, of those on the left axis where there are two.")] = "1"
    right_unit: Annotated[str, doc("Unit of the right axis; empty: there is none.")] = ""
    stacked: Annotated[bool, doc("Whether the curves are parts that stand on each other.")] = False
    x: Annotated[str, doc("What the horizontal axis counts.")] = "step"
    log: Annotated[bool, doc("Whether values are drawn on a logarithmic scale.")] = False
    run: Annotated[int | None, doc("Which of two runs it is of: 0 the first, 1 the other; null: of both, or there is one.")] = (
        None
    )
    ends: Annotated[tuple[Number, Number] | None, doc("Ends of the scale that maps of two runs share; null: its own.")] = None
    traces: Annotated[list[Trace], doc("Curves or bars.")] = []
    matrix: Annotated[Matrix | None, doc("Of a heatmap.")] = None
    ridges: Annotated[list[Ridge], doc("Histograms over time.")] = []
    frames: Annotated[list[Frame], doc("Grids of a slider.")] = []
    marks: Annotated[list[Mark], doc("What happened at which step.")] = []
    lines: Annotated[list[tuple[str, Number]], doc("Limits and baselines: a name and a value each.")] = []
    note: Annotated[str, doc("What a reader must know, such as what was left out.")] = ""


class Tab(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One question with everything that answers it."""

    id: Annotated[str, doc("Short name.")]
    question: Annotated[str, doc("The question.")]
    kind: Annotated[Literal["question", "dashboard"], doc("A question, or a view of what is looked at every so often.")] = (
        "question"
    )
    word: Annotated[Answered, doc("The answer in a word.")]
    answer: Annotated[str, doc("The answer in a sentence or two, with its numbers.")]
    charts: Annotated[list[Chart], doc("Pictures.")] = []
    answers: Annotated[list[Answer], doc("The questions of the interview that it rests on, with their answers.")] = []
    findings: Annotated[list[int], doc("Which findings of the report belong here, by their place.")] = []
    missing: Annotated[list[str], doc("What could not be drawn, with the reason; one sentence each.")] = []


class Link(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The best place to see a finding."""

    finding: Annotated[int, doc("Which finding of the report, by its place.")]
    tab: Annotated[str, doc("The tab.")]
    chart: Annotated[str | None, doc("The chart on it; null: none shows it.")] = None
    step: Annotated[Step | None, doc("The step to look at; null: it has none.", unit="steps")] = None


class Beside(Struct, kw_only=True, frozen=True):
    """The first-page facts of a second run, and how it compares with the first."""

    severity: Annotated[Severity | None, doc("The gravest finding of the second run; null: none.")]
    verdict: Annotated[str, doc("What triage says of the second run.")]
    word: Annotated[Word, doc("How the second run does against the first.")]
    message: Annotated[str, doc("The same as one sentence.")]
    cause: Annotated[Diagnosis | None, doc("The likeliest cause of what ails the second run; null: none.")] = None


class Panels(Struct, kw_only=True, frozen=True):
    """All charts; all members are always written."""

    schema_version: Annotated[Literal["ck.panels.v1"], doc("Which contract this document follows.")]
    subjects: Annotated[list[str], doc("The run, and the one it is compared with.")]
    tabs: Annotated[list[Tab], doc("In the order of the questions.")]
    front: Annotated[
        list[Chart], doc("Of the first page: the loss, without curves where there is none, then what the findings are about.")
    ] = []
    beside: Annotated[Beside | None, doc("Of the second run; null: there is none.")] = None
    links: Annotated[list[Link], doc("Of each finding that has a place, the place.")] = []
    notes: Annotated[list[str], doc("What a reader must know of how this was made.")] = []
