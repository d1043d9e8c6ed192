"""Recipes as data: written by hand, or generated from locked wheels."""
