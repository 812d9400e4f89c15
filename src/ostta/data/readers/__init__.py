"""Readers of data set files. Each returns `Images`: labels, and a function that decodes one image."""
