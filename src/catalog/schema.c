#include "catalog/schema.h"
#include "catalog/db.h"

/*
 * Names are BLOBs compared bytewise. Entries are found by name (primary key), listed by position, and found by inode.
 * WITHOUT ROWID where the key is natural; AUTOINCREMENT where an id must never come back, since others remember it.
 */
static const char schema_1[] =
    "CREATE TABLE meta (id INTEGER PRIMARY KEY CHECK (id = 1), archive BLOB NOT NULL, epoch INTEGER NOT NULL, "
    "  created_ns INTEGER NOT NULL) STRICT;"
    "CREATE TABLE counters (id INTEGER PRIMARY KEY CHECK (id = 1), next_ino INTEGER NOT NULL, "
    "  next_position INTEGER NOT NULL, sequence INTEGER NOT NULL, n_inodes INTEGER NOT NULL, n_files INTEGER NOT NULL, "
    "  n_objects INTEGER NOT NULL, content_bytes INTEGER NOT NULL, stripe_bytes INTEGER NOT NULL, "
    "  n_staged INTEGER NOT NULL, n_not_full INTEGER NOT NULL, n_deletions INTEGER NOT NULL, "
    "  journal_records INTEGER NOT NULL) STRICT;"
    "CREATE TABLE inodes (ino INTEGER PRIMARY KEY, mode INTEGER NOT NULL, nlink INTEGER NOT NULL, "
    "  uid INTEGER NOT NULL, gid INTEGER NOT NULL, rdev INTEGER NOT NULL, size INTEGER NOT NULL, "
    "  atime_ns INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL, btime_ns INTEGER NOT NULL, "
    "  committed_size INTEGER NOT NULL, code TEXT, target BLOB) STRICT;"
    "CREATE INDEX inodes_orphaned ON inodes (ino) WHERE nlink = 0;"
    "CREATE TABLE entries (parent INTEGER NOT NULL REFERENCES inodes (ino), name BLOB NOT NULL, "
    "  position INTEGER NOT NULL, ino INTEGER NOT NULL REFERENCES inodes (ino), "
    "  PRIMARY KEY (parent, name)) STRICT, WITHOUT ROWID;"
    "CREATE UNIQUE INDEX " ECFS_INDEX_ENTRIES_BY_POSITION ";"
    "CREATE INDEX " ECFS_INDEX_ENTRIES_BY_INO ";"
    "CREATE TABLE xattrs (ino INTEGER NOT NULL REFERENCES inodes (ino), name BLOB NOT NULL, value BLOB NOT NULL, "
    "  PRIMARY KEY (ino, name)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE endpoints (id INTEGER PRIMARY KEY AUTOINCREMENT, uuid BLOB NOT NULL UNIQUE, "
    "  name TEXT NOT NULL UNIQUE, state INTEGER NOT NULL) STRICT;"
    "CREATE TABLE objects (id INTEGER PRIMARY KEY AUTOINCREMENT, uuid BLOB NOT NULL UNIQUE, epoch INTEGER NOT NULL, "
    "  sequence INTEGER NOT NULL, code TEXT NOT NULL, size INTEGER NOT NULL, segment_bytes INTEGER NOT NULL, "
    "  block_bytes INTEGER NOT NULL, header_bytes INTEGER NOT NULL, digest BLOB NOT NULL) STRICT;"
    "CREATE TABLE stripes (object INTEGER NOT NULL REFERENCES objects (id), idx INTEGER NOT NULL, "
    "  instance INTEGER NOT NULL, endpoint INTEGER NOT NULL REFERENCES endpoints (id), size INTEGER NOT NULL, "
    "  digest BLOB NOT NULL, PRIMARY KEY (object, idx)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE extents (ino INTEGER NOT NULL REFERENCES inodes (ino), start INTEGER NOT NULL, "
    "  length INTEGER NOT NULL, object INTEGER NOT NULL REFERENCES objects (id), object_start INTEGER NOT NULL, "
    "  PRIMARY KEY (ino, start)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX " ECFS_INDEX_EXTENTS_BY_OBJECT ";"
    "CREATE TABLE intents (id INTEGER PRIMARY KEY AUTOINCREMENT, object BLOB NOT NULL, ino INTEGER NOT NULL, "
    "  epoch INTEGER NOT NULL, sequence INTEGER NOT NULL, begun_ns INTEGER NOT NULL) STRICT;"
    "CREATE TABLE intent_stripes (intent INTEGER NOT NULL REFERENCES intents (id), idx INTEGER NOT NULL, "
    "  instance INTEGER NOT NULL, endpoint INTEGER NOT NULL REFERENCES endpoints (id), "
    "  PRIMARY KEY (intent, idx, instance)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE staging (id INTEGER PRIMARY KEY AUTOINCREMENT, ino INTEGER NOT NULL REFERENCES inodes (ino), "
    "  state INTEGER NOT NULL, fresh INTEGER NOT NULL, size INTEGER NOT NULL, since_ns INTEGER NOT NULL, error TEXT) "
    "  STRICT;"
    "CREATE INDEX staging_by_ino ON staging (ino);"
    "CREATE TABLE deletions (id INTEGER PRIMARY KEY AUTOINCREMENT, object BLOB NOT NULL, idx INTEGER NOT NULL, "
    "  instance INTEGER NOT NULL, endpoint INTEGER NOT NULL REFERENCES endpoints (id), queued_ns INTEGER NOT NULL, "
    "  at_once INTEGER NOT NULL, sequence INTEGER NOT NULL) STRICT;"
    "CREATE INDEX deletions_by_endpoint ON deletions (endpoint, at_once, queued_ns);"
    "CREATE TABLE journal (seq INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL, record BLOB NOT NULL) STRICT;";

