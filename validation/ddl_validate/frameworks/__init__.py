"""Trains the example of each framework through DDL, and says so in one line each."""
