/*
 * The tables in PostgreSQL: those of schema.c at its present version, which are the same but for this:
 *
 * Names, targets, values and reasons are bytea, as they may have any bytes; other texts sort by their bytes. A trigger
 * gives ids as SQLite's AUTOINCREMENT does: within the transaction, so that they come out the same when it is made
 * again. `members` and `holder` say who may write (pg_members.c), `leader_asked` what they want of who leads, `about`
 * which version the tables have, and whether a catalog is about to be moved there, or was moved away.
 */
#include "catalog/db.h"
#include "catalog/pg_priv.h"
#include "catalog/sqlite.h"

#include <libpq-fe.h>

#define N       " bigint NOT NULL"
#define B       " bytea NOT NULL"
#define ONE_ROW "id bigint PRIMARY KEY CHECK (id = 1)"
#define CODE    "code text COLLATE \"C\""
#define HAS_ID(table)                                                                                                  \
    "INSERT INTO ids VALUES ('" table "', 0); CREATE TRIGGER next_id BEFORE INSERT ON " table                          \
    " FOR EACH ROW EXECUTE FUNCTION next_id ();"

static const char tables[] =
    "CREATE TABLE about (" ONE_ROW ", application text NOT NULL, version" N ", moved_to text);"
    "CREATE TABLE members (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, uuid text NOT NULL UNIQUE, session "
    "text, who text NOT NULL, beat" N ", txn" N ", peer text) WITH (fillfactor = 50);"
    "CREATE TABLE holder (" ONE_ROW ", session text, alone boolean NOT NULL, turn" N ") WITH (fillfactor = 50);"
    "INSERT INTO holder VALUES (1, NULL, false, 0);"
    "CREATE TABLE leader_asked (" ONE_ROW ", wanted" N ", stored" N ", tries" N
    ", trouble bytea) WITH (fillfactor = 50);"
    "INSERT INTO leader_asked VALUES (1, 0, 0, 0, NULL);"
    "CREATE TABLE ids (name text PRIMARY KEY, last" N ") WITH (fillfactor = 50);"
    "CREATE TABLE meta (" ONE_ROW ", archive" B ", epoch" N ", created_ns" N ");"
    "CREATE TABLE counters (" ONE_ROW ", next_ino" N ", next_position" N ", sequence" N ", n_inodes" N ", n_files" N
    ", n_objects" N ", content_bytes" N ", stripe_bytes" N ", n_staged" N ", n_not_full" N ", n_deletions" N
    ", journal_records" N ", n_lost" N " DEFAULT 0) WITH (fillfactor = 50);"
    "CREATE TABLE inodes (ino bigint PRIMARY KEY, mode" N ", nlink" N ", uid" N ", gid" N ", rdev" N ", size" N
    ", atime_ns" N ", mtime_ns" N ", ctime_ns" N ", btime_ns" N ", committed_size" N ", " CODE ", target bytea, "
    "data_bytes" N " DEFAULT 0, content_sum" N " DEFAULT 0, committed_mtime_ns bigint);"
    "CREATE INDEX inodes_orphaned ON inodes (ino) WHERE nlink = 0;"
    "CREATE INDEX directories_with_code ON inodes (ino) WHERE code IS NOT NULL AND mode & 61440 = 16384;"
    "CREATE TABLE entries (parent" N " REFERENCES inodes (ino), name" B ", position" N ", ino" N
    " REFERENCES inodes (ino), PRIMARY KEY (parent, name));"
    "CREATE UNIQUE INDEX " ECFS_INDEX_ENTRIES_BY_POSITION ";"
    "CREATE INDEX " ECFS_INDEX_ENTRIES_BY_INO ";"
    "CREATE TABLE xattrs (ino" N " REFERENCES inodes (ino), name" B ", value" B ", PRIMARY KEY (ino, name));"
    "CREATE TABLE endpoints (id bigint PRIMARY KEY, uuid" B " UNIQUE, name text COLLATE \"C\" NOT NULL UNIQUE, state" N
    ");"
    "CREATE TABLE objects (id bigint PRIMARY KEY, uuid" B " UNIQUE, epoch" N ", sequence" N ", " CODE
    " NOT NULL, size" N ", segment_bytes" N ", block_bytes" N ", header_bytes" N ", digest" B ", sha256 bytea, seal "
    "bytea, kind" N " DEFAULT 0, dead_bytes" N " DEFAULT 0, since bigint);"
    "CREATE INDEX objects_shared ON objects (kind, id) WHERE kind <> 0;"
    "CREATE TABLE stripes (object" N " REFERENCES objects (id), idx" N ", instance" N ", endpoint" N
    " REFERENCES endpoints (id), size" N ", digest" B ", PRIMARY KEY (object, idx));"
    "CREATE TABLE extents (ino" N " REFERENCES inodes (ino), start" N ", length" N ", object" N
    " REFERENCES objects (id), object_start" N ", sha256 bytea, generation bigint, PRIMARY KEY (ino, start));"
    "CREATE INDEX " ECFS_INDEX_EXTENTS_BY_OBJECT ";"
    "CREATE TABLE intents (id bigint PRIMARY KEY, object" B ", ino" N ", epoch" N ", sequence" N ", begun_ns" N
    ", member" N " DEFAULT 0);"
    "CREATE TABLE intent_stripes (intent" N " REFERENCES intents (id), idx" N ", instance" N ", endpoint" N
    " REFERENCES endpoints (id), PRIMARY KEY (intent, idx, instance));"
    "CREATE TABLE staging (id bigint PRIMARY KEY, ino" N " REFERENCES inodes (ino), state" N ", fresh" N ", size" N
    ", since_ns" N ", error bytea, member" N " DEFAULT 0);"
    "CREATE INDEX staging_by_ino ON staging (ino);"
    "CREATE TABLE deletions (id bigint PRIMARY KEY, object" B ", idx" N ", instance" N ", endpoint" N
    " REFERENCES endpoints (id), queued_age_ns" N ", at_once" N ", sequence" N ", sealed" N
    " DEFAULT 0, seal_key bytea, bytes" N " DEFAULT 0, queued_ns" N " DEFAULT 0, born" N " DEFAULT 0, digest bytea);"
    "CREATE INDEX deletions_by_endpoint ON deletions (endpoint, at_once, queued_age_ns, id);"
    "CREATE INDEX deletions_by_object ON deletions (object, idx);"
    "CREATE INDEX deletions_marked ON deletions (born, sequence, bytes) WHERE at_once = 4;"
    "CREATE TABLE journal (seq bigint PRIMARY KEY, time_ns" N ", record" B ");"
    "CREATE TABLE codes (" CODE " PRIMARY KEY, parameters" B ");"
    "CREATE TABLE age (" ONE_ROW ", boot" B ", boot_ns" N ", real_ns" N ", age_ns" N ");"
    "INSERT INTO age VALUES (1, decode (repeat ('00', 16), 'hex'), 0, 9223372036854775807, 0);"
    "CREATE TABLE estimates (endpoint bigint PRIMARY KEY REFERENCES endpoints (id), latency_p5_us" N
    ", latency_p50_us" N ", latency_p95_us" N ", read_p5" N ", read_p50" N ", read_p95" N ", write_p5" N ", write_p50" N
    ", write_p95" N ");"
    "CREATE TABLE journal_places (endpoint bigint PRIMARY KEY REFERENCES endpoints (id), sequence" N ", time_ns" N ");"
    "CREATE TABLE settings (key text COLLATE \"C\" PRIMARY KEY, value" B ");"
    "CREATE TABLE snapshots (epoch" N ", sequence" N ", time_ns" N ", bytes" N ", n_copies" N
    " DEFAULT 0, PRIMARY KEY (epoch, sequence));"
    "CREATE TABLE repairs (object" N ", idx" N ", gone" N ", found_ns" N ", reason" B ", PRIMARY KEY (object, idx), "
    "FOREIGN KEY (object, idx) REFERENCES stripes (object, idx) ON DELETE CASCADE);"
    "CREATE TABLE sessions (number bigint PRIMARY KEY, uuid" B ");"
    "CREATE TABLE released (" ONE_ROW ", age_ns" N ", time_ns" N ", reason" N ");"
    "CREATE TABLE losses (age_ns bigint PRIMARY KEY, time_ns" N ", n_lost" N ", n_files" N ");"
    "CREATE TABLE brake (" ONE_ROW ", until_age_ns" N ", from_age_ns" N ", from_ns" N ", from_lost" N ", from_files" N
    ", last_age_ns" N ", last_ns" N ", last_lost" N ", last_files" N ");"
    "CREATE TABLE marks (name bytea PRIMARY KEY, epoch" N ", sequence" N ", time_ns" N ");"
    "CREATE TABLE past_objects (id bigint PRIMARY KEY, uuid" B " UNIQUE, epoch" N ", sequence" N ", " CODE
    " NOT NULL, size" N ", segment_bytes" N ", block_bytes" N ", header_bytes" N ", digest" B ", sha256 bytea, seal "
    "bytea, kind" N ", removed_age_ns" N ");" HAS_ID ("endpoints") HAS_ID ("objects") HAS_ID ("intents")
        HAS_ID ("staging") HAS_ID ("deletions") HAS_ID ("past_objects");

