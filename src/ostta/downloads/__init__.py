"""Download data sets from where they are published. Only the commands import this package."""
