#include "catalog/scrub.h"

#include "catalog/side.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERSION 1

struct EcfsScrub {
    EcfsSide side;
    int lock_fd; /* of the file itself; -1: not writable. Closed after the database, whose locks go with it */
    bool changing;
};

enum {
    STATE_GET,
    STATE_SET,
    RANGES_GET,
    RANGES_CLEAR,
    RANGE_ADD,
    DAMAGES_GET,
    DAMAGE_ADD,
    DAMAGE_REMOVE,
    ORPHAN_SEE,
    ORPHAN_GET,
    ORPHANS_FORGET,
    N_FIRST_QUESTIONS, /* of tables that have always been there; readers ask nothing else */
    DIGEST_GET = N_FIRST_QUESTIONS,
    DIGEST_SET,
    DIGEST_REMOVE,
    DIGESTS_FORGET,
    N_QUESTIONS
};

static const char *const statements[N_QUESTIONS] = {
    [STATE_GET] = "SELECT pass, open, began_ns, full_began_ns, full_ended_ns FROM state",
    [STATE_SET] =
        "REPLACE INTO state (id, pass, open, began_ns, full_began_ns, full_ended_ns) VALUES (1, ?, ?, ?, ?, ?)",
    [RANGES_GET] = "SELECT after, pass, time_ns FROM ranges WHERE endpoint = ? ORDER BY after",
    [RANGES_CLEAR] = "DELETE FROM ranges WHERE endpoint = ?",
    [RANGE_ADD] = "INSERT INTO ranges (endpoint, after, pass, time_ns) VALUES (?, ?, ?, ?)",
    [DAMAGES_GET] =
        "SELECT object, idx, instance FROM damages WHERE (object, idx) > (?, ?) ORDER BY object, idx LIMIT ?",
    [DAMAGE_ADD] = "REPLACE INTO damages (object, idx, instance) VALUES (?, ?, ?)",
    [DAMAGE_REMOVE] = "DELETE FROM damages WHERE object = ? AND idx = ? AND instance = ?",
    [ORPHAN_SEE] = ("INSERT INTO orphans (endpoint, object, idx, instance, first_ns, last_ns) "
                    "VALUES (?1, ?2, ?3, ?4, ?5, ?5) "
                    "ON CONFLICT DO UPDATE SET first_ns = min (first_ns, ?5), last_ns = ?5"),
    [ORPHAN_GET] = "SELECT first_ns FROM orphans WHERE endpoint = ? AND object = ? AND idx = ? AND instance = ?",
    [ORPHANS_FORGET] = "DELETE FROM orphans WHERE last_ns <> ?",
    [DIGEST_GET] = "SELECT digest FROM digests WHERE object = ? AND idx = ? AND instance = ? AND endpoint = ?",
    [DIGEST_SET] = "REPLACE INTO digests (object, idx, instance, endpoint, pass, digest) VALUES (?, ?, ?, ?, ?, ?)",
    [DIGEST_REMOVE] = "DELETE FROM digests WHERE object = ? AND idx = ?",
    [DIGESTS_FORGET] = "DELETE FROM digests WHERE pass < ?",
};

static const char setup[] =
    "PRAGMA synchronous = NORMAL; PRAGMA cache_size = -4096;"
    "CREATE TABLE IF NOT EXISTS state (id INTEGER PRIMARY KEY CHECK (id = 1), pass INTEGER NOT NULL, "
    "  open INTEGER NOT NULL, began_ns INTEGER NOT NULL, full_began_ns INTEGER NOT NULL, "
    "  full_ended_ns INTEGER NOT NULL) STRICT;"
    "CREATE TABLE IF NOT EXISTS ranges (endpoint INTEGER NOT NULL, after BLOB NOT NULL, pass INTEGER NOT NULL, "
    "  time_ns INTEGER NOT NULL, PRIMARY KEY (endpoint, after)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS damages (object INTEGER NOT NULL, idx INTEGER NOT NULL, instance INTEGER NOT NULL, "
    "  PRIMARY KEY (object, idx)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS orphans (endpoint INTEGER NOT NULL, object BLOB NOT NULL, idx INTEGER NOT NULL, "
    "  instance INTEGER NOT NULL, first_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL, "
    "  PRIMARY KEY (endpoint, object, idx, instance)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS digests (object INTEGER NOT NULL, idx INTEGER NOT NULL, instance INTEGER NOT NULL, "
    "  endpoint INTEGER NOT NULL, pass INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (object, idx)) STRICT, "
    "  WITHOUT ROWID;"
    "PRAGMA user_version = " G_STRINGIFY (VERSION);

/* Opening */

