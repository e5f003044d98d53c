"""What a team has decided: which rules judge and how strictly, what is ignored and until when, what was accepted once."""
