"""A page as its reader meets it: the text of each tab, with how many words stand before the first picture."""

from html.parser import HTMLParser

PICTURES = ("svg", "figure")


class Tabs(HTMLParser):
    """All text of each tab, and the words before its first picture; scripts and styles are no text."""

    def __init__(self, page):
        super().__init__()
        self.text, self.before, self._tab, self._silent = {}, {}, "header", 0
        self.feed(page)
        self.close()
        self.text = {name: " ".join(" ".join(parts).split()) for name, parts in self.text.items()}

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        if named.get("role") == "tabpanel":
            self._tab = named["id"]
        if tag in PICTURES and self._tab not in self.before:
            self.before[self._tab] = len(" ".join(self.text.get(self._tab, [])).split())
        self._silent += tag in ("script", "style")

    def handle_endtag(self, tag):
        self._silent -= tag in ("script", "style")

    def handle_data(self, data):
        if not self._silent:
            self.text.setdefault(self._tab, []).append(data)
