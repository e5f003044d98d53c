"""What an audit finds in one run and not in the other."""

from ckaudit.contract.schema.diff import Word
from ckaudit.diff.questions import PairAnswer, question
from ckaudit.diff.run_pair import RunPair, differ_in_type, gained_and_lost, is_decisive
from ckaudit.wording import plural


@question(place=12, weighs="health")
def health(both: RunPair) -> PairAnswer:
    """What is wrong with it that was not wrong before?

    Illnesses that only one run has, or has graver; notes do not count, nor does what a replica has. Gained ones count before
    lost ones of as grave a kind. One that is only to be investigated (sev2) alone makes no pair better or worse: two seeds of
    a public training differ by one. Nor does one on the clock, which goes with the machine, nor
    one that another number format of the weights makes by itself.
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
