"""The catalog's Delta tables without a JVM: created, read as written, looked back at, appended to."""
