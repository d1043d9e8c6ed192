"""The commands of WML CE: `*-install-samples`, `*-test`, and those that something else replaces."""
