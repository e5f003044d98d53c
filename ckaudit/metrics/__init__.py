"""The catalogue of metrics: from what a run recorded to series with a name, a unit and a source."""

from ckaudit.metrics.metric import Metric, metric, metrics

__all__ = ["Metric", "metric", "metrics"]
