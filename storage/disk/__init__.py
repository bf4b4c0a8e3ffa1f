"""The lowest layer of storage: the operating system's files and the small text files.

Owns the seam through which storage reaches the disk, the names of files and directories, text files
that are replaced whole, and the steps into which long work is cut. Of records it
knows the largest offset (`protocol.records.layout`); it refuses to know segments and logs. Every
module in `storage` may import it.
"""

from protocol.extensions import all_or_none

all_or_none()
