"""One module per log format of other programs; code that several of them share lies in the sibling folders."""
