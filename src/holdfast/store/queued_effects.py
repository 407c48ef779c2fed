"""What a handler's transaction yields on a store that queues effects."""

from __future__ import annotations

from typing import Any, Protocol


class QueuedEffects(Protocol):
    """Commands of the store that take effect together with the completion of the job.

    1. Nothing is written before the end of the block. Then all commands are applied in their order, with the jobs that
       were enqueued in the block and the ends of its jobs, in one atomic step.
    2. If a command fails, those before it are undone, times to live included, nothing else is written, and `StoreError`
       names the command. The lease is still held.
    3. If a fence is stale at the end, nothing is written, and `LeaseLost` is raised. Nothing is locked meanwhile.
    4. If a reply to `read` would be another one at the end, nothing is written, and `TransactionConflict` is raised. So
       does an enqueue in the block that would be answered differently.
    5. Calls that end or change other jobs raise `Unsupported` inside the block.
    """

    def queue(self, *words: Any) -> None:
        """Queue a writing command, given as its words.

        Raises `ConfigError`, and queues nothing, if the command is not allowed, if a key belongs to the store itself,
        or if the transaction would take the store too long.
        """
        ...

    def read(self, *words: Any) -> Any:
        """Run a reading command at once, and return its reply (awaitable if async); it does not see what is queued.

        Raises as `queue` does.
        """
        ...

    def key(self, name: str) -> str:
        """Return a key that is kept where the store is, for a store that is spread over several servers."""
        ...