/* A table's highest id ever is kept in the transaction that gives it. */
static const char function[] =
    "CREATE FUNCTION next_id () RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "IF NEW.id IS NULL THEN UPDATE \"%s\".ids SET last = last + 1 WHERE name = TG_TABLE_NAME RETURNING last INTO "
    "NEW.id; "
    "ELSE UPDATE \"%s\".ids SET last = greatest (last, NEW.id) WHERE name = TG_TABLE_NAME; END IF; "
    "RETURN NEW; END $$;";

static const char *const applications[] = {
    [ECFS_PG_NONE] = "", [ECFS_PG_USED] = "ecfs", [ECFS_PG_ARRIVING] = "ecfs, arriving", [ECFS_PG_LEFT] = "ecfs, left"};

/* 1: there is a schema with rows; 0: with tables that were never filled, or none; -1: @error. */
static int is_filled (Pg *self, GError **error)
{
    g_autofree char *sql = g_strdup_printf ("SELECT to_regclass ('\"%s\".meta') IS NOT NULL", self->schema);
    autoresult *there = ecfs_pg_ask_sql (self, sql, "looking what is there", error);
    if (there == NULL)
        return -1;
    if (strcmp (PQgetvalue (there, 0, 0), "t") != 0)
        return 0;
    g_autofree char *meta = g_strdup_printf ("SELECT id FROM \"%s\".meta", self->schema);
    autoresult *rows = ecfs_pg_ask_sql (self, meta, "looking what is there", error);
    return rows == NULL ? -1 : PQntuples (rows) > 0;
}

