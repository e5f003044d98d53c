"""The tools for agents: a type for the arguments of each, whose texts describe the tool to the agent, and its answer.

Answers are as short as possible, and longer on request.
"""

from collections.abc import Callable, Mapping, Sequence
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from ckaudit.cli.agents.folders import Folders
from ckaudit.contract.schema.diff import Axis, Comparison
from ckaudit.contract.schema.import_options import ImportOptions
from ckaudit.contract.schema.numbers import Step, doc
from ckaudit.contract.schema.report import PhaseNumber, Report
from ckaudit.effective_policy import import_options_under
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.policy.acceptance import AcceptanceCriteria

MAX_LISTED = 40

Run = Annotated[
    str,
    doc(
        "Name of a run in the list of the tool `runs`: a run folder, one of its checkpoints, or another "
        "program's log, e.g. runs/nano."
    ),
]
AtStep = Annotated[Step | None, doc("Judge with what was known at the end of this step; default: the end of the record.")]
Which = Annotated[str, doc("Name or number of the run, if one source holds several (--run of the command line).")]
Columns = Annotated[
    dict[str, str],
    doc(
        'For a log with unknown names: the catalogue name and the log\'s own name, e.g. {"loss": "train/nll"} '
        "(--map of the command line)."
    ),
]
Details = Annotated[bool, doc("Return the full output of the command line; several times as long.")]


class Runs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """List the runs and logs that can be audited, newest first, with the names that the other tools take. Call it first."""

    below: Annotated[str, doc("Only runs below this folder, named as in the list; empty: all.")] = ""


class Triage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say what is wrong with a training run, since which step and where, the likeliest causes, and what to change first.

    The first word: SEV0 stop, SEV1 contain, SEV2 investigate, NOTE nothing to act on, OK healthy, LIMITED nothing found but
    vital checks could not judge (not the same as healthy), NOT JUDGED nothing vital was recorded.
    """

    run: Run
    step: AtStep = None
    finding: Annotated[
        str,
        doc(
            "Show one finding or cause in detail, with all numbers and reasons: a code such as LOSS001, or a cause "
            "such as learning_rate_too_high."
        ),
    ] = ""
    details: Details = False
    which: Which = ""
    columns: Columns = {}


class Questions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answer the playbook's questions on a run by phase: machinery, learning, what it learnt, stability, generalization, ..."""

    run: Run
    phases: Annotated[list[PhaseNumber], doc("Phases from 1 to 7; empty: all.")] = []
    step: AtStep = None
    details: Details = False
    which: Which = ""
    columns: Columns = {}


