"""How a role learns: episodes become a batch (`batch`), a batch becomes an update (`learner`), a
learner becomes a folder and back (`store`). Importing this package is cheap: torch and transformers
come with the modules."""
