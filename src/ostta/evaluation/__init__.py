"""Run a stream, and measure what came of it: records, metrics, confidence intervals, analyses."""
