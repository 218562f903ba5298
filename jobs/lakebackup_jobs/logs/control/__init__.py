"""Log tasks: start, pause, stop and watch them, on the command line and over HTTP."""
