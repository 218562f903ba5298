"""Where jobs run: the Spark session, Java and its libraries, child processes, accounts."""
