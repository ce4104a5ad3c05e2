"""The GPUs of this machine, where NVIDIA's library and its Python part (pynvml) are there; nothing
otherwise. Other processes on them count too."""

import importlib
import threading
from collections import deque
from contextlib import suppress
from statistics import fmean

from ssp.base.values import Values

EVERY = 2.0
"""Seconds between two looks."""
KEPT = 10_000
"""Looks that wait for their figures at most; older ones go."""

Look = list[tuple[float, float]]
"""Share of the time in use, and share of the memory, of each device."""


class Gpus:
    """Looks at them on a thread of its own, so that a driver that hangs holds up nobody."""

    def __init__(self) -> None:
        self._looks: deque[Look] = deque(maxlen=KEPT)
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True, name="gpus").start()

    def figures(self) -> Values:
        """Means since the last such call; empty where no GPU was seen."""
        looks, self._looks = self._looks, deque(maxlen=KEPT)
        devices = [device for look in looks for device in look]
        if not devices:
            return {}
        return {
            "gpu/utilisation": fmean(busy for busy, _ in devices),
            "gpu/memory": fmean(memory for _, memory in devices),
            "gpu/memory_max": max(memory for _, memory in devices),
        }

    def close(self) -> None:
        """Look no more."""
        self._ended.set()

    def _watch(self) -> None:
        # Whatever is missing or odd there: these are figures, and no reason to say anything.
        with suppress(Exception):
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            handles = [
                nvml.nvmlDeviceGetHandleByIndex(at) for at in range(nvml.nvmlDeviceGetCount())
            ]
            while handles and not self._ended.wait(EVERY):
                look = []
                for handle in handles:
                    busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
                    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
                    look.append((busy, memory.used / memory.total))
                self._looks.append(look)
