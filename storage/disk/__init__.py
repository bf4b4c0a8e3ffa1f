"""The ground floor of storage: the operating system's files and what is kept in small ones.

Owns the seam through which storage reaches the disk, the names of files and directories, text files
that are replaced whole, and the steps in which long work is cut. Refuses to know records, segments
and logs. Everything in `storage` may import it.
"""
