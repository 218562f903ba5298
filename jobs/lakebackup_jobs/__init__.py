"""Spark jobs, the local broker and the command line. This package imports `lakebackup`, never the reverse."""

from lakebackup import lazy

lazy.install()
