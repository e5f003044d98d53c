"""What all answers come to: one word for a pair, and one sentence."""

from collections.abc import Sequence

from msgspec import Struct

from ckaudit.contract.diff import Answer, Departure, Unlike, Word
from ckaudit.diff.divergence import Parting
from ckaudit.diff.questions.question import Weighs


class Weighed(Struct, frozen=True):
    """An answer with what it is about, and whether it counts."""

    answer: Answer
    weighs: Weighs
    counts: bool = True


def settle(weighed: Sequence[Weighed], parting: Parting) -> Word:
    """Return the word that a pair comes to.

    Incomparable where no question on the loss can be answered because something is not alike; worse where any answer that
    counts is; better where one is and none worse; same where everything agrees in every bit; different where the runs
    part and no question tells better from worse.
    """
    losses = {each.answer.word for each in weighed if each.weighs == "loss"}
    if "incomparable" in losses and losses <= {"incomparable", "not_recorded"}:
        return "incomparable"
    words = {each.answer.word for each in weighed if each.counts}
    for word in ("worse", "better"):
        if word in words:
            return word
    if parting.is_same:
        return "same"
    if parting.departures:
        return "different"
    return "not_recorded" if losses <= {"not_recorded"} else "within_noise"


def verdict(word: Word, weighed: Sequence[Weighed], departures: Sequence[Departure], unlike: Sequence[Unlike]) -> str:
    """Say in one sentence what a pair comes to."""
    parted = f"; they part at step {departures[0].step}, in {_place(departures[0])}" if departures else ""
    if word in ("worse", "better"):
        reasons = [each.answer for each in weighed if each.counts and each.answer.word == word]
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        return f"{word.capitalize()}: {reasons[0].message}{more}{parted}"
    if word == "incomparable":
        return f"Not comparable: {next((each.message for each in unlike if each.invalidates), 'the runs are not alike')}"
    if word == "different":
        told = _told(weighed)
        return f"Different: {told}{parted}" if told else f"Different, and no question tells better from worse{parted}"
    if word == "same":
        return "The same in every bit that both recorded"
    if word == "not_recorded":
        return "Nothing to compare: no loss that both recorded"
    told = _told(weighed)
    return (
        f"Within noise: nothing {f'that decides differs by more than chance; {told}' if told else 'differs by more than chance'}"
    )


def _told(weighed: Sequence[Weighed]) -> str:
    """Return what is worse or better and decides nothing; cost, which always wobbles, left out."""
    aside = [each for each in weighed if not each.counts and each.weighs != "cost"]
    return next((each.answer.message for each in aside if each.answer.word in ("worse", "better")), "")


def _place(departure: Departure) -> str:
    return f"{departure.statistic} of {departure.where}" if departure.where else departure.statistic
