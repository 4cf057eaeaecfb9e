#include "catalog/spool.h"

#include "catalog/side.h"

struct EcfsSpool {
    EcfsSide side;
};

enum {
    FAULT_ADD,
    FAULTS_GET,
    FAULTY_NEXT,
    DAMAGE_ADD,
    DAMAGE_NEXT,
    NAME_ADD,
    NAMED_GET,
    NAMED_COUNT,
    ORPHAN_ADD,
    ORPHAN_NEXT,
    ORPHANS_OBJECT,
    ORPHANS_CLEAR,
    N_QUESTIONS
};

static const char *const statements[N_QUESTIONS] = {
    [FAULT_ADD] =
        "INSERT INTO faults (uuid, idx, object, fault, instance, endpoint, text) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING",
    [FAULTS_GET] = "SELECT idx, fault, instance, endpoint, text FROM faults WHERE uuid = ? ORDER BY idx",
    [FAULTY_NEXT] = "SELECT uuid, object FROM faults WHERE uuid > ? ORDER BY uuid LIMIT 1",
    [DAMAGE_ADD] = "INSERT INTO damages (urgency, object, lost, uuid) VALUES (?, ?, ?, ?)",
    [DAMAGE_NEXT] = "SELECT urgency, object, lost, uuid FROM damages WHERE (urgency, object) > (?, ?) "
                    "ORDER BY urgency, object LIMIT 1",
    [NAME_ADD] = "INSERT INTO named (uuid, object) VALUES (?, ?) ON CONFLICT DO NOTHING",
    [NAMED_GET] = "SELECT uuid, object FROM named WHERE uuid > ? ORDER BY uuid LIMIT ?",
    [ORPHAN_ADD] = "INSERT INTO orphans (kind, endpoint, uuid, idx, instance, size, mtime_s) "
                   "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
    [ORPHAN_NEXT] = "SELECT endpoint, uuid, idx, instance, size, mtime_s FROM orphans "
                    "WHERE kind = ? AND (endpoint, uuid, idx, instance) > (?, ?, ?, ?) "
                    "ORDER BY endpoint, uuid, idx, instance LIMIT 1",
    [ORPHANS_OBJECT] =
        "SELECT uuid, count (*), total (size) FROM orphans WHERE kind = ?1 AND uuid = (SELECT min (uuid) "
        "FROM orphans WHERE kind = ?1 AND uuid > ?2) GROUP BY uuid",
    [ORPHANS_CLEAR] = "DELETE FROM orphans WHERE kind = ?",
    [NAMED_COUNT] = "SELECT count (*) FROM named",
};

/* One transaction that never ends: nobody else reads it, and nothing is to outlive a crash. */
static const char setup[] =
    "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -8192;"
    "CREATE TABLE faults (uuid BLOB NOT NULL, idx INTEGER NOT NULL, object INTEGER NOT NULL, fault INTEGER NOT NULL, "
    "  instance INTEGER NOT NULL, endpoint INTEGER NOT NULL, text BLOB, PRIMARY KEY (uuid, idx)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE damages (urgency INTEGER NOT NULL, object INTEGER NOT NULL, lost INTEGER NOT NULL, "
    "  uuid BLOB NOT NULL, PRIMARY KEY (urgency, object)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE named (uuid BLOB PRIMARY KEY, object INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE orphans (kind INTEGER NOT NULL, endpoint INTEGER NOT NULL, uuid BLOB NOT NULL, "
    "  idx INTEGER NOT NULL, instance INTEGER NOT NULL, size INTEGER NOT NULL, mtime_s INTEGER NOT NULL, "
    "  PRIMARY KEY (kind, endpoint, uuid, idx, instance)) STRICT, WITHOUT ROWID;"
    "BEGIN";

#define RUN(self, statement, error, ...) ecfs_side_exec (&(self)->side, statement, VALUES (__VA_ARGS__), error)
#define ASK(self, statement, error, ...) ecfs_side_query (&(self)->side, statement, VALUES (__VA_ARGS__), error)

EcfsSpool *ecfs_spool_new (GError **error)
{
    EcfsSpool *self = g_new0 (EcfsSpool, 1);
    if (ecfs_side_open (&self->side, "", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, setup, statements, N_QUESTIONS,
                        error))
        return self;
    ecfs_spool_free (self);
    return NULL;
}

void ecfs_spool_free (EcfsSpool *self)
{
    if (self == NULL)
        return;
    ecfs_side_close (&self->side);
    g_free (self);
}

static Value bytes_of (const char *text)
{
    return text == NULL ? (Value){.type = VALUE_NULL} : NAME (text); /* paths in it are any bytes */
}

bool ecfs_spool_add_fault (EcfsSpool *self, const EcfsUuid *uuid, int64_t object, const EcfsSpoolFault *fault,
                           GError **error)
{
    return RUN (self, FAULT_ADD, error, UUID (uuid), INT (fault->index), INT (object), INT (fault->fault),
                INT (fault->instance), INT (fault->endpoint), bytes_of (fault->text));
}

static void fault_clear (gpointer data)
{
    g_free (((EcfsSpoolFault *) data)->text);
}

