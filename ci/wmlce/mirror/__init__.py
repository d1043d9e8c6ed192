"""Mirrors: copies of a channel in another folder."""
