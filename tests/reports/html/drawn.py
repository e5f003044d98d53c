"""A report and pictures that between them hold every shape and everything that a name may hold."""

from msgspec.structs import replace

from ckaudit.contract.schema.checkpoint import PackedGrid
from ckaudit.contract.schema.panels import Chart, Frame, Link, Mark, Matrix, Panels, Ridge, Tab, Trace
from ckaudit.contract.schema.report import Answer, Report
from tests.reports.sample import ill

HOSTILE = (
    "<img src=x onerror=window.hit=1>",
    "</script><script>window.hit=2</script>",
    "'\"><svg onload=window.hit=3>",
    '<a href="javascript:window.hit=4">click</a><b>bold</b>',
    "a\u202eb\u2066c\x1b[31m",
    "%{x}$\\alpha$&lt;i&gt;",
)


def told(words: str = "loss") -> Report:
    """Return a report whose every sentence and name is `words`."""
    whole = ill()
    if words == "loss":
        return whole
    findings = [replace(each, message=words, where=words, also=[words], help=words) for each in whole.findings]
    diagnoses = [replace(each, title=words, knob=words, symptom=words, where=words) for each in whole.diagnoses]
    return replace(
        whole,
        subject=words,
        verdict=words,
        findings=findings,
        diagnoses=diagnoses,
        notes=[words],
        response=[words],
        state={words: 1.0},
    )


def pictures(words: str = "loss") -> Panels:
    """Return one tab with a chart of each shape, all names being `words`, and one tab that knows nothing."""
    marks = [Mark(step=20, kind="finding", text=words, until=30, severity="sev1", code="LOSS002", finding=0)]
    lines = Chart(
        id="loss",
        title=f"Does it fall? {words}",
        shape="lines",
        metrics=["train_loss_raw", words],
        formula=r"L = \sum_i l_i",
        unit="nats/token",
        note=words,
        marks=marks,
        lines=[(words, 2.0)],
        traces=[
            Trace(name=words, x=[10, 20, 30], y=[3.0, "NaN", None], low=[2.5, 2.5, None], high=[3.5, 3.5, None]),
            Trace(name="val", x=[10, 20, 30], y=[3.5, 3.0, 2.5]),
        ],
    )
    bars = Chart(id="moved", title=words, shape="bars", x=words, traces=[Trace(name=words, x=[words, "b"], y=[1.0, None])])
    matrix = Matrix(rows=[words, "b"], columns=["10", "20"], values=[[1.0, "Infinity"], [None, 0.0]])
    heatmap = Chart(id="map", title=words, shape="heatmap", log=True, matrix=matrix, marks=marks)
    ridges = [Ridge(step=step, where=words, edges=[-1.0, 0.0, 1.0], shares=[0.25, 0.75]) for step in (10, 20)]
    packed = PackedGrid(encoding="q8", shape=[2, 2], min=-1.0, max=1.0, data="AEC//w==")
    cells = (packed, [[0.0, "NaN"], [1.0, 2.0]])
    frames = [Frame(step=step, where=words, cells=grid) for step, grid in zip((10, 20), cells, strict=True)]
    frames.append(Frame(step=10, where="other", cells=packed))
    charts = [
        lines,
        bars,
        heatmap,
        Chart(id="spread", title=words, shape="ridges", ridges=ridges),
        Chart(id="grid", title=words, shape="grids", frames=frames),
    ]
    answers = [Answer(id="D1.1", question=words, word="bad", sentence=words)]
    tabs = [
        Tab(id="training", question="Is it training?", word="bad", answer=words, charts=charts, answers=answers, findings=[0, 1]),
        Tab(id="unjudged", question="What could not be judged?", word="unknown", answer=words, missing=[words]),
        Tab(id="steps", question="What does every step say?", kind="dashboard", word="unknown", answer=words),
    ]
    links = [Link(finding=0, tab="training", chart="loss", step=20), Link(finding=1, tab="unjudged")]
    return Panels(schema_version="ck.panels.v1", subjects=[words, "before"], tabs=tabs, links=links, notes=[words])
