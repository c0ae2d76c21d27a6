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
    "CALLS",
    "CALLS_OF_THREAD",
    "CALL_BY_KEY",
    "CLAIM_THREAD",
    "EVENTS",
    "GUARD_CALL",
    "INSERT_EVENTS",
    "INSERT_LEDGER_ROW",
    "INSERT_STEP",
    "INSERT_TURN",
    "LOST_CALLS",
    "MIGRATIONS",
    "MOVE_THREAD",
    "RECORD_MIGRATION",
    "SCHEMA_VERSION",
    "STEPS",
    "THREAD",
    "THREADS",
    "THREAD_LENGTH",
    "TURNS",
    "TURN_EXISTS",
    "UPDATE_CALL",
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
    (
        "ALTER TABLE calls ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE calls ADD COLUMN begun BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE calls ADD COLUMN key TEXT",
        "ALTER TABLE calls ADD COLUMN first BIGINT",
        "CREATE UNIQUE INDEX calls_key ON calls (tenant, key) WHERE key IS NOT NULL",
        "CREATE INDEX calls_begun ON calls (tenant, begun, id)",
        "CREATE INDEX calls_of_thread ON calls (tenant, thread, begun, id)",
        """
        CREATE TABLE steps (
            tenant TEXT NOT NULL,
            call TEXT NOT NULL,
            number BIGINT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, call, number)
        )
        """,
        """
        CREATE TABLE events (
            tenant TEXT NOT NULL,
            call TEXT NOT NULL,
            first BIGINT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, call, first)
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
# Parameters: tenant, id, thread, state, owner, epoch, key, tenant, body.
CLAIM_THREAD = """
INSERT INTO calls (tenant, id, thread, state, owner, epoch, key, begun, body)
VALUES (
    ?, ?, ?, ?, ?, ?, ?, (SELECT coalesce(max(c.begun), 0) + 1 FROM calls c WHERE c.tenant = ?), ?
)
ON CONFLICT DO NOTHING
"""

# It changes nothing, but takes the row's lock in every database. Parameters: those of the guard.
GUARD_CALL = """
UPDATE calls SET epoch = epoch
WHERE tenant = ? AND id = ? AND thread = ? AND owner = ? AND epoch = ? AND state = 'active'
"""

# The first turn that the call adds will stand at the thread's present end: it runs before the
# thread is moved. Parameters: state, owner, epoch, key, number of turns, tenant, thread, body, and
# those of the guard: tenant, id, thread, owner, epoch.
UPDATE_CALL = """
UPDATE calls
SET state = ?, owner = ?, epoch = ?, key = ?,
    first = CASE WHEN ? > 0 THEN coalesce(
        (SELECT t.length FROM threads t WHERE t.tenant = ? AND t.id = ?), 0) END,
    body = ?
WHERE tenant = ? AND id = ? AND thread = ? AND owner = ? AND epoch = ? AND state = 'active'
"""

CALL = "SELECT body, first FROM calls WHERE tenant = ? AND id = ?"

ACTIVE_CALL = "SELECT body, first FROM calls WHERE tenant = ? AND thread = ? AND state = 'active'"

CALL_BY_KEY = "SELECT body, first FROM calls WHERE tenant = ? AND key = ?"

# Parameters: tenant, then the cursor (begun, id) below which the page begins, then the limit.
CALLS = """
SELECT body, first, begun, id FROM calls WHERE tenant = ? AND (begun, id) < (?, ?)
ORDER BY begun DESC, id DESC LIMIT ?
"""

# Parameters: tenant, thread, the cursor, the limit.
CALLS_OF_THREAD = """
SELECT body, first, begun, id FROM calls
WHERE tenant = ? AND thread = ? AND (begun, id) < (?, ?)
ORDER BY begun DESC, id DESC LIMIT ?
"""

# Parameters: the living owner, then (tenant, thread) above which the piece begins, then the limit.
LOST_CALLS = """
SELECT tenant, thread, body, first FROM calls
WHERE state = 'active' AND owner <> ? AND (tenant, thread) > (?, ?)
ORDER BY tenant, thread LIMIT ?
"""

INSERT_LEDGER_ROW = "INSERT INTO ledger (tenant, id, call, body) VALUES (?, ?, ?, ?)"

# ------------------------------------------------------------------------ steps and events

INSERT_STEP = "INSERT INTO steps (tenant, call, number, body) VALUES (?, ?, ?, ?)"

STEPS = "SELECT body FROM steps WHERE tenant = ? AND call = ? ORDER BY number"

INSERT_EVENTS = "INSERT INTO events (tenant, call, first, body) VALUES (?, ?, ?, ?)"

EVENTS = "SELECT first, body FROM events WHERE tenant = ? AND call = ? ORDER BY first"
