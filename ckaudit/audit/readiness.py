"""One sentence on whether to go on to fine-tuning: what speaks for it, what against it, and what nobody recorded."""

from collections.abc import Sequence

from ckaudit.contract.interview import Answer
from ckaudit.contract.report import Finding

BEFORE = ("D6.1", "D6.2", "D6.5")
"""Questions that decide on the start of fine-tuning; D6.3 and D6.4 are about what comes after it."""

ABOUT = {
    "D6.1": ("pretraining is at its plateau", "pretraining is not at its plateau", "whether pretraining is done"),
    "D6.2": ("the language is fluent", "the language or what it follows is not as it should be", "how fluent it is"),
    "D6.5": ("half prompts are continued", "half prompts are continued poorly", "how half prompts are continued"),
}
"""What speaks for it, what against it, and what is not known."""


def readiness(answers: Sequence[Answer], findings: Sequence[Finding]) -> str:
    """Return the verdict of the answers of phase 6, with findings that stop or contain a run against it.

    Args:
        answers: Those of phase 6.
        findings: All findings, gravest first.
    """
    asked = {each.id: each for each in answers if each.id in BEFORE}
    grave = list(dict.fromkeys(each.code for each in findings if each.severity in ("sev0", "sev1")))
    for_it = [_about(each, 0) for each in asked.values() if each.word == "good"]
    against = [_about(each, 1) for each in asked.values() if each.word in ("watch", "bad")]
    against += [f"findings that stop or contain a run ({', '.join(grave)})"] if grave else []
    unknown = [_about(each, 2) for each in asked.values() if each.word in ("not_recorded", "not_applicable")]
    if grave or any(each.word == "bad" for each in asked.values()):
        head = "Not ready for fine-tuning"
    elif asked["D6.1"].word == "watch":
        head = "Not yet ready for fine-tuning: go on with pretraining"
    elif unknown:
        head = "Whether it is ready for fine-tuning cannot be said"
    else:
        head = "Ready for fine-tuning, with reservations" if against else "Ready for fine-tuning"
    sides = [("for it", for_it), ("against it", against), ("not recorded", unknown)]
    told = "; ".join(f"{side}: {', '.join(names) or 'nothing'}" for side, names in sides)
    return f"{head}. {told[0].upper()}{told[1:]}."


def _about(answer: Answer, side: int) -> str:
    return f"{ABOUT[answer.id][side]} ({answer.id})"
