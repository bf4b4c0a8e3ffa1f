"""What shells and readers get from the commands' own descriptions: completion, a manual page.

Refuses to know what a command does: it imports no client, broker or storage, so a completion is
quick. May be imported by `cli.main` only.
"""

COMPLETION_VARIABLE = "_TIDELOG_COMPLETE"
"""A shell that completes a line runs the command with this variable (click's protocol)."""
