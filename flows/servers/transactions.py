"""Prefect's own SQLite database, when many clients write to it at once."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction


def waiting_for_their_turn(seconds: float = 60.0) -> AbstractContextManager[None]:
    """A block in which Prefect's server runs whose writes to SQLite wait for one another, for so long at most.

    Its transactions read before they write. Where another one writes in between SQLite refuses at once, whatever its
    busy timeout, and the client gets a 503: a browser shows it, and a run that its form asked for is lost. Here each
    asks for the right to write as it begins, as Prefect itself has it where it reads rows for an update.
    """
    from prefect.server.database.configurations import AioSqliteConfiguration
    from prefect.server.database.dependencies import temporary_database_config
    from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL

    class Immediate(AioSqliteConfiguration):
        @asynccontextmanager
        async def begin_transaction(
            self, session: AsyncSession, with_for_update: bool = False
        ) -> AsyncGenerator[AsyncSessionTransaction, None]:
            async with super().begin_transaction(session, with_for_update=True) as transaction:
                yield transaction

        def setup_sqlite(self, conn: Any, record: Any) -> None:
            super().setup_sqlite(conn, record)
            conn.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")

    url = str(PREFECT_API_DATABASE_CONNECTION_URL.value())
    return temporary_database_config(Immediate(url)) if url.startswith("sqlite") else nullcontext()
