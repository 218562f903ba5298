"""Spark jobs, the local broker and the command line. Imports the library, never the other way round."""
