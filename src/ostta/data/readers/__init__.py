"""Readers of data set files. Each reader returns `LabelledImages`: labels and a function that decodes one image."""