GArray *ecfs_spool_faults (EcfsSpool *self, const EcfsUuid *uuid, GError **error)
{
    autoquery *query = ASK (self, FAULTS_GET, error, UUID (uuid));
    g_autoptr (GArray) faults = g_array_new (FALSE, TRUE, sizeof (EcfsSpoolFault));
    g_array_set_clear_func (faults, fault_clear);
    int found;
    while ((found = ecfs_side_step (&self->side, query, error)) == 1) {
        const void *text = ecfs_column_blob (query, 4);
        EcfsSpoolFault fault = {.index = (unsigned) ecfs_column_number (query, 0),
                                .fault = (int) ecfs_column_number (query, 1),
                                .instance = (uint64_t) ecfs_column_number (query, 2),
                                .endpoint = ecfs_column_number (query, 3)};
        fault.text = text == NULL ? NULL : g_strndup (text, ecfs_column_size (query, 4));
        g_array_append_val (faults, fault);
    }
    return found < 0 ? NULL : g_steal_pointer (&faults);
}

int ecfs_spool_next_faulty (EcfsSpool *self, EcfsUuid *uuid, int64_t *ret_object, GError **error)
{
    const EcfsUuid after = *uuid;
    autoquery *query = ASK (self, FAULTY_NEXT, error, UUID (&after));
    int found = ecfs_side_step (&self->side, query, error);
    if (found == 1 && ecfs_column_bytes (query, 0, uuid->bytes, sizeof uuid->bytes))
        *ret_object = ecfs_column_number (query, 1);
    return found;
}

bool ecfs_spool_add_damage (EcfsSpool *self, const EcfsSpoolDamage *damage, GError **error)
{
    return RUN (self, DAMAGE_ADD, error, INT (damage->urgency), INT (damage->object), INT (damage->is_lost),
                UUID (&damage->uuid));
}

int ecfs_spool_next_damage (EcfsSpool *self, EcfsSpoolDamage *damage, GError **error)
{
    autoquery *query = ASK (self, DAMAGE_NEXT, error, INT (damage->urgency), INT (damage->object));
    int found = ecfs_side_step (&self->side, query, error);
    if (found == 1 && ecfs_column_bytes (query, 3, damage->uuid.bytes, sizeof damage->uuid.bytes)) {
        damage->urgency = (int) ecfs_column_number (query, 0);
        damage->object = ecfs_column_number (query, 1);
        damage->is_lost = ecfs_column_number (query, 2) != 0;
    }
    return found;
}

bool ecfs_spool_name (EcfsSpool *self, const EcfsUuid *uuid, int64_t object, GError **error)
{
    return RUN (self, NAME_ADD, error, UUID (uuid), INT (object));
}

GArray *ecfs_spool_named (EcfsSpool *self, EcfsUuid *after, size_t max, GError **error)
{
    const EcfsUuid behind = *after;
    autoquery *query = ASK (self, NAMED_GET, error, UUID (&behind), INT (max));
    g_autoptr (GArray) objects = g_array_new (FALSE, FALSE, sizeof (int64_t));
    int found;
    while ((found = ecfs_side_step (&self->side, query, error)) == 1) {
        int64_t object = ecfs_column_number (query, 1);
        g_array_append_val (objects, object);
        (void) ecfs_column_bytes (query, 0, after->bytes, sizeof after->bytes); /* it was put there so */
    }
    return found < 0 ? NULL : g_steal_pointer (&objects);
}

bool ecfs_spool_count_named (EcfsSpool *self, uint64_t *ret_n, GError **error)
{
    autoquery *query = ecfs_side_query (&self->side, NAMED_COUNT, NULL, 0, error);
    if (ecfs_side_step (&self->side, query, error) != 1)
        return false;
    *ret_n = (uint64_t) ecfs_column_number (query, 0);
    return true;
}

bool ecfs_spool_add_orphan (EcfsSpool *self, const EcfsSpoolOrphan *orphan, GError **error)
{
    return RUN (self, ORPHAN_ADD, error, INT (orphan->kind), INT (orphan->endpoint), UUID (&orphan->uuid),
                INT (orphan->index), INT (orphan->instance), INT (orphan->size), INT (orphan->mtime_s));
}

int ecfs_spool_next_orphan (EcfsSpool *self, EcfsSpoolOrphan *orphan, GError **error)
{
    const EcfsSpoolOrphan after = *orphan;
    autoquery *query = ASK (self, ORPHAN_NEXT, error, INT (after.kind), INT (after.endpoint), UUID (&after.uuid),
                            INT (after.index), INT (after.instance));
    int found = ecfs_side_step (&self->side, query, error);
    if (found == 1 && ecfs_column_bytes (query, 1, orphan->uuid.bytes, sizeof orphan->uuid.bytes)) {
        orphan->endpoint = ecfs_column_number (query, 0);
        orphan->index = (unsigned) ecfs_column_number (query, 2);
        orphan->instance = (uint64_t) ecfs_column_number (query, 3);
        orphan->size = (uint64_t) ecfs_column_number (query, 4);
        orphan->mtime_s = ecfs_column_number (query, 5);
    }
    return found;
}

int ecfs_spool_next_object (EcfsSpool *self, EcfsSpoolKind kind, EcfsSpoolObject *object, GError **error)
{
    const EcfsUuid after = object->uuid;
    autoquery *query = ASK (self, ORPHANS_OBJECT, error, INT (kind), UUID (&after));
    int found = ecfs_side_step (&self->side, query, error);
    if (found == 1 && ecfs_column_bytes (query, 0, object->uuid.bytes, sizeof object->uuid.bytes)) {
        object->n_stripes = (uint64_t) ecfs_column_number (query, 1);
        object->bytes = (uint64_t) ecfs_column_number (query, 2);
    }
    return found;
}

bool ecfs_spool_clear_orphans (EcfsSpool *self, EcfsSpoolKind kind, GError **error)
{
    return RUN (self, ORPHANS_CLEAR, error, INT (kind));
}
