"""The tools with which agents (language models) ask the catalog, and the server that offers them."""
