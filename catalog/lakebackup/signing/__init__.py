"""Signs what lakebackup attests, and verifies it with public keys alone: no repository, engine or network."""
