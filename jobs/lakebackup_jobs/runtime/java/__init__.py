"""Java: its folder, its libraries, the JVM that runs Spark, and archives that speed up its start."""
