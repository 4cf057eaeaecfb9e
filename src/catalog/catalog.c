/* Life cycle, and facts. */
#include "catalog/age.h"
#include "catalog/namespace_priv.h"
#include "catalog/optimistic.h"
#include "catalog/pg.h"
#include "catalog/sqlite.h"

#include <sys/stat.h>
#include <unistd.h>

#define GROUP_US   (ECFS_CATALOG_GROUP_MS * 1000)
#define TURN_US    2000 /* others wait meanwhile */
#define TIMEOUT_US (30 * G_USEC_PER_SEC)

/* Opening */

static bool load_meta (EcfsCatalog *self, GError **error)
{
    autoquery *query = ecfs_query (self, STMT_META_GET, NULL, 0, error);
    int found = ecfs_query_step (self, query, error);
    if (found < 0)
        return false;
    uint64_t epoch;
    if (found == 0 || !ecfs_column_bytes (query, 0, self->archive.bytes, sizeof self->archive.bytes) ||
        !ecfs_column_u64 (query, 1, UINT32_MAX, &epoch))
        return ecfs_bad_row (error, "meta", 1, "does not say which archive this is");
    self->epoch = (uint32_t) epoch;
    return true;
}

/* Numbers that would be given out twice, or a root that is none, are found before anything is done with them. */
static bool check_start (EcfsCatalog *self, GError **error)
{
    Counters counters;
    int64_t max_ino, max_seq;
    Inode root;
    if (!load_meta (self, error) || !ecfs_counters_load (self, &counters, error) || !ecfs_age_load (self, error) ||
        ecfs_query_number (self, STMT_INODE_MAX, NULL, 0, &max_ino, error) < 0 ||
        ecfs_query_number (self, STMT_JOURNAL_MAX, NULL, 0, &max_seq, error) < 0)
        return false;
    if (counters.next_ino <= (uint64_t) max_ino || counters.sequence < (uint64_t) max_seq)
        return ecfs_bad_row (error, "counters", 1, "is lower than the rows that it counts");
    g_autoptr (GError) why = NULL;
    if (!ecfs_inode_get_dir (self, ECFS_ROOT_INO, &root, &why))
        return ecfs_bad_row (error, "inodes", ECFS_ROOT_INO, why->message);
    return true;
}

/* Another process may be writing: it is looked at as it is at one moment. */
static bool check_snapshot (EcfsCatalog *self, GError **error)
{
    if (!ecfs_control (self, STMT_BEGIN_READ, "reading it", error))
        return false;
    bool good = check_start (self, error);
    (void) ecfs_control (self, STMT_ROLLBACK, "ROLLBACK", NULL); /* nothing was written */
    return good;
}

static EcfsCatalog *wrap_db (const char *path, EcfsDb *db, bool readonly, bool is_member)
{
    EcfsCatalog *self = g_new0 (EcfsCatalog, 1);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->wake);
    ecfs_cond_init (&self->committed);
    self->path = g_strdup (path);
    self->readonly = readonly;
    self->is_member = is_member;
    self->group_us = is_member ? TURN_US : GROUP_US;
    self->db = db;
    self->redo = g_byte_array_new ();
    self->record = g_byte_array_new ();
    self->deleted_us = ecfs_now_us ();
    self->op_at = NO_OP;
    self->timeout_us = TIMEOUT_US;
    return self;
}

static void free_catalog (EcfsCatalog *self)
{
    self->db->ops->close (self->db);
    g_clear_pointer (&self->lost, g_hash_table_unref);
    g_clear_pointer (&self->lost_now, g_array_unref);
    g_byte_array_unref (self->redo);
    g_byte_array_unref (self->record);
    ecfs_cond_clear (&self->wake);
    ecfs_cond_clear (&self->committed);
    ecfs_mutex_clear (&self->lock);
    g_free (self->failure);
    g_free (self->away);
    g_free (self->unread);
    g_free (atomic_load (&self->behind));
    g_free (self->refusal);
    g_free (self->path);
    g_free (self);
}

