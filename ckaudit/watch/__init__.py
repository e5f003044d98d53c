"""A run followed while it trains: new steps, new findings, silence."""