/* Root must not take it from who owns the archive. */
static bool lock (EcfsScrub *self, const char *directory, const char *path, GError **error)
{
    struct stat owner;
    self->lock_fd = open (path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (self->lock_fd < 0)
        return ecfs_fail_errno (error, errno, "%s", path);
    if (geteuid () == 0 && stat (directory, &owner) == 0 && fchown (self->lock_fd, owner.st_uid, owner.st_gid) != 0)
        return ecfs_fail_errno (error, errno, "%s: cannot give it to the owner of the archive", path);
    if (flock (self->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return true;
    return errno == EWOULDBLOCK
               ? ecfs_fail (error, EALREADY,
                            "%s: another deep check of this archive, or one that removes orphans, is running", path)
               : ecfs_fail_errno (error, errno, "%s: cannot lock it", path);
}

static bool open_file (EcfsScrub *self, const char *path, bool writable, GError **error)
{
    int flags = writable ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY;
    return ecfs_side_open (&self->side, path, flags, writable ? setup : "", statements,
                           writable ? N_QUESTIONS : N_FIRST_QUESTIONS, error);
}

static bool open_empty (EcfsScrub *self, GError **error)
{
    ecfs_side_close (&self->side);
    return ecfs_side_open (&self->side, ":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, setup, statements,
                           N_QUESTIONS, error);
}

static bool open_readable (EcfsScrub *self, const char *path, GError **error)
{
    g_autoptr (GError) why = NULL;
    struct stat st;
    if (stat (path, &st) == 0 && st.st_size > 0) {
        if (open_file (self, path, false, &why))
            return true;
        g_warning ("what earlier scrubs have noted cannot be read: %s", why->message);
    }
    return open_empty (self, error);
}

static bool open_writable (EcfsScrub *self, const char *path, GError **error)
{
    g_autoptr (GError) why = NULL;
    if (open_file (self, path, true, &why))
        return true;
    if (why->code != EBADMSG) {
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    g_warning ("%s; what was verified before is forgotten", why->message);
    ecfs_side_close (&self->side);
    if (ftruncate (self->lock_fd, 0) != 0)
        return ecfs_fail_errno (error, errno, "%s", path);
    return open_file (self, path, true, error);
}

EcfsScrub *ecfs_scrub_open (const char *directory, bool writable, GError **error)
{
    g_autofree char *path = g_build_filename (directory, ECFS_SCRUB_NAME, NULL);
    EcfsScrub *self = g_new0 (EcfsScrub, 1);
    self->lock_fd = -1;
    bool good = writable ? lock (self, directory, path, error) && open_writable (self, path, error)
                         : open_readable (self, path, error);
    if (good)
        return self;
    ecfs_scrub_close (self);
    return NULL;
}

void ecfs_scrub_close (EcfsScrub *self)
{
    if (self == NULL)
        return;
    ecfs_side_close (&self->side);
    if (self->lock_fd >= 0)
        (void) close (self->lock_fd); /* nothing was written through it */
    g_free (self);
}

/* Reading and changing */

static bool change (EcfsScrub *self, size_t statement, const Value *values, size_t n_values, GError **error)
{
    if (!self->changing && !ecfs_side_run (&self->side, "BEGIN IMMEDIATE", error))
        return false;
    self->changing = true;
    return ecfs_side_exec (&self->side, statement, values, n_values, error);
}

#define RUN(self, statement, error, ...) change (self, statement, VALUES (__VA_ARGS__), error)
#define ASK(self, statement, error, ...) ecfs_side_query (&(self)->side, statement, VALUES (__VA_ARGS__), error)

bool ecfs_scrub_keep (EcfsScrub *self, GError **error)
{
    if (!self->changing)
        return true;
    self->changing = false;
    if (ecfs_side_run (&self->side, "COMMIT", error))
        return true;
    (void) ecfs_side_run (&self->side, "ROLLBACK", NULL); /* the first error is the one to tell */
    return false;
}

bool ecfs_scrub_state (EcfsScrub *self, EcfsScrubState *ret_state, GError **error)
{
    autoquery *query = ecfs_side_query (&self->side, STATE_GET, NULL, 0, error);
    int found = ecfs_side_step (&self->side, query, error);
    *ret_state = (EcfsScrubState){.pass = 0};
    if (found == 1)
        *ret_state = (EcfsScrubState){.pass = (uint64_t) ecfs_column_number (query, 0),
                                      .open = ecfs_column_number (query, 1) != 0,
                                      .began_ns = ecfs_column_number (query, 2),
                                      .full_began_ns = ecfs_column_number (query, 3),
                                      .full_ended_ns = ecfs_column_number (query, 4)};
    return found >= 0;
}

bool ecfs_scrub_set_state (EcfsScrub *self, const EcfsScrubState *state, GError **error)
{
    return RUN (self, STATE_SET, error, INT (state->pass), INT (state->open), INT (state->began_ns),
                INT (state->full_began_ns), INT (state->full_ended_ns));
}

/* Rows that cannot be are left out: what they were about counts as verified before it, or never. */
GArray *ecfs_scrub_ranges (EcfsScrub *self, int64_t endpoint, uint64_t last_pass, GError **error)
{
    autoquery *query = ASK (self, RANGES_GET, error, INT (endpoint));
    g_autoptr (GArray) ranges = ecfs_ranges_new ();
    int found;
    while ((found = ecfs_side_step (&self->side, query, error)) == 1) {
        EcfsScrubRange one = {.pass = (uint64_t) ecfs_column_number (query, 1),
                              .time_ns = ecfs_column_number (query, 2)};
        if (!ecfs_column_bytes (query, 0, one.after.bytes, sizeof one.after.bytes))
            continue;
        one.pass = one.pass > last_pass ? 0 : one.pass;
        if (ecfs_uuid_is_nil (&one.after))
            g_array_index (ranges, EcfsScrubRange, 0) = one;
        else
            g_array_append_val (ranges, one);
    }
    return found < 0 ? NULL : g_steal_pointer (&ranges);
}

bool ecfs_scrub_set_ranges (EcfsScrub *self, int64_t endpoint, const GArray *ranges, GError **error)
{
    bool good = RUN (self, RANGES_CLEAR, error, INT (endpoint));
    for (guint i = 0; good && i < ranges->len; i++) {
        const EcfsScrubRange *one = &g_array_index (ranges, EcfsScrubRange, i);
        good = RUN (self, RANGE_ADD, error, INT (endpoint), UUID (&one->after), INT (one->pass), INT (one->time_ns));
    }
    return good;
}

GArray *ecfs_scrub_damages (EcfsScrub *self, const EcfsScrubDamage *after, size_t max, GError **error)
{
    autoquery *query = ASK (self, DAMAGES_GET, error, INT (after == NULL ? 0 : after->object),
                            INT (after == NULL ? -1 : (int64_t) after->index), INT (max));
    g_autoptr (GArray) damages = g_array_new (FALSE, TRUE, sizeof (EcfsScrubDamage));
    int found;
    while ((found = ecfs_side_step (&self->side, query, error)) == 1) {
        const EcfsScrubDamage one = {.object = ecfs_column_number (query, 0),
                                     .index = (unsigned) ecfs_column_number (query, 1),
                                     .instance = (uint64_t) ecfs_column_number (query, 2)};
        g_array_append_val (damages, one);
    }
    return found < 0 ? NULL : g_steal_pointer (&damages);
}

bool ecfs_scrub_set_damage (EcfsScrub *self, const EcfsScrubDamage *damage, bool damaged, GError **error)
{
    return RUN (self, damaged ? DAMAGE_ADD : DAMAGE_REMOVE, error, INT (damage->object), INT (damage->index),
                INT (damage->instance));
}

bool ecfs_scrub_see_orphan (EcfsScrub *self, const EcfsScrubOrphan *orphan, int64_t now_ns, int64_t *ret_first_ns,
                            GError **error)
{
    if (!RUN (self, ORPHAN_SEE, error, INT (orphan->endpoint), UUID (&orphan->object), INT (orphan->index),
              INT (orphan->instance), INT (now_ns)))
        return false;
    autoquery *query = ASK (self, ORPHAN_GET, error, INT (orphan->endpoint), UUID (&orphan->object),
                            INT (orphan->index), INT (orphan->instance));
    if (ecfs_side_step (&self->side, query, error) != 1)
        return false;
    *ret_first_ns = ecfs_column_number (query, 0);
    return true;
}

bool ecfs_scrub_forget_orphans (EcfsScrub *self, int64_t now_ns, GError **error)
{
    return RUN (self, ORPHANS_FORGET, error, INT (now_ns));
}

bool ecfs_scrub_has_digest (EcfsScrub *self, const EcfsScrubDigest *digest, bool *ret_has, GError **error)
{
    autoquery *query = ASK (self, DIGEST_GET, error, INT (digest->object), INT (digest->index), INT (digest->instance),
                            INT (digest->endpoint));
    int found = ecfs_side_step (&self->side, query, error);
    size_t size = strlen (digest->text);
    *ret_has = found == 1 && ecfs_column_size (query, 0) == size &&
               memcmp (ecfs_column_blob (query, 0), digest->text, size) == 0;
    return found >= 0;
}

bool ecfs_scrub_set_digest (EcfsScrub *self, const EcfsScrubDigest *digest, uint64_t pass, GError **error)
{
    if (digest->text == NULL)
        return RUN (self, DIGEST_REMOVE, error, INT (digest->object), INT (digest->index));
    return RUN (self, DIGEST_SET, error, INT (digest->object), INT (digest->index), INT (digest->instance),
                INT (digest->endpoint), INT (pass), BLOB (digest->text, strlen (digest->text)));
}

bool ecfs_scrub_forget_digests (EcfsScrub *self, uint64_t pass, GError **error)
{
    return RUN (self, DIGESTS_FORGET, error, INT (pass));
}
