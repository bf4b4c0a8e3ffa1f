"""What shells and readers get from the commands' own descriptions: completion, a manual page."""

COMPLETION_VARIABLE = "_TIDELOG_COMPLETE"
"""A shell that completes a line runs the command with this variable (click's protocol)."""
