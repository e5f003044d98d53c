"""Renders a comparison; formats that show findings are given a report."""
