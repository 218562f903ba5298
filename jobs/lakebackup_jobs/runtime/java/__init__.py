"""Java: where it is, its libraries, the JVM that runs Spark, and the archives from which that starts."""