/* What files have beside their holes. */
static const char schema_2[] =
    "ALTER TABLE inodes ADD COLUMN data_bytes INTEGER NOT NULL DEFAULT 0;"
    "UPDATE inodes SET data_bytes = ifnull ((SELECT sum (length) FROM extents WHERE extents.ino = inodes.ino), 0) "
    "  WHERE committed_size > 0;";

/* What codes have beside their text. */
static const char schema_3[] =
    "CREATE TABLE codes (code TEXT PRIMARY KEY, parameters BLOB NOT NULL) STRICT, WITHOUT ROWID;";

/* Deletions wait by a clock that nobody sets; those that there are begin to wait anew. */
static const char schema_4[] =
    "CREATE TABLE age (id INTEGER PRIMARY KEY CHECK (id = 1), boot BLOB NOT NULL, boot_ns INTEGER NOT NULL, "
    "  real_ns INTEGER NOT NULL, age_ns INTEGER NOT NULL) STRICT;"
    "INSERT INTO age VALUES (1, zeroblob (16), 0, 9223372036854775807, 0);" /* as if noted later than now */
    "ALTER TABLE deletions RENAME COLUMN queued_ns TO queued_age_ns;"
    "UPDATE deletions SET queued_age_ns = 0;";

/* Most archives have no such directory, and then none is looked for above what is made. */
static const char schema_5[] =
    "CREATE INDEX directories_with_code ON inodes (ino) WHERE code IS NOT NULL AND mode & 61440 = 16384;";

/* How endpoints were the last time; hints, each by itself. */
static const char schema_6[] =
    "CREATE TABLE estimates (endpoint INTEGER PRIMARY KEY REFERENCES endpoints (id), "
    "  latency_p5_us INTEGER NOT NULL, latency_p50_us INTEGER NOT NULL, latency_p95_us INTEGER NOT NULL, "
    "  read_p5 INTEGER NOT NULL, read_p50 INTEGER NOT NULL, read_p95 INTEGER NOT NULL, "
    "  write_p5 INTEGER NOT NULL, write_p50 INTEGER NOT NULL, write_p95 INTEGER NOT NULL) STRICT;";

/* What of the journal is where, what recover needs beside the namespace, and which snapshots are whole. */
static const char schema_7[] =
    "CREATE TABLE journal_places (endpoint INTEGER PRIMARY KEY REFERENCES endpoints (id), sequence INTEGER NOT NULL, "
    "  time_ns INTEGER NOT NULL) STRICT;"
    "CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE snapshots (epoch INTEGER NOT NULL, sequence INTEGER NOT NULL, time_ns INTEGER NOT NULL, "
    "  bytes INTEGER NOT NULL, PRIMARY KEY (epoch, sequence)) STRICT, WITHOUT ROWID;";

/* Whether a snapshot is safe against what codes that came later are. */
static const char schema_8[] = "ALTER TABLE snapshots ADD COLUMN n_copies INTEGER NOT NULL DEFAULT 0;";

