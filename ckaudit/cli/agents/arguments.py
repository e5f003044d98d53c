"""What an agent can ask: a type for each tool, whose text and fields tell the agent what it does and takes."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ckaudit.contract.schema.diff import Axis
from ckaudit.contract.schema.numbers import Step, doc
from ckaudit.contract.schema.report import PhaseNumber

Run = Annotated[
    str, doc("A run as the tool `runs` names it: a run folder, one of its checkpoints, or another program's log, e.g. runs/nano.")
]
AtStep = Annotated[Step | None, doc("Judge with what was known when this step had ended; without it, at the end of the record.")]
Which = Annotated[str, doc("Where one source holds several runs, this one: its name or its number (--run of the command line).")]
Columns = Annotated[
    dict[str, str],
    doc(
        'Of a log with unknown names: catalogue name and the log\'s own, e.g. {"loss": "train/nll"} (--map of the command line).'
    ),
]
Details = Annotated[bool, doc("Tell everything as the command line prints it: several times as long.")]


class Runs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """List the runs and logs that can be audited, newest first, with the names that the other tools take. Call it first."""

    below: Annotated[str, doc("Only below this folder, named as in the list; empty: all.")] = ""


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
            "Look closer at one: a code such as LOSS001, or a cause such as learning_rate_too_high; with all numbers and reasons."
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
    first: Annotated[Step | None, doc("First step that is shown.")] = None
    last: Annotated[Step | None, doc("Last step that is shown.")] = None
    points: Annotated[
        int, Meta(ge=2, le=200), doc("At most so many points of a label; more are thinned evenly, and the answer says so.")
    ] = 20
    which: Which = ""
    columns: Columns = {}


class Diff(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Compare runs with a reference: same, within noise, better, worse, different or incomparable, and where they part."""

    runs: Annotated[
        list[str],
        Meta(min_length=2, max_length=20),
        doc("Two or more runs, the first is the reference; RUN@500 or RUN@last compares single checkpoints."),
    ]
    noise: Annotated[
        list[str], doc("Runs that differ from the reference by their seed alone: what they differ by is noise.")
    ] = []
    align: Annotated[Axis, doc("Compare at equal step, tokens or loss.")] = "step"
    step: AtStep = None
    details: Details = False


class Explain(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say what a name means: a rule or its code, a cause, a metric, a question, a violation; limits, shapes, what to do."""

    names: Annotated[
        list[str], doc("Names such as LOSS001, learning_rate_too_high, M19, D4.2; empty: which kinds of names there are.")
    ] = []
    details: Details = False


class Coverage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say what a run did not record, which checks wait for it, and the lines of code that would record it."""

    run: Run
    scale: Annotated[Literal["", "nano", "medium", "large"], doc("How large the training is; empty: found out.")] = ""
    stage: Annotated[Literal["", "early", "steady", "late"], doc("How far the training is; empty: found out.")] = ""
    details: Details = False
    which: Which = ""
    columns: Columns = {}
