"""What requests about share groups have in common, beside the rest of `broker.requests`."""
