-- Where restores put the records: source offsets to target offsets.
SELECT t.*, timestamp_micros(t.at) AS time FROM raw_translations AS t
