"""The words that every vocabulary has."""

#: The padding is 0, which the network's masks look for.
PAD, UNKNOWN, BEGIN, END = range(4)
