"""What `ckaudit mcp` serves: the folders that may be read, the tools, and the protocol."""
