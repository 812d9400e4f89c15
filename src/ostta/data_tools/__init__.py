"""Download and check data sets. Only the commands `ostta data` import this package."""
