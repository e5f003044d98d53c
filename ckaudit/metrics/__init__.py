"""The catalogue of metrics, which turn the records of a run into series with a name, a unit and a source."""

from ckaudit.metrics.metric import Metric, metric, metrics

__all__ = ["Metric", "metric", "metrics"]
