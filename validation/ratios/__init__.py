"""What `ci/bench` measures: the all-reduce of DDL and its peers, with targets, records and a page."""
