"""The checks of `wmlce validate`: one file a check, each a function of the bench that gives a CheckResult."""