class Metrics(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Give numbers of a run: with names their series by step, without names the last value of every metric there is."""

    run: Run
    names: Annotated[
        list[str], doc("Metrics, patterns such as grad_*, or rows such as M19; empty: the last value of each metric.")
    ] = []
    label: Annotated[
        str, doc("Only this tensor, block, head or slice, or a pattern such as blocks.0.*; empty: the worst ones.")
    ] = ""
    first: Annotated[Step | None, doc("First step to show.")] = None
    last: Annotated[Step | None, doc("Last step to show.")] = None
    points: Annotated[
        int,
        Meta(ge=2, le=200),
        doc("Maximum number of points of a label; a longer series is thinned evenly, and the answer says so."),
    ] = 20
    which: Which = ""
    columns: Columns = {}


class Diff(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Compare runs with a reference: same, within noise, better, worse, different or incomparable, and where they part."""

    runs: Annotated[
        list[str],
        Meta(min_length=2, max_length=20),
        doc("Two or more runs; the first is the reference; RUN@500 or RUN@last compares single checkpoints."),
    ]
    noise: Annotated[
        list[str], doc("Runs that differ from the reference only in their seed; the difference between them is the noise.")
    ] = []
    align: Annotated[Axis, doc("Compare at equal step, tokens or loss.")] = "step"
    step: AtStep = None
    details: Details = False


class Explain(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say what a name means: a rule or its code, a cause, a metric, a question, a violation; limits, shapes, what to do."""

    names: Annotated[
        list[str], doc("Names such as LOSS001, learning_rate_too_high, M19, D4.2; empty: list the kinds of names.")
    ] = []
    details: Details = False


class Coverage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say what a run did not record, which checks wait for it, and the lines of code that would record it."""

    run: Run
    scale: Annotated[Literal["", "nano", "medium", "large"], doc("Scale of the training; empty: determined from the run.")] = ""
    stage: Annotated[Literal["", "early", "steady", "late"], doc("Stage of the training; empty: determined from the run.")] = ""
    details: Details = False
    which: Which = ""
    columns: Columns = {}


# The answers.
class Auditor:
    """Answers the calls of an agent; it never writes."""

    def __init__(self, folders: Folders, read_acceptance: Callable[[], AcceptanceCriteria]) -> None:
        """Set the readable folders, and the function that opens the policy."""
        self.folders = folders
        self._read_acceptance = read_acceptance

    def runs(self, asked: Runs) -> str:
        """Return the runs below the folders, one line each."""
        from ckaudit.cli.agents.runs import list_runs, run_line
        from ckaudit.reports.escape import visible

        places = [self.folders.find(asked.below)] if asked.below else [root.path for root in self.folders.roots]
        listed, whole = list_runs(places)
        lines = [visible(run_line(run, self.folders.name_of(run.path))) for run in listed[:MAX_LISTED]]
        if len(listed) > MAX_LISTED:
            lines.append(f"and {len(listed) - MAX_LISTED:,} older ones: name a folder with below")
        if not whole:
            lines.append("not all folders were looked at, they hold too many files: name one with below")
        where = visible(asked.below) or self.folders.allowed
        return "\n".join(lines or [f"no run and no log below {where}"]) + "\n"

    def triage(self, asked: Triage) -> str:
        """Return the verdict on a run."""
        report = self._triaged(asked.run, asked.step, (), self._import_options(asked))
        if asked.finding:
            from ckaudit.reports.brief.details import details_of

            return details_of(report, asked.finding)
        more = "more: triage with finding=CODE or cause, or details=true; explain CODE; metrics; questions"
        return _report(report, more, whole=asked.details)

    def questions(self, asked: Questions) -> str:
        """Return the answers to the playbook's questions."""
        phases = tuple(sorted(set(asked.phases))) or tuple(range(1, 8))
        report = self._triaged(asked.run, asked.step, phases, self._import_options(asked))
        more = "more: questions with phases=[N] or details=true; explain D1.1 says what is asked"
        return _report(report, more, whole=asked.details)

    def metrics(self, asked: Metrics) -> str:
        """Return series, or the last values."""
        from ckaudit.audit.measure import StepRange, measure
        from ckaudit.reports.brief.series import overview, series

        if asked.first is not None and asked.last is not None and asked.first > asked.last:
            raise UsageError(f"first={asked.first} lies behind last={asked.last}", hint="swap them")
        stretch = StepRange(first=asked.first, last=asked.last)
        import_options = self._import_options(asked, with_slices=True)
        measurement = measure(self.folders.find(asked.run), names=asked.names, stretch=stretch, import_options=import_options)
        if not asked.names:
            return overview(measurement, more="more: metrics with names=[...]; explain NAME says what one means")
        more = "more: first, last, label and points choose what is shown"
        return series(measurement, points=asked.points, label=asked.label, more=more)

    def diff(self, asked: Diff) -> str:
        """Return how runs differ from the first."""
        from ckaudit.diff.compare import compare
        from ckaudit.diff.operands import are_checkpoints, named_twice, parse_operand
        from ckaudit.reports import render
        from ckaudit.reports.brief.comparison import brief
        from ckaudit.reports.view import View

        operands = [parse_operand(self._operand(word)) for word in asked.runs]
        if are_checkpoints(operands):
            if asked.noise or asked.step is not None or asked.align != "step":
                raise UsageError("noise, step and align have no meaning between checkpoints", hint="leave them away")
            comparison = _checkpoints([operand.path for operand in operands], asked.runs)
        else:
            noise = [self.folders.find(name) for name in asked.noise]
            import_options = import_options_under(self._read_acceptance().policy, columns={})
            paths = [operand.path for operand in operands]
            comparison = compare(paths, axis=asked.align, noise=noise, step=asked.step, import_options=import_options)
        comparison = replace(comparison, notes=[*named_twice(operands), *comparison.notes])
        if asked.details:
            return render(comparison, "terminal", View(pictures=False))
        return brief(comparison, more="more: diff with details=true; triage of each run")

    def explain(self, asked: Explain) -> str:
        """Return the meaning of names."""
        from ckaudit.explain import explain, groups, refuse_unknown
        from ckaudit.explain.names import is_known
        from ckaudit.reports import render
        from ckaudit.reports.brief.pages import brief

        if not asked.names:
            return render(groups(), "terminal" if asked.details else "brief", kind="Groups")
        refuse_unknown([name for name in asked.names if not is_known(name)])
        pages = explain(asked.names)
        if asked.details:
            return render(pages, "markdown", kind="Pages")
        return brief(pages, more="more: explain with details=true")

    def coverage(self, asked: Coverage) -> str:
        """Return what was not recorded, and how to record it."""
        from ckaudit.audit.coverage.recorded import coverage
        from ckaudit.reports import render
        from ckaudit.reports.brief.coverage import brief

        import_options = self._import_options(asked)
        path = self.folders.find(asked.run)
        document = coverage(path, scale=asked.scale or None, stage=asked.stage or None, import_options=import_options)
        if asked.details:
            return render(document, "terminal")
        return brief(document, more="more: coverage with details=true; explain NAME")

    def _triaged(self, run: str, step: int | None, questions: Sequence[int], import_options: ImportOptions) -> Report:
        from ckaudit.audit import triage

        return triage(
            self.folders.find(run),
            step=step,
            questions=questions,
            import_options=import_options,
            criteria=self._read_acceptance(),
        )

    def _operand(self, word: str) -> str:
        """Return a run or RUN@STEP with its path resolved; an existing path that contains an @ takes precedence."""
        run, at, step = word.rpartition("@")
        try:
            return str(self.folders.find(word))
        except UnreadableError:
            if not at:
                raise
        return f"{self.folders.find(run)}@{step}"

    def _import_options(self, asked: Triage | Questions | Metrics | Coverage, *, with_slices: bool = False) -> ImportOptions:
        """Return the import options of a run: those of the agent, else those of the policy."""
        policy = self._read_acceptance().policy
        slices = policy.base.tau_slices if policy and with_slices else None
        return import_options_under(policy, columns=asked.columns, run=asked.which, tau_slices=slices)


def _report(report: Report, more: str, *, whole: bool) -> str:
    """Return a report in short form, or as the command line prints it."""
    from ckaudit.reports import render
    from ckaudit.reports.brief.report import brief
    from ckaudit.reports.view import View

    return render(report, "terminal", View(pictures=False)) if whole else brief(report, more=more)


def _checkpoints(paths: Sequence[Path], names: Sequence[str]) -> Comparison:
    """Compare single checkpoints with the first."""
    from ckaudit.diff.checkpoint_diff import compare_documents
    from ckaudit.diff.combine import combine_pairs

    return combine_pairs(names, [compare_documents(paths[0], path) for path in paths[1:]], files=len(paths))


# The tools by their names for agents.
class Tool(NamedTuple):
    """One tool.

    Attributes:
        name: Name of the tool.
        arguments: The type of its arguments; its docstring describes the tool.
        answer: Returns the answer.
    """

    name: str
    arguments: type[Struct]
    answer: Callable[[Any], str]

    @property
    def description(self) -> str:
        """The description of the tool, from the docstring of its arguments."""
        return cleandoc(self.arguments.__doc__ or "")

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments; optional ones are not marked as nullable, which would cost words."""
        schema: dict[str, Any] = msgspec.json.schema(self.arguments)["$defs"][self.arguments.__name__]
        properties = {name: _plain(field) for name, field in schema["properties"].items()}
        return {"type": "object", "properties": properties, "required": schema["required"], "additionalProperties": False}

    def call(self, arguments: Mapping[str, Any]) -> str:
        """Return the answer to a call.

        Raises:
            UsageError: If an argument is missing, unknown or of another type.
            CkauditError: As in the command of that name.
        """
        try:
            given = {name: value for name, value in arguments.items() if value is not None}
            asked = msgspec.convert(given, self.arguments, strict=False)
        except msgspec.ValidationError as error:
            hint = f"{self.name} takes {', '.join(self.arguments.__struct_fields__)}"
            raise UsageError(f"the arguments of {self.name}: {error}", hint=hint) from None
        return self.answer(asked)


def _plain(field: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of one argument without null, and without the largest number that a file can contain."""
    kind, *_ = field.get("anyOf", [{}])
    whole = {**{key: value for key, value in field.items() if key != "anyOf"}, **kind}
    return {key: value for key, value in whole.items() if value is not None and (key, value) != ("maximum", 2**63 - 1)}


def tools(auditor: Auditor) -> dict[str, Tool]:
    """Return every tool of an auditor by its name."""
    answers: dict[type[Struct], Callable[[Any], str]] = {
        Runs: auditor.runs,
        Triage: auditor.triage,
        Questions: auditor.questions,
        Metrics: auditor.metrics,
        Diff: auditor.diff,
        Explain: auditor.explain,
        Coverage: auditor.coverage,
    }
    named = {kind.__name__.lower(): (kind, answer) for kind, answer in answers.items()}
    return {name: Tool(name, kind, answer) for name, (kind, answer) in named.items()}
