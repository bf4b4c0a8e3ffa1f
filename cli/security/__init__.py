"""Commands about who may do what: users, tokens, rights, and limits on what clients use.

They ask a broker, or change the users of a stopped directory. May be imported by `cli.main`;
users of a stopped directory, by `cli.server`.
"""
