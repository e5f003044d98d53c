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

    name: Annotated[str, doc("The quantity that the curve or the bars show.")]
    x: Annotated[list[Number | str], doc("Steps, or labels of bars.", shape="(N,)")]
    y: Annotated[list[Number | None], doc("Values; null: not recorded.", shape="(N,)")]
    low: Annotated[list[Number | None], doc("Lower edge of a band; empty: no band.", shape="(N,)")] = []
    high: Annotated[list[Number | None], doc("Upper edge of a band; empty: no band.", shape="(N,)")] = []
    run: Annotated[int, doc("The run that it belongs to: 0 the first, 1 the second.")] = 0
    axis: Annotated[Literal["left", "right"], doc("The axis that it uses.")] = "left"


class Matrix(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """Cells of a heatmap by row and column."""

    rows: Annotated[list[str], doc("Names of the rows.", shape="(R,)")]
    columns: Annotated[list[str], doc("Names of the columns.", shape="(C,)")]
    values: Annotated[list[list[Number | None]], doc("Cells; null: not recorded.", shape="(R, C)")]


class Frame(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The content that a slider shows at one step."""

    step: Annotated[Step, doc("The step.", unit="steps")]
    where: Annotated[str, doc("Tensor, layer or head.")]
    cells: Annotated[Grid, doc("The cells: bytes between two limits, or nested numbers if one is not finite.", shape="(R, C)")]
    rows: Annotated[list[str], doc("Names of the rows; empty: no names.", shape="(R,)")] = []
    columns: Annotated[list[str], doc("Names of the columns; empty: no names.", shape="(C,)")] = []


class Ridge(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One histogram among several over time."""

    step: Annotated[Step, doc("The step.", unit="steps")]
    where: Annotated[str, doc("The tensor.")]
    edges: Annotated[list[Number], doc("Edges of the bins.", shape="(N + 1,)")]
    shares: Annotated[list[Number], doc("Share of the values in each bin.", shape="(N,)")]


class Mark(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A step at which something happened."""

    step: Annotated[Step, doc("The step.", unit="steps")]
    kind: Annotated[Literal["finding", "spike", "event", "resume", "parting"], doc("Kind of the event.")]
    text: Annotated[str, doc("One sentence that describes the event.")]
    until: Annotated[Step | None, doc("Last step of an interval.", unit="steps")] = None
    severity: Annotated[str | None, doc("Severity, if the mark is a finding.")] = None
    code: Annotated[str | None, doc("Code, if the mark is a finding.")] = None
    finding: Annotated[int | None, doc("Index of the finding in the report.")] = None


class Chart(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One chart."""

    id: Annotated[str, doc("Name by which findings and links refer to the chart.")]
    title: Annotated[str, doc("The question that the chart answers.")]
    shape: Annotated[Shape, doc("Type of the chart.")]
    metrics: Annotated[list[str], doc("Catalogue names of the metrics shown.")] = []
    formula: Annotated[str, doc("Formula of the values, as TeX; empty: as recorded.")] = ""
    unit: Annotated[str, doc("Unit of the values; with two axes, the unit of the left axis.")] = "1"
    right_unit: Annotated[str, doc("Unit of the right axis; empty: no right axis.")] = ""
    stacked: Annotated[bool, doc("Whether the curves are stacked parts of a sum.")] = False
    x: Annotated[str, doc("Quantity on the horizontal axis.")] = "step"
    log: Annotated[bool, doc("Whether values are on a logarithmic scale.")] = False
    run: Annotated[
        int | None, doc("The run that the chart belongs to: 0 the first, 1 the second; null: both, or there is only one.")
    ] = None
    ends: Annotated[
        tuple[Number, Number] | None, doc("Ends of the scale that the maps of two runs share; null: the chart has its own scale.")
    ] = None
    traces: Annotated[list[Trace], doc("Curves or bars.")] = []
    matrix: Annotated[Matrix | None, doc("Cells of a heatmap.")] = None
    ridges: Annotated[list[Ridge], doc("Histograms over time.")] = []
    frames: Annotated[list[Frame], doc("Frames of a slider.")] = []
    marks: Annotated[list[Mark], doc("Events at steps.")] = []
    lines: Annotated[list[tuple[str, Number]], doc("Limits and baselines, each with a name and a value.")] = []
    note: Annotated[str, doc("A note on the chart, such as what was left out.")] = ""


class Tab(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One question with everything that answers it."""

    id: Annotated[str, doc("Short name.")]
    question: Annotated[str, doc("The question.")]
    kind: Annotated[Literal["question", "dashboard"], doc("question: a question; dashboard: a view for regular monitoring.")] = (
        "question"
    )
    word: Annotated[Answered, doc("The answer as one word.")]
    answer: Annotated[str, doc("The answer in a sentence or two, with its numbers.")]
    charts: Annotated[list[Chart], doc("Charts.")] = []
    answers: Annotated[list[Answer], doc("Questions of the playbook that the answer rests on, with their answers.")] = []
    findings: Annotated[list[int], doc("Indices of the related findings in the report.")] = []
    missing: Annotated[list[str], doc("What could not be drawn and why; one sentence each.")] = []


class Link(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """The best place to see a finding."""

    finding: Annotated[int, doc("Index of the finding in the report.")]
    tab: Annotated[str, doc("The tab that shows it.")]
    chart: Annotated[str | None, doc("The chart on the tab; null: no chart shows it.")] = None
    step: Annotated[Step | None, doc("The step to look at; null: none.", unit="steps")] = None


class Beside(Struct, kw_only=True, frozen=True):
    """The first-page facts of a second run, and how it compares with the first."""

    severity: Annotated[Severity | None, doc("Severity of the most severe finding of the second run; null: none.")]
    verdict: Annotated[str, doc("The triage verdict on the second run.")]
    word: Annotated[Word, doc("How the second run compares with the first.")]
    message: Annotated[str, doc("The comparison as one sentence.")]
    cause: Annotated[Diagnosis | None, doc("The most likely cause of the second run's problem; null: none.")] = None


class Panels(Struct, kw_only=True, frozen=True):
    """All charts; all members are always written."""

    schema_version: Annotated[Literal["ck.panels.v1"], doc("Version of the contract that this document follows.")]
    subjects: Annotated[list[str], doc("The run, and the run that it is compared with.")]
    tabs: Annotated[list[Tab], doc("The tabs, in the order of the questions.")]
    front: Annotated[
        list[Chart],
        doc("Charts of the first page: the loss (without curves if it is not recorded), then the charts of the findings."),
    ] = []
    beside: Annotated[Beside | None, doc("Facts of the second run; null: there is no second run.")] = None
    links: Annotated[list[Link], doc("The best place to see each finding that a tab shows.")] = []
    notes: Annotated[list[str], doc("Notes on how the charts were made.")] = []
