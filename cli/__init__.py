"""The command line of Tidelog: one console script over broker, client and storage.

Start with `main`, whose table names the module of each command; it is imported when it is used. The
commands lie in sub-packages by what they ask: `server`, `topics`, `records`, `security`, `time`,
`directory`, `remote`; `shell` describes them to shells. The other modules here are what all
commands share: options, output, exit codes.
"""
