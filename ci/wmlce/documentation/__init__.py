"""The site of the documentation: docs/ and the API reference as HTML that needs no server and no network."""
