"""The ranks' flight records: fetched from the hosts after a failure, read, and made one page of."""
