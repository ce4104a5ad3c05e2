"""vLLM as an engine (`ssp.engines.base`): whole models, or adapters of several roles on one base; on a CPU, and on GPUs.

Owns everything that knows vLLM. Promises that importing this package imports neither torch nor vLLM.
"""
