"""Commands about who speaks, one file per command."""