/* What `about` says; EBADMSG where it is none of these. *@ret_where is g_free ()d, or NULL. */
static bool read_about (Pg *self, EcfsPgState *ret_state, int *ret_version, char **ret_where, GError **error)
{
    int filled = is_filled (self, error);
    *ret_state = ECFS_PG_NONE;
    *ret_where = NULL;
    if (filled <= 0)
        return filled == 0;
    g_autofree char *sql =
        g_strdup_printf ("SELECT application, version, moved_to FROM \"%s\".about WHERE id = 1", self->schema);
    autoresult *rows = ecfs_pg_ask_sql (self, sql, "reading its version", error);
    if (rows == NULL)
        return false;
    for (size_t i = ECFS_PG_USED; PQntuples (rows) == 1 && i < G_N_ELEMENTS (applications); i++)
        if (strcmp (PQgetvalue (rows, 0, 0), applications[i]) == 0)
            *ret_state = (EcfsPgState) i;
    if (*ret_state == ECFS_PG_NONE)
        return ecfs_fail (
            error, EBADMSG,
            "catalog %s: the schema %s is no catalog, as its table about has no row of ecfs: " ECFS_PG_ADVICE,
            self->name, self->schema, self->schema, self->schema);
    *ret_version = atoi (PQgetvalue (rows, 0, 1));
    *ret_where = PQgetisnull (rows, 0, 2) ? NULL : g_strdup (PQgetvalue (rows, 0, 2));
    return true;
}

