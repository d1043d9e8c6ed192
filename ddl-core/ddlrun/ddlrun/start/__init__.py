"""What starts the ranks: the launcher's line and the ranks' environment."""
