"""Shared types, mathematics, checks and text helpers. Depends only on torch and numpy."""
