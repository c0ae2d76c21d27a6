"""Every SQL statement of the stores, and the schema as a list of steps.

One set for all databases: portable SQL with ``?`` for each parameter, which a driver may rewrite.
Keys begin with the tenant. A column exists only where a query needs it; all else is in `body`,
one JSON document. Times in columns are whole microseconds since 1970 in UTC.
"""

from __future__ import annotations

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
    (
        "CREATE INDEX calls_review ON calls (tenant, thread) WHERE state = 'review'",
        """
        CREATE TABLE reviews (
            tenant TEXT NOT NULL,
            id TEXT NOT NULL,
            call TEXT NOT NULL,
            thread TEXT NOT NULL,
            state TEXT NOT NULL,
            made BIGINT NOT NULL,
            expires BIGINT,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, id)
        )
        """,
        "CREATE INDEX reviews_made ON reviews (tenant, made, id)",
        "CREATE INDEX reviews_of_call ON reviews (tenant, call, made, id)",
        "CREATE INDEX reviews_of_thread ON reviews (tenant, thread, made, id)",
        "CREATE INDEX reviews_in_state ON reviews (tenant, state, made, id)",
        "CREATE INDEX ledger_of_call ON ledger (tenant, call)",
        """
        CREATE TABLE texts (
            tenant TEXT NOT NULL,
            hash TEXT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, hash)
        )
        """,
        "CREATE INDEX reviews_due ON reviews (tenant, id, expires) WHERE state = 'open'",
    ),
    (
        """
        CREATE TABLE files (
            tenant TEXT NOT NULL,
            id TEXT NOT NULL,
            sha256 TEXT NOT NULL,
            object TEXT NOT NULL,
            made BIGINT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, id)
        )
        """,
        "CREATE INDEX files_made ON files (tenant, made, id)",
        "CREATE INDEX files_bytes ON files (tenant, sha256, made)",
        "CREATE INDEX files_object ON files (tenant, object)",
    ),
    (
        """
        CREATE TABLE summaries (
            tenant TEXT NOT NULL,
            thread TEXT NOT NULL,
            version BIGINT NOT NULL,
            upto BIGINT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, thread, version)
        )
        """,
        """
        CREATE TABLE learnt (
            tenant TEXT NOT NULL,
            thread TEXT NOT NULL,
            upto BIGINT NOT NULL,
            PRIMARY KEY (tenant, thread)
        )
        """,
        """
        CREATE TABLE facts (
            tenant TEXT NOT NULL,
            id TEXT NOT NULL,
            "user" TEXT NOT NULL,
            state TEXT NOT NULL,
            revision BIGINT NOT NULL,
            made BIGINT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, id)
        )
        """,
        "CREATE INDEX facts_made ON facts (tenant, made, id)",
        'CREATE INDEX facts_of_user ON facts (tenant, "user", made, id)',
        "CREATE INDEX facts_in_state ON facts (tenant, state, made, id)",
        'CREATE INDEX facts_of_user_in_state ON facts (tenant, "user", state, made, id)',
        """
        CREATE TABLE fact_sources (
            tenant TEXT NOT NULL,
            thread TEXT NOT NULL,
            turn TEXT NOT NULL,
            fact TEXT NOT NULL,
            PRIMARY KEY (tenant, thread, turn, fact)
        )
        """,
        "CREATE INDEX sources_of_fact ON fact_sources (tenant, fact)",
        # The full text of active facts, for this database alone. `marks` are two words: one stands
        # for the tenant and its user, one for the fact, so that a search walks the words of one
        # user, and no other user's texts weigh in.
        """
        CREATE VIRTUAL TABLE fact_words USING fts5(
            tenant UNINDEXED, fact UNINDEXED, marks, words, detail = column
        )
        """,
    ),
    (
        # It outlives its thread, so that what was read of the old one is never taken for a new one.
        """
        CREATE TABLE erasures (
            tenant TEXT NOT NULL,
            thread TEXT NOT NULL,
            count BIGINT NOT NULL,
            PRIMARY KEY (tenant, thread)
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

CALL_IN_REVIEW = "SELECT id FROM calls WHERE tenant = ? AND thread = ? AND state = 'review'"

# It changes nothing, but takes the row's lock in every database. Parameters: those of the guard.
GUARD_CALL = """
UPDATE calls SET epoch = epoch
WHERE tenant = ? AND id = ? AND thread = ? AND owner = ? AND epoch = ? AND state = ?
"""

# The first turn that the call adds will stand at the thread's present end: it runs before the
# thread is moved. Parameters: state, owner, epoch, key, number of turns, tenant, thread, body, and
# those of the guard: tenant, id, thread, owner, epoch, state.
UPDATE_CALL = """
UPDATE calls
SET state = ?, owner = ?, epoch = ?, key = ?,
    first = CASE WHEN ? > 0 THEN coalesce(
        (SELECT t.length FROM threads t WHERE t.tenant = ? AND t.id = ?), 0) END,
    body = ?
WHERE tenant = ? AND id = ? AND thread = ? AND owner = ? AND epoch = ? AND state = ?
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

LEDGER = "SELECT body FROM ledger WHERE tenant = ? AND call = ?"

# ----------------------------------------------------------------------------------- texts

KEEP_TEXT = """
INSERT INTO texts (tenant, hash, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING
"""

TEXT = "SELECT body FROM texts WHERE tenant = ? AND hash = ?"
INSERT_LEDGER_ROW = "INSERT INTO ledger (tenant, id, call, body) VALUES (?, ?, ?, ?)"

# ------------------------------------------------------------------------ steps and events

INSERT_STEP = "INSERT INTO steps (tenant, call, number, body) VALUES (?, ?, ?, ?)"
STEPS = "SELECT body FROM steps WHERE tenant = ? AND call = ? ORDER BY number"
INSERT_EVENTS = "INSERT INTO events (tenant, call, first, body) VALUES (?, ?, ?, ?)"
EVENTS = "SELECT first, body FROM events WHERE tenant = ? AND call = ? ORDER BY first"

# --------------------------------------------------------------------------------- reviews

# Whoever writes a review holds the guard of its call, so a row is replaced by its call's owner.
# Parameters: tenant, id, call, thread, state, tenant, expires, body, call.
PUT_REVIEW = """
INSERT INTO reviews (tenant, id, call, thread, state, made, expires, body)
VALUES (
    ?, ?, ?, ?, ?, (SELECT coalesce(max(r.made), 0) + 1 FROM reviews r WHERE r.tenant = ?), ?, ?
)
ON CONFLICT (tenant, id) DO UPDATE
SET state = excluded.state, expires = excluded.expires, body = excluded.body
WHERE reviews.call = ?
"""

REVIEW = "SELECT body FROM reviews WHERE tenant = ? AND id = ?"
_REVIEWS = "SELECT body, made, id FROM reviews WHERE tenant = ?"
_PAGE = " AND (made, id) < (?, ?) ORDER BY made DESC, id DESC LIMIT ?"

# By the columns that are asked for, each with an index. Parameters: tenant, their values, then the
# cursor (made, id) below which the page begins, then the limit.
REVIEWS = {
    (): _REVIEWS + _PAGE,
    ("state",): _REVIEWS + " AND state = ?" + _PAGE,
    ("call",): _REVIEWS + " AND call = ?" + _PAGE,
    ("call", "state"): _REVIEWS + " AND call = ? AND state = ?" + _PAGE,
    ("thread",): _REVIEWS + " AND thread = ?" + _PAGE,
    ("thread", "state"): _REVIEWS + " AND thread = ? AND state = ?" + _PAGE,
}

# Parameters: the time, then (tenant, id) above which the piece begins, then the limit.
OVERDUE_REVIEWS = """
SELECT tenant, id, body FROM reviews
WHERE state = 'open' AND expires < ? AND (tenant, id) > (?, ?)
ORDER BY tenant, id LIMIT ?
"""

# ----------------------------------------------------------------------------------- files

# Nothing is inserted where the id is taken. Parameters: tenant, id, sha256, object, tenant, body.
INSERT_FILE = """
INSERT INTO files (tenant, id, sha256, object, made, body)
VALUES (?, ?, ?, ?, (SELECT coalesce(max(f.made), 0) + 1 FROM files f WHERE f.tenant = ?), ?)
ON CONFLICT DO NOTHING
"""

# Nothing is inserted where no file has the object. Parameters: tenant, id, sha256, object, tenant,
# body, and tenant, object.
SHARE_FILE = """
INSERT INTO files (tenant, id, sha256, object, made, body)
SELECT ?, ?, ?, ?, (SELECT coalesce(max(f.made), 0) + 1 FROM files f WHERE f.tenant = ?), ?
WHERE EXISTS (SELECT 1 FROM files f WHERE f.tenant = ? AND f.object = ?)
ON CONFLICT DO NOTHING
"""

REMOVE_FILE = "DELETE FROM files WHERE tenant = ? AND id = ?"
FILE = "SELECT body FROM files WHERE tenant = ? AND id = ?"
FILE_OF_BYTES = """
SELECT body FROM files WHERE tenant = ? AND sha256 = ? ORDER BY made DESC LIMIT 1
"""

OBJECT_IN_USE = "SELECT 1 FROM files WHERE tenant = ? AND object = ? LIMIT 1"

# Parameters: tenant, then the cursor (made, id) below which the page begins, then the limit.
FILES = """
SELECT body, made, id FROM files WHERE tenant = ? AND (made, id) < (?, ?)
ORDER BY made DESC, id DESC LIMIT ?
"""

# Parameters: the tenant above which the piece begins, then the limit.
TENANTS_WITH_FILES = "SELECT DISTINCT tenant FROM files WHERE tenant > ? ORDER BY tenant LIMIT ?"

# ------------------------------------------------------------------------ what is remembered

INSERT_SUMMARY = """
INSERT INTO summaries (tenant, thread, version, upto, body) VALUES (?, ?, ?, ?, ?)
"""

DELETE_SUMMARIES = "DELETE FROM summaries WHERE tenant = ? AND thread = ? AND upto > ?"
SUMMARY = "SELECT body FROM summaries WHERE tenant = ? AND thread = ? AND version = ?"
NEWEST_SUMMARY = """
SELECT body, version, upto FROM summaries WHERE tenant = ? AND thread = ?
ORDER BY version DESC LIMIT 1
"""

LEARNT = "SELECT upto FROM learnt WHERE tenant = ? AND thread = ?"

# Nothing changes where the positions were moved meanwhile. Parameters: tenant, thread, upto, the
# position where the last ones ended.
MOVE_LEARNT = """
INSERT INTO learnt (tenant, thread, upto) VALUES (?, ?, ?)
ON CONFLICT (tenant, thread) DO UPDATE SET upto = excluded.upto WHERE learnt.upto = ?
"""

# Parameters: tenant, id, user, state, tenant, body.
INSERT_FACT = """
INSERT INTO facts (tenant, id, "user", state, revision, made, body)
VALUES (
    ?, ?, ?, ?, 0, (SELECT coalesce(max(f.made), 0) + 1 FROM facts f WHERE f.tenant = ?), ?
)
ON CONFLICT DO NOTHING
"""

# Parameters: state, revision, body, tenant, id, user, the revision before.
UPDATE_FACT = """
UPDATE facts SET state = ?, revision = ?, body = ?
WHERE tenant = ? AND id = ? AND "user" = ? AND revision = ?
"""

DELETE_FACT_SOURCES = "DELETE FROM fact_sources WHERE tenant = ? AND fact = ?"
INSERT_FACT_SOURCE = "INSERT INTO fact_sources (tenant, thread, turn, fact) VALUES (?, ?, ?, ?)"
FACT = "SELECT body FROM facts WHERE tenant = ? AND id = ?"
_FACTS = "SELECT body, made, id FROM facts WHERE tenant = ?"
_SOURCES = " AND id IN (SELECT s.fact FROM fact_sources s WHERE s.tenant = ? AND s.thread = ?"

# As for reviews. Those of a thread or a turn have the tenant again before these.
FACTS = {
    (): _FACTS + _PAGE,
    ("state",): _FACTS + " AND state = ?" + _PAGE,
    ("user",): _FACTS + ' AND "user" = ?' + _PAGE,
    ("user", "state"): _FACTS + ' AND "user" = ? AND state = ?' + _PAGE,
    ("thread",): _FACTS + _SOURCES + ")" + _PAGE,
    ("thread", "turn"): _FACTS + _SOURCES + " AND s.turn = ?)" + _PAGE,
}

REMOVE_FACT_WORDS = "DELETE FROM fact_words WHERE tenant = ? AND fact_words MATCH ?"
ADD_FACT_WORDS = "INSERT INTO fact_words (tenant, fact, marks, words) VALUES (?, ?, ?, ?)"

# The index only finds candidates: whose they are, and in what state, is asked of the facts.
# Parameters: tenant, user, the search, tenant, limit.
FACTS_FOUND = """
SELECT body FROM facts
WHERE tenant = ? AND "user" = ? AND state = 'active' AND id IN (
    SELECT w.fact FROM fact_words w WHERE w.fact_words MATCH ? AND w.tenant = ?
)
ORDER BY made DESC, id DESC LIMIT ?
"""

# --------------------------------------------------------------------------- what is erased

ERASURES = "SELECT count FROM erasures WHERE tenant = ? AND thread = ?"
COUNT_ERASURE = """
INSERT INTO erasures (tenant, thread, count) VALUES (?, ?, 1)
ON CONFLICT (tenant, thread) DO UPDATE SET count = erasures.count + 1
"""

ERASE_TURN = "UPDATE turns SET body = ? WHERE tenant = ? AND thread = ? AND id = ?"
ERASE_STEP = "UPDATE steps SET body = ? WHERE tenant = ? AND call = ? AND number = ?"
ERASE_REVIEW = "UPDATE reviews SET body = ? WHERE tenant = ? AND thread = ? AND id = ?"
ERASE_EVENTS = "DELETE FROM events WHERE tenant = ? AND call = ?"
# What a call that has not ended was told stays. Parameters: tenant, hash, tenant, the hash within
# signs that stand for any text.
ERASE_TEXT = """
DELETE FROM texts WHERE tenant = ? AND hash = ? AND NOT EXISTS (
    SELECT 1 FROM calls c
    WHERE c.tenant = ? AND c.state IN ('active', 'review') AND c.body LIKE ?
)
"""
ERASE_USER = 'UPDATE threads SET "user" = NULL WHERE tenant = ? AND id = ? AND "user" = ?'

# Parameters: body, tenant, thread, id.
ERASE_CALL = """
UPDATE calls SET body = ?
WHERE tenant = ? AND thread = ? AND id = ? AND state NOT IN ('active', 'review')
"""

# By its table, all that a thread has, but for its ledger rows; what its calls have goes before
# them. Parameters: the tenant once more where the calls are asked for, then tenant and thread.
ERASE_THREAD = {
    ("steps",): """
DELETE FROM steps WHERE tenant = ? AND call IN (
    SELECT c.id FROM calls c WHERE c.tenant = ? AND c.thread = ?
)
""",
    ("events",): """
DELETE FROM events WHERE tenant = ? AND call IN (
    SELECT c.id FROM calls c WHERE c.tenant = ? AND c.thread = ?
)
""",
    ("reviews",): "DELETE FROM reviews WHERE tenant = ? AND thread = ?",
    ("calls",): "DELETE FROM calls WHERE tenant = ? AND thread = ?",
    ("turns",): "DELETE FROM turns WHERE tenant = ? AND thread = ?",
    ("summaries",): "DELETE FROM summaries WHERE tenant = ? AND thread = ?",
    ("learnt",): "DELETE FROM learnt WHERE tenant = ? AND thread = ?",
    ("threads",): "DELETE FROM threads WHERE tenant = ? AND id = ?",
}
SOURCE_LEFT = "SELECT fact FROM fact_sources WHERE tenant = ? AND thread = ? LIMIT 1"
SOURCE_OF_TURN_LEFT = """
SELECT fact FROM fact_sources WHERE tenant = ? AND thread = ? AND turn = ? LIMIT 1
"""

# Whatever a store executes, so that the tests of the statements forget none.
__all__ = [name for name in dict(globals()) if name.isupper() and name[0] != "_"]
