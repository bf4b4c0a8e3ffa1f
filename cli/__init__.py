"""The command line of Tidelog: one console script over broker, client and storage.

Start with `main`; each command is a module of the same name, imported when it is used.
"""
