"""The figures of a suite, from result files, as tables."""
