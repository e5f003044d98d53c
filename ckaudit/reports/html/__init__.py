"""One HTML file that needs nothing else: verdict, pictures by question, and what could not be judged."""

from ckaudit.reports.html.fit import fitted
from ckaudit.reports.html.page import SIGNATURE, render

__all__ = ["SIGNATURE", "fitted", "render"]
