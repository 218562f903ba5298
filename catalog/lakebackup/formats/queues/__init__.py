"""An engine's queues: what their messages say, and the files beside its snapshot."""
