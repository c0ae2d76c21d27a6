"""Every SQL statement of the stores, and the schema as a list of steps.

One set for all databases: portable SQL with ``?`` for each parameter, which a driver may rewrite.
Keys begin with the tenant. A column exists only where a query needs it; all else is in `body`,
one JSON document. Times in columns are whole microseconds since 1970 in UTC.
"""

from __future__ import annotations

__all__ = [
    "ACTIVE_CALL",
    "BEGIN_OR_MOVE_THREAD",
    "CALL",
    "CLAIM_THREAD",
    "END_CALL",
    "INSERT_LEDGER_ROW",
    "INSERT_TURN",
    "LOST_CALLS",
    "MIGRATIONS",
    "MOVE_THREAD",
    "RECORD_MIGRATION",
    "SCHEMA_VERSION",
    "THREAD",
    "THREADS",
    "THREAD_LENGTH",
    "TURNS",
    "TURN_EXISTS",
]

# ---------------------------------------------------------------------------------- schema

# Step n (counted from 1) leads from version n-1 to n and commits together with its row in
# turngate_schema. A released step is never edited; a later one is added. `changed` counts the
# changes of a tenant's threads: the order of a listing, which a clock set back can't upset.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE turngate_schema (version INTEGER NOT NULL PRIMARY KEY)",
        """
        CREATE TABLE threads (
            tenant TEXT NOT NULL,
            id TEXT NOT NULL,
            length BIGINT NOT NULL,
            changed BIGINT NOT NULL,
            title TEXT,
            "user" TEXT,
            created_at BIGINT NOT NULL,
            updated_at BIGINT NOT NULL,
            PRIMARY KEY (tenant, id)
        )
        """,
        "CREATE INDEX threads_changed ON threads (tenant, changed, id)",
        """
        CREATE TABLE turns (
            tenant TEXT NOT NULL,
            thread TEXT NOT NULL,
            position BIGINT NOT NULL,
            id TEXT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, thread, position)
        )
        """,
        "CREATE UNIQUE INDEX turns_id ON turns (tenant, id)",
        """
        CREATE TABLE calls (
            tenant TEXT NOT NULL,
            id TEXT NOT NULL,
            thread TEXT NOT NULL,
            state TEXT NOT NULL,
            owner TEXT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, id)
        )
        """,
        # The claim: at most one active call on a thread, held by the database itself.
        "CREATE UNIQUE INDEX calls_active ON calls (tenant, thread) WHERE state = 'active'",
        """
        CREATE TABLE ledger (
            tenant TEXT NOT NULL,
            id TEXT NOT NULL,
            call TEXT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, id)
        )
        """,
    ),
)

SCHEMA_VERSION = "SELECT max(version) FROM turngate_schema"
RECORD_MIGRATION = "INSERT INTO turngate_schema (version) VALUES (?)"

# --------------------------------------------------------------------------------- threads

# A guard of BETWEEN takes "any length" and "this length" in one statement.
# Parameters: added, tenant, title, user, at, tenant, thread, length from, length to.
MOVE_THREAD = """
UPDATE threads
SET length = length + ?,
    changed = (SELECT max(t.changed) + 1 FROM threads t WHERE t.tenant = ?),
    title = coalesce(?, title),
    "user" = coalesce(?, "user"),
    updated_at = ?
WHERE tenant = ? AND id = ? AND length BETWEEN ? AND ?
RETURNING length
"""

# Parameters: tenant, thread, added, tenant, title, user, at, at, length from, length to.
BEGIN_OR_MOVE_THREAD = """
INSERT INTO threads (tenant, id, length, changed, title, "user", created_at, updated_at)
VALUES (
    ?, ?, ?, (SELECT coalesce(max(t.changed), 0) + 1 FROM threads t WHERE t.tenant = ?), ?, ?, ?, ?
)
ON CONFLICT (tenant, id) DO UPDATE
SET length = threads.length + excluded.length,
    changed = excluded.changed,
    title = coalesce(excluded.title, threads.title),
    "user" = coalesce(excluded."user", threads."user"),
    updated_at = excluded.updated_at
WHERE threads.length BETWEEN ? AND ?
RETURNING length
"""

THREAD_LENGTH = "SELECT length FROM threads WHERE tenant = ? AND id = ?"

THREAD = """
SELECT id, length, created_at, updated_at, title, "user", changed
FROM threads WHERE tenant = ? AND id = ?
"""

# Parameters: tenant, then the cursor (changed, id) below which the page begins, then the limit.
THREADS = """
SELECT id, length, created_at, updated_at, title, "user", changed
FROM threads WHERE tenant = ? AND (changed, id) < (?, ?)
ORDER BY changed DESC, id DESC LIMIT ?
"""

# ----------------------------------------------------------------------------------- turns

INSERT_TURN = "INSERT INTO turns (tenant, thread, position, id, body) VALUES (?, ?, ?, ?, ?)"

TURN_EXISTS = "SELECT 1 FROM turns WHERE tenant = ? AND id = ?"

TURNS = """
SELECT body FROM turns
WHERE tenant = ? AND thread = ? AND position >= ? AND position < ?
ORDER BY position
"""

# ----------------------------------------------------------------------- calls and ledger

# Nothing is inserted where the id is taken or the thread has an active call; which, is asked then.
CLAIM_THREAD = """
INSERT INTO calls (tenant, id, thread, state, owner, body) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""

# Parameters: state, body, tenant, id, thread, owner.
END_CALL = """
UPDATE calls SET state = ?, body = ?
WHERE tenant = ? AND id = ? AND thread = ? AND owner = ? AND state = 'active'
"""

CALL = "SELECT body FROM calls WHERE tenant = ? AND id = ?"

ACTIVE_CALL = "SELECT body FROM calls WHERE tenant = ? AND thread = ? AND state = 'active'"

# Parameters: the living owner, then (tenant, thread) above which the piece begins, then the limit.
LOST_CALLS = """
SELECT tenant, thread, body FROM calls
WHERE state = 'active' AND owner <> ? AND (tenant, thread) > (?, ?)
ORDER BY tenant, thread LIMIT ?
"""

INSERT_LEDGER_ROW = "INSERT INTO ledger (tenant, id, call, body) VALUES (?, ?, ?, ?)"
