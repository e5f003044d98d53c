"""One HTML file that needs nothing else: verdict, pictures by question, and what could not be judged."""

from ckaudit.reports.html.page import SIGNATURE, render
from ckaudit.reports.html.size_limit import fitted

__all__ = ["SIGNATURE", "fitted", "render"]
