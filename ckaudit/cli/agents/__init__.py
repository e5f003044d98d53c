"""The parts of `ckaudit mcp`: the readable folders, the tools, and the protocol."""