/* Under another name, which says when. */
static bool set_aside (Pg *self, GError **error)
{
    g_autofree char *sql = g_strdup_printf (
        "UPDATE \"%s\".holder SET session = NULL; DO $$ BEGIN EXECUTE format ('ALTER SCHEMA %%I RENAME TO %%I', '%s', "
        "'%s_aside_' || to_char (clock_timestamp (), 'YYMMDDHH24MISSUS')); END $$",
        self->schema, self->schema, self->schema);
    return ecfs_pg_run_sql (self, sql, "setting aside what was there", NULL, error);
}

bool ecfs_pg_make_tables (Pg *self, GError **error)
{
    EcfsPgState state;
    int version;
    g_autofree char *where = NULL;
    if (!read_about (self, &state, &version, &where, error))
        return false;
    if (state == ECFS_PG_USED && !self->sets_aside)
        return ecfs_fail (error, EEXIST, "catalog %s: the schema %s is there already, and the archive is used from it",
                          self->name, self->schema);
    if ((state == ECFS_PG_USED || state == ECFS_PG_LEFT) && !set_aside (self, error))
        return false;
    g_autoptr (GString) sql = g_string_new (NULL);
    g_string_append_printf (sql, "DROP SCHEMA IF EXISTS \"%s\" CASCADE; CREATE SCHEMA \"%s\"; ", self->schema,
                            self->schema);
    g_string_append_printf (sql, "SET LOCAL search_path TO \"%s\"; ", self->schema);
    g_string_append_printf (sql, function, self->schema, self->schema);
    g_string_append (sql, tables);
    g_string_append_printf (sql, "INSERT INTO about VALUES (1, 'ecfs', %d)", ECFS_CATALOG_VERSION);
    return ecfs_pg_run_sql (self, sql->str, "making its tables", NULL, error);
}

bool ecfs_pg_check_tables (Pg *self, GError **error)
{
    EcfsPgState state;
    int version = 0;
    g_autofree char *where = NULL;
    if (!read_about (self, &state, &version, &where, error))
        return false;
    if (state == ECFS_PG_NONE)
        return ecfs_fail (
            error, ENOENT,
            "catalog %s: there is no schema %s: 'ecfs recover NEW --set catalog=... --endpoint URL...' makes "
            "it anew from the endpoints; a dump lacks all that was stored since",
            self->name, self->schema);
    if (state == ECFS_PG_ARRIVING && !self->arriving)
        return ecfs_fail (
            error, EAGAIN,
            "catalog %s: 'ecfs catalog move' was interrupted before this became the catalog: run it again "
            "on the archive directory",
            self->name);
    if (state == ECFS_PG_LEFT)
        return ecfs_fail (error, ESTALE,
                          "catalog %s: it was moved to %s: use the archive there; where the move was interrupted, run "
                          "'ecfs catalog move ARCHIVE file' there again",
                          self->name, where == NULL ? "a file" : where);
    return version == ECFS_CATALOG_VERSION ||
           ecfs_fail (error, ENOTSUP, "catalog %s has version %d, and this ecfs knows version %d: %s", self->name,
                      version, ECFS_CATALOG_VERSION,
                      version > ECFS_CATALOG_VERSION ? "install the later ecfs" : "use the ecfs that made it");
}

bool ecfs_pg_state (const char *location, EcfsPgState *ret_state, char **ret_where, GError **error)
{
    int version;
    Pg *self = ecfs_pg_new (location, true, error);
    bool known =
        self != NULL && ecfs_pg_connect (self, error) && read_about (self, ret_state, &version, ret_where, error);
    if (self != NULL)
        ecfs_pg_free (self);
    return known;
}

