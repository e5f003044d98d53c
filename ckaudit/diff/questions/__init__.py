"""The questions put to two runs, one in each file."""

from ckaudit.diff.questions.question import PairAnswer, Question, question, questions

__all__ = ["PairAnswer", "Question", "question", "questions"]
