"""An engine's queues: the headers of their messages, and the files beside its snapshot."""
