"""One sentence on whether to go on to fine-tuning: what speaks for it, what against it, and what nobody recorded."""

from collections.abc import Sequence

from ckaudit.contract.interview import Answer
from ckaudit.contract.report import Finding

BEFORE = ("D6.1", "D6.2", "D6.5")
"""Questions that decide on the start of fine-tuning; D6.3 and D6.4 are about what comes after it."""

ABOUT = {"D6.1": "pretraining being done", "D6.2": "the language", "D6.5": "what pretraining has learnt"}


def readiness(answers: Sequence[Answer], findings: Sequence[Finding]) -> str:
    """Return the verdict of the answers of phase 6, with findings that stop or contain a run against it.

    Args:
        answers: Those of phase 6.
        findings: All findings, gravest first.
    """
    asked = {each.id: each for each in answers if each.id in BEFORE}
    named = {word: [_about(each) for each in asked.values() if each.word == word] for word in ("good", "watch", "bad")}
    grave = list(dict.fromkeys(each.code for each in findings if each.severity in ("sev0", "sev1")))
    against = named["bad"] + named["watch"] + ([f"open findings ({', '.join(grave)})"] if grave else [])
    unknown = [_about(each) for each in asked.values() if each.word in ("not_recorded", "not_applicable")]
    if named["bad"] or grave:
        head = "Not ready for fine-tuning"
    elif asked["D6.1"].word == "watch":
        head = "Not yet ready for fine-tuning: go on with pretraining"
    elif unknown:
        head = "Whether it is ready for fine-tuning cannot be said"
    else:
        head = "Ready for fine-tuning, with reservations" if against else "Ready for fine-tuning"
    sides = [("for it", named["good"]), ("against it", against), ("not recorded", unknown)]
    told = "; ".join(f"{side}: {', '.join(names) or 'nothing'}" for side, names in sides)
    return f"{head}. {told[0].upper()}{told[1:]}."


def _about(answer: Answer) -> str:
    return f"{ABOUT[answer.id]} ({answer.id})"
