"""How many documents hold personal data (M51, the part that patterns can find)."""

from collections import Counter

from ckaudit.data.document import Document
from ckaudit.data.gauge import NO_TEXT, Values, not_recorded, rate
from ckaudit.data.pii import KINDS, addresses
from ckaudit.material.counts import plural


class Personal:
    """Share of the documents with at least one hit, in all and of each kind; what was found is never shown."""

    def __init__(self) -> None:
        self._documents = self._hit = self._nobodys = 0
        self._kinds: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def see(self, document: Document) -> None:
        """Look through one text."""
        if document.text is None:
            return
        self._documents += 1
        found = list(addresses(document.text))
        kinds = {kind for (kind, _, _), is_somebodys in found if is_somebodys}
        self._hit += bool(kinds)
        self._nobodys += len(kinds) == 0 and len(found) > 0
        self._kinds.update(kinds)
        for kind in kinds:
            self._first.setdefault(kind, document.place)

    def measures(self) -> Values:
        """Yield the rate of all kinds together, and of each."""
        if not self._documents:
            yield not_recorded("pii_hit_rate", "M51", NO_TEXT)
            return
        yield rate("pii_hit_rate", "M51", self._hit, self._documents, self._remark())
        for kind in KINDS:
            first = f"first in {self._first[kind]}" if kind in self._first else None
            yield rate(f"pii_hit_rate/{kind}", "M51", self._kinds[kind], self._documents, first)

    def _remark(self) -> str:
        remark = "patterns only: names and postal addresses are not looked for"
        if not self._nobodys:
            return remark
        others = plural(self._nobodys, "more document")
        return f"{remark}; {others} with nothing but reserved addresses (example.com, no-reply, private networks): not counted"
