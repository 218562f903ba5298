"""Data files: Avro blocks, codecs, key filters, and the records in them."""
