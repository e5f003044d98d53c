"""Causes in the training code: a missing call, a wrong target, a cut graph."""
