"""Reading a data directory at rest: is everything in it true, and does it agree?

Owns `tidelog fsck` and the operator's decision to give up what is damaged. Parses formats a second
time on purpose where an audit must not share the mistakes of what it audits. Imported by the CLI.
"""