/* Stripes that are known to be damaged; what takes their place, or the end of the object, ends that too. */
static const char schema_9[] =
    "CREATE TABLE repairs (object INTEGER NOT NULL, idx INTEGER NOT NULL, gone INTEGER NOT NULL, "
    "  found_ns INTEGER NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (object, idx), "
    "  FOREIGN KEY (object, idx) REFERENCES stripes (object, idx) ON DELETE CASCADE) STRICT, WITHOUT ROWID;";

/* Endpoints may be REMOVED: a change of meaning, for who would take their rows for damaged. */
static const char schema_10[] = "";

/* What a file consists of, summed: ecfs_content_sum () is ours. */
static const char schema_11[] =
    "ALTER TABLE inodes ADD COLUMN content_sum INTEGER NOT NULL DEFAULT 0;"
    "UPDATE inodes SET content_sum = (SELECT ecfs_content_sum (inodes.ino, inodes.committed_size, inodes.data_bytes, "
    "  e.start, e.length, e.object, e.object_start) FROM (SELECT 1) LEFT JOIN extents e ON e.ino = inodes.ino);";

/* The time of stored content, where bytes that are staged only show another; NULL: what is shown. */
static const char schema_12[] = "ALTER TABLE inodes ADD COLUMN committed_mtime_ns INTEGER;";

/* Which openings of the archive were of this catalog. Endpoints may be DISTRUSTED, too. */
static const char schema_13[] = "CREATE TABLE sessions (number INTEGER PRIMARY KEY, uuid BLOB NOT NULL) STRICT;";

/* A digest of an object's content that nobody can find other bytes for; what was stored before has none. */
static const char schema_14[] = "ALTER TABLE objects ADD COLUMN sha256 BLOB;";

/* Under which key an object is stored; NULL: without one. */
static const char schema_15[] = "ALTER TABLE objects ADD COLUMN seal BLOB;";

/* Whether what waits for its deletion is under a key: how long endpoints can read what they had before. */
static const char schema_16[] =
    "ALTER TABLE deletions ADD COLUMN sealed INTEGER NOT NULL DEFAULT 0;"
    "UPDATE deletions SET sealed = 1 WHERE EXISTS (SELECT 1 FROM settings WHERE key = 'archive_key');";

/* Under which key that is, if it was in an object; NULL: under none, or it is not known. */
static const char schema_17[] = "ALTER TABLE deletions ADD COLUMN seal_key BLOB;";

/* Objects that many files share: what kind an object is, how much of it is nobody's any more, as far as that was noted,
 * and a digest of what a file has of one. */
static const char schema_18[] = "ALTER TABLE objects ADD COLUMN kind INTEGER NOT NULL DEFAULT 0;"
                                "ALTER TABLE objects ADD COLUMN dead_bytes INTEGER NOT NULL DEFAULT 0;"
                                "ALTER TABLE extents ADD COLUMN sha256 BLOB;"
                                "ALTER TABLE extents ADD COLUMN generation INTEGER;"
                                "CREATE INDEX objects_shared ON objects (kind, id) WHERE kind <> 0;";

/* What waits for its deletion may be taken back, stripe by stripe. Deletions may be of more kinds, too. */
static const char schema_19[] = "CREATE INDEX deletions_by_object ON deletions (object, idx);";

/* What the past takes, and since when; of what was removed before that is not known. And up to when it was let go. */
static const char schema_20[] =
    "ALTER TABLE deletions ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE deletions ADD COLUMN queued_ns INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE released (id INTEGER PRIMARY KEY CHECK (id = 1), age_ns INTEGER NOT NULL, time_ns INTEGER NOT NULL, "
    "  reason INTEGER NOT NULL) STRICT;"
    /* And how many files lost content, lately too: see brake.h. */
    "ALTER TABLE counters ADD COLUMN n_lost INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE losses (age_ns INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL, n_lost INTEGER NOT NULL, "
    "  n_files INTEGER NOT NULL) STRICT;"
    "CREATE TABLE brake (id INTEGER PRIMARY KEY CHECK (id = 1), until_age_ns INTEGER NOT NULL, "
    "  from_age_ns INTEGER NOT NULL, from_ns INTEGER NOT NULL, from_lost INTEGER NOT NULL, from_files INTEGER NOT "
    "NULL, "
    "  last_age_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL, last_lost INTEGER NOT NULL, last_files INTEGER NOT "
    "NULL) "
    "  STRICT;"
    /* And what marks need: since when there was something of what an object has; NULL: its own sequence. */
    "ALTER TABLE deletions ADD COLUMN born INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE objects ADD COLUMN since INTEGER;"
    "CREATE TABLE marks (name TEXT PRIMARY KEY, epoch INTEGER NOT NULL, sequence INTEGER NOT NULL, "
    "  time_ns INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE INDEX deletions_marked ON deletions (born, sequence, bytes) WHERE at_once = 4;";

