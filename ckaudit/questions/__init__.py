"""The playbook as an interview: one file per phase, one pure function per question."""

from ckaudit.questions.question import FINDINGS, Question, SeriesAnswer, question, questions

__all__ = ["FINDINGS", "Question", "SeriesAnswer", "question", "questions"]
