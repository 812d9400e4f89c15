"""Run an adapter on a stream and evaluate it: records, metrics, measures, confidence intervals, analyses."""
