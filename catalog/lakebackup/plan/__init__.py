"""Plans: values computed from the catalog and the source. Computing one writes nothing."""
