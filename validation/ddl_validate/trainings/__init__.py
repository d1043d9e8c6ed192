"""Trainings measured side by side: works, methods and places, in rounds."""
