"""Programs that ddlrun starts on the hosts: they measure, or compute sums, and print one line of JSON."""
