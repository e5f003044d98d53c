"""A page as its reader meets it: the text of each tab, and how many words are seen before the first picture."""

from html.parser import HTMLParser

PICTURES = ("svg", "figure")


class Tabs(HTMLParser):
    """All text of each tab, and the words seen before its first picture, or at all where it has none.

    Scripts and styles are no text; what is folded away is not seen, its summary is.
    """

    def __init__(self, page):
        super().__init__()
        self.text, self.before, self._tab, self._silent, self._folds, self._summary, self._pictured = (
            {},
            {},
            "header",
            0,
            [],
            0,
            set(),
        )
        self.feed(page)
        self.close()
        self.text = {name: " ".join(" ".join(parts).split()) for name, parts in self.text.items()}

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        if named.get("role") == "tabpanel":
            self._tab = named["id"]
        if tag in PICTURES:
            self._pictured.add(self._tab)
        if tag == "details":
            self._folds.append("open" in named)
        self._summary += tag == "summary"
        self._silent += tag in ("script", "style")

    def handle_endtag(self, tag):
        if tag == "details":
            self._folds.pop()
        self._summary -= tag == "summary"
        self._silent -= tag in ("script", "style")

    def handle_data(self, data):
        if self._silent:
            return
        self.text.setdefault(self._tab, []).append(data)
        if self._tab not in self._pictured and (self._summary or all(self._folds)):
            self.before[self._tab] = self.before.get(self._tab, 0) + len(data.split())
