"""Makes a small parallel corpus out of the translations that free programs bring: gettext catalogues.

Needs polib and sentencepiece, not TensorFlow.
"""
