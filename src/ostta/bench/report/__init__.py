"""Pictures and self-contained HTML pages."""
