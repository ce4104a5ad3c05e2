"""vLLM as an engine: whole models, or adapters of several roles on one base. Imports neither torch
nor vLLM."""
