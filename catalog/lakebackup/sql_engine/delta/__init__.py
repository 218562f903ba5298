"""The catalog's Delta tables without a JVM: create them, read them, also at an instant in the past, append to
them."""
