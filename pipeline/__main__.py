"""``python -m pipeline JOB``; the same as ``tidelog spark JOB``."""

import sys

from pipeline.launch import main

if __name__ == "__main__":
    sys.exit(main())
