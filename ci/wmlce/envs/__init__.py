"""Environments: installed, cloned, extended, and as modules of a software tree."""
