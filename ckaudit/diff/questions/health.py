"""Findings of an audit in one run and not in the other."""

from ckaudit.contract.schema.diff import Word
from ckaudit.diff.questions import PairAnswer, question
from ckaudit.diff.run_pair import RunPair, differ_in_type, gained_and_lost, is_decisive
from ckaudit.wording import plural


@question(place=12, weighs="health")
def health(both: RunPair) -> PairAnswer:
    """What is wrong with it that was not wrong before?

    The answer counts illnesses that only one run has, or has with a higher severity; notes do not count, nor do illnesses that a
    replica has. A gained illness counts before a lost one of the same severity. An illness of sev2 alone makes no pair better or
    worse: two seeds of a public training differ by one. Nor does an illness on time, which depends on the machine, or one that
    another dtype of the weights causes by itself.
    """
    gained, lost = gained_and_lost(both)
    limited = [word for word, side in (("first", both.left), ("second", both.right)) if side.limits]
    far = f", as far as could be judged: not every vital check could, of the {' and the '.join(limited)}" if limited else ""
    if not gained and not lost:
        return PairAnswer(word="same", sentence=f"the same illnesses in both{far}", left=0, right=0, band=0.0, unit="findings")
    is_coarser = differ_in_type(both.left.run, both.right.run)
    severe = [any(is_decisive(finding, is_coarser=is_coarser) for finding in findings) for findings in (gained, lost)]
    word: Word = "worse" if severe[0] or (gained and not severe[1]) else "better"
    parts = [
        f"{plural(len(findings), 'finding')} {verb}: {', '.join(dict.fromkeys(finding.name for finding in findings))}"
        for findings, verb in ((gained, "gained"), (lost, "lost"))
        if findings
    ]
    return PairAnswer(
        word=word,
        sentence="; ".join(parts) + far,
        left=len(lost),
        right=len(gained),
        band=0.0,
        unit="findings",
        grave=any(severe),
    )
