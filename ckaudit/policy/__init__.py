"""Team decisions: which rules judge and how strictly, what is ignored and until when, and what was accepted once."""