/* What stripes that wait for their deletion were of, as long as they may be taken back: a description that outlives the
 * object's row, so that the past can be repaired. What was removed before this has none, and its stripes no digest. */
static const char schema_21[] =
    "ALTER TABLE deletions ADD COLUMN digest BLOB;"
    "CREATE TABLE past_objects (id INTEGER PRIMARY KEY AUTOINCREMENT, uuid BLOB NOT NULL UNIQUE, "
    "  epoch INTEGER NOT NULL, sequence INTEGER NOT NULL, code TEXT NOT NULL, size INTEGER NOT NULL, "
    "  segment_bytes INTEGER NOT NULL, block_bytes INTEGER NOT NULL, header_bytes INTEGER NOT NULL, "
    "  digest BLOB NOT NULL, sha256 BLOB, seal BLOB, kind INTEGER NOT NULL, removed_age_ns INTEGER NOT NULL) STRICT;";

/* Step i brings version i to i + 1. */
static const char *const migrations[ECFS_CATALOG_VERSION] = {
    schema_1,  schema_2,  schema_3,  schema_4,  schema_5,  schema_6,  schema_7,
    schema_8,  schema_9,  schema_10, schema_11, schema_12, schema_13, schema_14,
    schema_15, schema_16, schema_17, schema_18, schema_19, schema_20, schema_21};

static bool run (sqlite3 *db, const char *path, const char *sql, GError **error)
{
    int rc = sqlite3_exec (db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK || ecfs_sqlite_fail (db, rc, error, path, "changing the tables");
}

static bool read_pragma (sqlite3 *db, const char *path, const char *sql, int *ret_value, GError **error)
{
    sqlite3_stmt *query = NULL;
    int rc = sqlite3_prepare_v2 (db, sql, -1, &query, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step (query);
    if (rc == SQLITE_ROW)
        *ret_value = sqlite3_column_int (query, 0);
    bool ok = rc == SQLITE_ROW || ecfs_sqlite_fail (db, rc, error, path, "reading its header");
    (void) sqlite3_finalize (query); /* repeats rc */
    return ok;
}

static bool migrate_from (sqlite3 *db, const char *path, int version, GError **error)
{
    for (int i = version; i < ECFS_CATALOG_VERSION; i++)
        if (!run (db, path, migrations[i], error))
            return false;
    g_autofree char *stamp = g_strdup_printf ("PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT",
                                              ECFS_CATALOG_APPLICATION_ID, ECFS_CATALOG_VERSION);
    return run (db, path, stamp, error);
}

bool ecfs_schema_migrate (sqlite3 *db, const char *path, GError **error)
{
    int version = 0;
    if (!read_pragma (db, path, "PRAGMA user_version", &version, error))
        return false;
    if (version == ECFS_CATALOG_VERSION)
        return true;
    if (!run (db, path, "BEGIN IMMEDIATE", error))
        return false;
    if (migrate_from (db, path, version, error))
        return true;
    (void) sqlite3_exec (db, "ROLLBACK", NULL, NULL, NULL); /* the first error is the one to tell */
    return false;
}

bool ecfs_schema_check (sqlite3 *db, const char *path, int *ret_version, GError **error)
{
    int application = 0, version = 0;
    if (!read_pragma (db, path, "PRAGMA application_id", &application, error) ||
        !read_pragma (db, path, "PRAGMA user_version", &version, error))
        return false;
    if (application != ECFS_CATALOG_APPLICATION_ID || version <= 0)
        return ecfs_fail (error, EBADMSG, "%s is a database, but not an ecfs catalog; " ECFS_CATALOG_ADVICE, path);
    if (version > ECFS_CATALOG_VERSION)
        return ecfs_fail (error, ENOTSUP,
                          "catalog %s has version %d, made by a later ecfs; this one knows versions up "
                          "to %d: install the later ecfs",
                          path, version, ECFS_CATALOG_VERSION);
    *ret_version = version;
    return true;
}
