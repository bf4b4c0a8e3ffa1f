"""Commands about a broker's process: run it, check its settings, its machine and its certificates.

``serve --secure`` sets up certificates and users before it starts. Imports `cli.security` for users
of a stopped directory; may be imported by `cli.main` only.
"""
