"""The suite runs inside the test container only (`make compose-test`)."""

collect_ignore = ["suite"]
