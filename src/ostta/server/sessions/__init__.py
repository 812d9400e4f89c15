"""Sessions and where they are stored."""
