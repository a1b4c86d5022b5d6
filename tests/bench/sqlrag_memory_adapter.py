"""This package as a system of the peers' harness, searched in memory; the harness' clock starts when it is there."""

from __future__ import annotations

import time

from tests.bench import sqlrag_adapter

IMPORTS = sqlrag_adapter.IMPORTS
CHOICES = f"{sqlrag_adapter.CHOICES}; Store(resident=True) with as much memory as it takes"

RESIDENT_MB = 8000


class Adapter(sqlrag_adapter.Adapter):
    """The same store, whose arrays are in memory before the first question."""

    def open(self) -> None:
        from sqlrag import Settings, Store

        self.store = Store(self.file, resident=True, settings=Settings(resident_mb=RESIDENT_MB))
        while self.store.lexical_query("a").methods.get("engine") != "memory":
            time.sleep(0.01)