static bool set_state (Pg *self, EcfsPgState from, EcfsPgState to, const char *where, GError **error)
{
    g_autofree char *sql = g_strdup_printf (
        "UPDATE \"%s\".about SET application = $1, moved_to = $2 WHERE id = 1 AND application = $3", self->schema);
    const char *values[] = {applications[to], where, applications[from]};
    autoresult *result = PQexecParams (self->conn, sql, 3, NULL, values, NULL, NULL, 0);
    if (PQresultStatus (result) != PGRES_COMMAND_OK)
        return ecfs_pg_fail (self, result, "moving it", error);
    return strcmp (PQcmdTuples (result), "1") == 0 ||
           ecfs_fail (error, ESTALE, "catalog %s: another process has changed it meanwhile", self->name);
}

bool ecfs_pg_set_arriving (Pg *self, GError **error)
{
    return set_state (self, ECFS_PG_USED, ECFS_PG_ARRIVING, NULL, error);
}

bool ecfs_pg_arrived (const char *location, GError **error)
{
    Pg *self = ecfs_pg_new (location, false, error);
    bool done =
        self != NULL && ecfs_pg_connect (self, error) && set_state (self, ECFS_PG_ARRIVING, ECFS_PG_USED, NULL, error);
    if (self != NULL)
        ecfs_pg_free (self);
    return done;
}

bool ecfs_pg_left (EcfsDb *db, const char *where, GError **error)
{
    Pg *self = ecfs_pg_of (db);
    return ecfs_pg_connect (self, error) && (self->prepared || ecfs_pg_prepare_turns (self, error)) &&
           ecfs_pg_begin (self, error) && set_state (self, ECFS_PG_USED, ECFS_PG_LEFT, where, error) &&
           ecfs_pg_run_sql (self, "COMMIT", "moving it", NULL, error);
}

/* Opening and making */

EcfsDb *ecfs_pg_open (const char *location, unsigned flags, GError **error)
{
    bool readonly = (flags & ECFS_CATALOG_READONLY) != 0;
    Pg *self = ecfs_pg_new (location, readonly, error);
    if (self == NULL)
        return NULL;
    self->arriving = (flags & ECFS_CATALOG_ARRIVING) != 0;
    self->is_member = !readonly && (flags & ECFS_CATALOG_MEMBER) != 0;
    self->must_lead = self->is_member && (flags & ECFS_CATALOG_LEADER) != 0;
    self->is_copy = (flags & ECFS_CATALOG_COPY) != 0;
    if (ecfs_pg_connect (self, error) && ecfs_pg_check_tables (self, error) &&
        (readonly ? ecfs_pg_find_member (self, error) : ecfs_pg_take (self, error)))
        return ecfs_pg_wrap (self);
    ecfs_pg_free (self);
    return NULL;
}

static bool make (Pg *self, GError **error)
{
    return ecfs_pg_connect (self, error) && ecfs_pg_run_sql (self, "BEGIN", "making it", NULL, error) &&
           ecfs_pg_make_tables (self, error) && ecfs_pg_run_sql (self, "COMMIT", "making it", NULL, error) &&
           ecfs_pg_take (self, error);
}

bool ecfs_pg_create (const char *location,
                     bool (*fill) (EcfsDb *db, const char *path, const EcfsUuid *archive, GError **error),
                     const EcfsUuid *archive, GError **error)
{
    Pg *self = ecfs_pg_new (location, false, error);
    if (self == NULL)
        return false;
    if (make (self, error))
        return fill (ecfs_pg_wrap (self), self->name, archive, error);
    ecfs_pg_free (self);
    return false;
}

bool ecfs_pg_drop (const char *location, bool all, GError **error)
{
    Pg *self = ecfs_pg_new (location, false, error);
    if (self == NULL)
        return false;
    g_autofree char *sql =
        g_strdup_printf ("DO $$ DECLARE one text; BEGIN FOR one IN SELECT nspname FROM pg_namespace "
                         "WHERE nspname = '%s' OR (%s AND nspname ^@ '%s_aside_') LOOP EXECUTE format ('DROP "
                         "SCHEMA %%I CASCADE', one); END LOOP; "
                         "END $$",
                         self->schema, all ? "true" : "false", self->schema);
    bool dropped = ecfs_pg_connect (self, error) && ecfs_pg_run_sql (self, sql, "removing it", NULL, error);
    ecfs_pg_free (self);
    return dropped;
}