EcfsCatalog *ecfs_catalog_open (const char *path, unsigned flags, GError **error)
{
    bool readonly = (flags & ECFS_CATALOG_READONLY) != 0;
    bool is_location = ecfs_pg_is_location (path);
    g_autofree char *name = is_location ? ecfs_pg_display (path) : g_strdup (path);
    bool is_member = is_location && !readonly && (flags & ECFS_CATALOG_MEMBER) != 0;
    EcfsDb *db = is_location ? ecfs_pg_open (path, flags, error) : ecfs_sqlite_open (path, readonly, error);
    if (db == NULL)
        return NULL;
    EcfsCatalog *self = wrap_db (name, db, readonly, is_member);
    if (!db->ops->prepare (db, error) || !check_snapshot (self, error)) {
        free_catalog (self);
        return NULL;
    }
    if (!readonly && (errno = pthread_create (&self->flusher, NULL, ecfs_flush, self)) != 0) {
        told (ecfs_fail_errno (error, errno, "catalog %s: starting a thread", name));
        free_catalog (self);
        return NULL;
    }
    return self;
}

void ecfs_catalog_refuse (EcfsCatalog *self, const char *reason)
{
    ecfs_mutex_lock (&self->lock);
    if (self->refusal == NULL)
        self->refusal = g_strdup (reason);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_catalog_allow (EcfsCatalog *self)
{
    ecfs_mutex_lock (&self->lock);
    g_clear_pointer (&self->refusal, g_free);
    ecfs_mutex_unlock (&self->lock);
}

bool ecfs_catalog_close (EcfsCatalog *self, GError **error)
{
    if (self == NULL)
        return true;
    ecfs_mutex_lock (&self->lock);
    self->stopping = true;
    ecfs_cond_signal (&self->wake);
    ecfs_mutex_unlock (&self->lock);
    if (!self->readonly)
        (void) pthread_join (self->flusher, NULL); /* fails only for threads that are none */
    ecfs_mutex_lock (&self->lock);
    ecfs_reading_end (self);
    bool ok = self->broken ? ecfs_fail_state (self, error) : ecfs_commit (self, error);
    ecfs_mutex_unlock (&self->lock);
    free_catalog (self);
    return ok;
}

/* Creating */

static bool insert_first_rows (EcfsCatalog *self, GError **error)
{
    int64_t now_ns = ecfs_real_ns ();
    Inode root = {.attr = {.ino = ECFS_ROOT_INO,
                           .mode = S_IFDIR | 0755,
                           .nlink = 2,
                           .uid = geteuid (),
                           .gid = getegid (),
                           .atime_ns = now_ns,
                           .mtime_ns = now_ns,
                           .ctime_ns = now_ns,
                           .btime_ns = now_ns}};
    ecfs_journal_put_epoch (self->record, 1);
    return ecfs_inode_insert (self, &root, NULL, error) && ecfs_journal_append (self, error);
}

static bool insert_all (EcfsCatalog *self, const EcfsUuid *archive, GError **error)
{
    const DbOps *ops = self->db->ops;
    return ops->prepare (self->db, error) &&
           ops->run (self->db, STMT_META_INSERT, VALUES (UUID (archive), INT (ecfs_real_ns ())), error) &&
           ops->run (self->db, STMT_COUNTERS_INSERT, NULL, 0, error) && ecfs_txn_begin (self, error) &&
           insert_first_rows (self, error) && ecfs_commit (self, error);
}

/* Nobody sees it before it is filled. */
static bool fill (EcfsDb *db, const char *path, const EcfsUuid *archive, GError **error)
{
    EcfsCatalog *self = wrap_db (path, db, false, false);
    ecfs_mutex_lock (&self->lock);
    bool ok = insert_all (self, archive, error);
    ecfs_mutex_unlock (&self->lock);
    free_catalog (self);
    return ok;
}

bool ecfs_catalog_create (const char *path, const EcfsUuid *archive, GError **error)
{
    return ecfs_pg_is_location (path) ? ecfs_pg_create (path, fill, archive, error)
                                      : ecfs_sqlite_create (path, fill, archive, error);
}

/* Facts */

const EcfsUuid *ecfs_catalog_archive (const EcfsCatalog *self)
{
    return &self->archive;
}

uint32_t ecfs_catalog_epoch (const EcfsCatalog *self)
{
    return self->epoch;
}

bool ecfs_counters_read (EcfsCatalog *self, Counters *ret_counters, GError **error)
{
    if (!self->in_txn)
        return ecfs_counters_load (self, ret_counters, error);
    if (!ecfs_optimistic_settle (self, error))
        return false;
    *ret_counters = self->counters;
    for (int i = 0; self->is_optimistic && i < ECFS_N_COUNTERS; i++)
        *ecfs_counter (ret_counters, i) += *ecfs_counter (&self->settled, i);
    return true;
}

/* Once for each reason (NULL: it could be read), as those who ask come again and again; a database that is away is told
 * of by who finds that out. */
static void tell_unread (EcfsCatalog *self, const GError *why)
{
    ecfs_mutex_lock (&self->lock);
    bool is_news = why != NULL && self->away == NULL && g_strcmp0 (self->unread, why->message) != 0;
    bool is_back = why == NULL && self->unread != NULL;
    if (is_news || is_back) {
        g_free (self->unread);
        self->unread = why == NULL ? NULL : g_strdup (why->message);
    }
    ecfs_mutex_unlock (&self->lock);
    if (is_news)
        g_warning ("%s", why->message);
    else if (is_back)
        g_message ("catalog %s: it can be read again", self->path);
}

static Counters counters_now (EcfsCatalog *self)
{
    Counters counters = {.sequence = 0};
    g_autoptr (GError) error = NULL;
    (void) READ (self, ecfs_counters_read (self, &counters, &error)); /* error says it */
    tell_unread (self, error);
    return counters;
}

/* Of a shared catalog what is not committed may be given up, and its numbers become those of others' records. */
bool ecfs_sequence_get (EcfsCatalog *self, uint64_t *ret_sequence, GError **error)
{
    Counters counters = {.sequence = 0};
    if (self->is_member && self->in_txn) {
        if (!ecfs_optimistic_settle (self, error))
            return false;
        *ret_sequence = self->base_sequence;
        return true;
    }
    bool good = ecfs_counters_read (self, &counters, error);
    *ret_sequence = counters.sequence;
    return good;
}

bool ecfs_catalog_sequence_read (EcfsCatalog *self, uint64_t *ret_sequence, GError **error)
{
    return READ (self, ecfs_sequence_get (self, ret_sequence, error));
}

uint64_t ecfs_catalog_sequence (EcfsCatalog *self)
{
    uint64_t sequence = 0;
    g_autoptr (GError) error = NULL;
    (void) ecfs_catalog_sequence_read (self, &sequence, &error); /* error says it */
    tell_unread (self, error);
    return sequence;
}

int64_t ecfs_catalog_last_offset (EcfsCatalog *self)
{
    return (int64_t) counters_now (self).next_position - 1;
}

bool ecfs_catalog_next_ino (EcfsCatalog *self, uint64_t *ret_ino, GError **error)
{
    Counters counters;
    if (!READ (self, ecfs_counters_read (self, &counters, error)))
        return false;
    *ret_ino = counters.next_ino;
    return true;
}

bool ecfs_catalog_totals (EcfsCatalog *self, EcfsTotals *ret_totals, GError **error)
{
    Counters counters;
    if (!READ (self, ecfs_counters_read (self, &counters, error)))
        return false;
    *ret_totals = counters.totals;
    return true;
}

char *ecfs_catalog_trouble (EcfsCatalog *self)
{
    g_autoptr (GError) error = NULL;
    ecfs_mutex_lock (&self->lock);
    if (self->broken || self->failure != NULL)
        told (ecfs_fail_state (self, &error));
    else if (self->away != NULL)
        told (ecfs_fail (&error, EIO, "%s; names cannot be read until it is back", self->away));
    ecfs_mutex_unlock (&self->lock);
    return error == NULL ? NULL : g_strdup (error->message);
}
