"""Other people's text, made safe for a line of a terminal, a table or a picture."""


def plain(text: object, longest: int = 200) -> str:
    """The text without control characters, each replaced by a question mark, and no longer than said."""
    return "".join(c if c.isprintable() else "?" for c in str(text))[:longest]
