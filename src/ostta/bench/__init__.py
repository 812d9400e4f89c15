"""Runs, result files, tables and reports."""
