"""One segment: a `.log` file, the indexes derived from it, and the facts about closed segments.

Owns the formats of `.log` positions, `.index`, `.timeindex`, `.txnindex`, of auxiliary indexes and
the segment manifest, and the order in which a rewritten segment replaces others. Refuses to know
how a log uses its segments. Imported by the packages that handle whole logs, above all `log` and
`recovery`, and by what shows segments to operators.
"""

from protocol.extensions import all_or_none

all_or_none()
