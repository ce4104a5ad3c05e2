"""What a run leaves on disk: its folder, its ledger, its episodes."""
