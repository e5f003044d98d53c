"""Reasons for which losses or other numbers of a run mean nothing: the causes and rules that prove them, and what they void."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from ckaudit.causes.cause import places_of
from ckaudit.contract.schema.report import Diagnosis, Finding

TRAINING = ("train_loss_raw", "train_loss_ema")
HELD_OUT = ("val_loss", "slice_val_loss", "microbench_score")
PROBES = ("probes.*.loss", "probes.*.perplexity", "probe_perplexity", "fixed_probe_loss")


class VoidReason(Struct, frozen=True, kw_only=True):
    """One reason for which numbers mean nothing.

    Attributes:
        because: The reason, to be read after "while".
        what: What means nothing, in words.
        names: Scalars and checkpoint paths that mean nothing; empty: those that the findings name.
        cause: Name of the cause behind it; empty: only the rules prove it.
        rules: Names of the rules whose findings prove it, diagnosed or not.
    """

    because: str
    what: str = "the losses"
    names: tuple[str, ...] = ()
    cause: str = ""
    rules: tuple[str, ...] = ()


VOID_REASONS: tuple[VoidReason, ...] = (
    VoidReason(
        because="attention sees the tokens that it is to predict",
        names=TRAINING + HELD_OUT + PROBES,
        cause="causal_mask_leaks",
        rules=("mask_leak",),
    ),
    VoidReason(
        because="targets do not belong to the inputs beside them",
        names=TRAINING + HELD_OUT,
        cause="targets_misaligned",
        rules=("target_misalignment",),
    ),
    VoidReason(
        because="the target of a token is the token itself",
        names=TRAINING + HELD_OUT,
        cause="targets_not_shifted",
        rules=("target_equals_input",),
    ),
    VoidReason(because="they are lower than an honest model can be", names=TRAINING + HELD_OUT, rules=("loss_below_floor",)),
    VoidReason(because="the sign of the loss is flipped", names=TRAINING + HELD_OUT, cause="loss_sign_flipped"),
    VoidReason(because="softmax is applied twice", names=TRAINING + HELD_OUT, cause="softmax_applied_twice"),
    VoidReason(
        because="the log hides what was not a number", names=TRAINING, cause="nan_hidden_by_logger", rules=("hidden_nonfinite",)
    ),
    VoidReason(
        because="what is held out is trained on",
        what="the held-out losses",
        names=HELD_OUT,
        cause="validation_leaks_into_training",
        rules=("split_overlap",),
    ),
    VoidReason(
        because="evaluations run in training mode",
        what="the held-out losses",
        names=HELD_OUT,
        cause="evaluation_in_training_mode",
        rules=("evaluated_in_training_mode",),
    ),
    VoidReason(
        because="the evaluation is not the one that earlier values came from",
        what="held-out losses and scores",
        names=HELD_OUT,
        cause="evaluation_changed",
        rules=("evaluation_artifact_changed",),
    ),
    VoidReason(
        because="a logged number is not what its formula gives",
        what="comparisons with it",
        cause="metric_computed_wrongly",
        rules=("contradicted_claim", "impossible_value"),
    ),
)
"""An answer that rests on such a number is not good, whatever the number says (the first reason that holds is told)."""


class VoidedNumbers(Struct, frozen=True):
    """One reason that holds for a run: in words, the names that mean nothing, and the findings that say so."""

    reason: str
    names: frozenset[str]
    findings: tuple[Finding, ...]


def likely_diagnoses(diagnoses: Iterable[Diagnosis], *, sure: float = 0.5) -> list[Diagnosis]:
    """Return the diagnoses that are more than a guess: `sure` is where the verdict begins to name them."""
    return [diagnosis for diagnosis in diagnoses if diagnosis.confidence >= sure]


def voided_numbers(findings: Sequence[Finding], diagnoses: Iterable[Diagnosis]) -> Iterator[VoidedNumbers]:
    """Yield the reasons that hold for a run.

    Args:
        findings: All findings, gravest first; notes prove nothing.
        diagnoses: What explains them; a guess voids nothing.
    """
    serious = [finding for finding in findings if finding.severity != "note"]
    stands = {diagnosis.cause: diagnosis for diagnosis in likely_diagnoses(diagnoses)}
    for void in VOID_REASONS:
        diagnosis = stands.get(void.cause)
        explained = set(diagnosis.explains) if diagnosis else set()
        proofs = [finding for finding in serious if finding.name in void.rules]
        proofs = proofs or [finding for finding in serious if finding.code in explained]
        if not proofs:
            continue
        named = void.names or tuple(place.partition("/")[0] for place in places_of(proofs))
        yield VoidedNumbers(f"{void.what} mean nothing while {void.because}", frozenset(named), tuple(proofs))
