/*
 * Whether what was stored under a key can be opened. Anybody who has an endpoint can put a file there that looks
 * sealed, so a single one does not decide it: what most endpoints' newest files are does, before anything is claimed.
 */
#include "archive/keys.h"
#include "catalog/journal.h"
#include "recover/files.h"

/* The newest journal file of an endpoint, by its name. */
typedef struct Newest {
    EcfsJournalFile file;
    bool any;
} Newest;

static void on_listed (void *user, const EcfsListed *listed)
{
    Newest *self = user;
    EcfsJournalFile file;
    if (!ecfs_journal_file_name_parse (listed->name, &file) || listed->size < ECFS_JOURNAL_HEADER_BYTES)
        return;
    if (self->any &&
        (file.epoch < self->file.epoch || (file.epoch == self->file.epoch && file.last <= self->file.last)))
        return;
    *self = (Newest){.file = file, .any = true};
}

/* The header of the newest one, of this archive; *ret_told false: there is none, or it is damaged. */
static bool hear (EcfsRecovering *self, EcfsRecoverPlace *place, EcfsJournalFile *ret_file, bool *ret_told,
                  GError **error)
{
    Newest newest = {.any = false};
    uint8_t head[ECFS_JOURNAL_HEADER_BYTES];
    char name[ECFS_JOURNAL_NAME_SIZE];
    const EcfsRange range = {.size = sizeof head, .to = head};
    *ret_told = false;
    if (!ecfs_endpoint_list_wait (place->endpoint, ECFS_JOURNAL_DIRECTORY, on_listed, &newest, error) ||
        !ecfs_endpoint_list_wait (place->endpoint, ECFS_SNAPSHOT_DIRECTORY, on_listed, &newest, error))
        return false;
    if (!newest.any)
        return true;
    ecfs_journal_file_name (&newest.file, name);
    *ret_told = ecfs_endpoint_read_wait (place->endpoint, name, &range, 1, NULL) && /* what is damaged is told later */
                ecfs_journal_file_head (head, sizeof head, ret_file, NULL) &&
                ecfs_uuid_equal (&ret_file->archive, &self->archive);
    return true;
}

static bool has_key (const EcfsKeyRing *keys, const EcfsUuid *id)
{
    uint8_t key[ECFS_KEY_BYTES];
    bool has = keys != NULL && ecfs_key_ring_derive (keys, id, ECFS_KEY_USE_JOURNAL, NULL, 0, key, NULL);
    ecfs_key_forget (key, sizeof key);
    return has;
}

static bool fail_sealed (const EcfsRecovering *self, const char *whose, GError **error)
{
    if (self->keys == NULL)
        return ecfs_fail (error, ENOKEY,
                          "%s is sealed, so this archive has a key: give it with --key FILE, or what opens it with "
                          "--passphrase-file, --code-file or --identity",
                          whose);
    return ecfs_fail (error, ENOKEY,
                      "%s is sealed under a key that the given file does not have: give the newest copy of it", whose);
}

static bool check_archive (const EcfsRecovering *self, GError **error)
{
    char given[ECFS_UUID_TEXT_SIZE], found[ECFS_UUID_TEXT_SIZE];
    if (self->keys == NULL || ecfs_uuid_equal (ecfs_key_ring_archive (self->keys), &self->archive))
        return true;
    ecfs_uuid_text (ecfs_key_ring_archive (self->keys), given);
    ecfs_uuid_text (&self->archive, found);
    return ecfs_fail (error, ENOKEY, "the keys are those of archive %s, and the endpoints are of archive %s", given,
                      found);
}

bool ecfs_recover_check_keys (EcfsRecovering *self, GError **error)
{
    size_t n_open = 0, n_sealed = 0;
    g_autoptr (GString) names = g_string_new (NULL);
    if (!check_archive (self, error))
        return false;
    for (size_t i = 0; i < self->n_places; i++) {
        EcfsRecoverPlace *place = &self->places[i];
        EcfsJournalFile file;
        bool told;
        if (place->distrusted || (self->has_believed && !place->believed))
            continue;
        if (!hear (self, place, &file, &told, error))
            return false;
        bool is_closed = told && file.is_sealed && !has_key (self->keys, &file.key);
        if (is_closed)
            g_string_append_printf (names, "%s%s", names->len > 0 ? ", " : "", place->name);
        n_sealed += is_closed;
        n_open += told && !is_closed && file.is_sealed == (self->keys != NULL);
    }
    if (n_sealed == 0 || n_sealed < n_open)
        return true;
    g_autofree char *whose = g_strdup_printf ("the journal at %s", names->str);
    return fail_sealed (self, whose, error);
}

/*
 * Whether the archive is under its keys. One that was made without gets them in steps (verbs/key_init.c): first
 * endpoints have shares, then a snapshot is sealed, then all that follows. Until that snapshot is whole the archive is
 * what its open journal says. A sealed file is nobody's but the archive's own, and a segment is sealed only behind such
 * a snapshot; so an archive that is under its keys is taken for an open one only where no endpoint has any of that.
 */

/* The newest of an endpoint, by their names. */
typedef struct Candidates {
    EcfsJournalFile segment, part;      /* the first part of a snapshot */
    uint64_t segment_bytes, part_bytes; /* 0: there is none */
} Candidates;

static bool is_behind (const EcfsJournalFile *file, const EcfsJournalFile *other)
{
    return file->epoch != other->epoch ? file->epoch > other->epoch : file->last > other->last;
}

static void on_candidate (void *user, const EcfsListed *listed)
{
    Candidates *self = user;
    EcfsJournalFile file;
    if (!ecfs_journal_file_name_parse (listed->name, &file) || listed->size < ECFS_JOURNAL_HEADER_BYTES)
        return;
    if (file.kind == ECFS_JOURNAL_SEGMENT && (self->segment_bytes == 0 || is_behind (&file, &self->segment))) {
        self->segment = file;
        self->segment_bytes = listed->size;
    }
    if (file.kind == ECFS_JOURNAL_SNAPSHOT && file.part == 0 &&
        (self->part_bytes == 0 || is_behind (&file, &self->part))) {
        self->part = file;
        self->part_bytes = listed->size;
    }
}

/* What a file is, by its bytes. */
typedef enum Kind {
    KIND_NONE, /* it cannot be read, or is damaged or forged */
    KIND_OPEN,
    KIND_SEALED, /* under one of the keys */
    KIND_BEGUN,  /* the same, of an archive that was about to get them */
} Kind;

static bool is_begun (const EcfsJournalItem *item)
{
    const size_t size = strlen (ECFS_KEY_BEGUN);
    return item->type == ECFS_JOURNAL_SETTING && item->name.size == strlen (ECFS_KEY_SETTING) &&
           memcmp (item->name.bytes, ECFS_KEY_SETTING, item->name.size) == 0 && item->value.size > size &&
           memcmp (item->value.bytes, ECFS_KEY_BEGUN, size) == 0;
}

static bool tells_begun (const GPtrArray *rows)
{
    for (guint i = 0; i < rows->len; i++) {
        const EcfsJournalRow *row = g_ptr_array_index (rows, i);
        EcfsCursor cursor;
        EcfsJournalItem item;
        for (int found = ecfs_journal_open (&cursor, row->record->data, row->record->len) == 0; found > 0;) {
            found = ecfs_journal_next (&cursor, &item);
            if (found > 0 && is_begun (&item))
                return true;
        }
    }
    return false;
}

static bool is_named (const EcfsRecovering *self, const EcfsJournalFile *file, const char *name)
{
    char own_name[ECFS_JOURNAL_NAME_SIZE];
    ecfs_journal_file_name (file, own_name);
    return g_str_equal (name, own_name) && ecfs_uuid_equal (&file->archive, &self->archive);
}

static Kind kind_of (const EcfsRecovering *self, EcfsRecoverPlace *place, const EcfsJournalFile *named, uint64_t size)
{
    EcfsJournalFile file;
    char name[ECFS_JOURNAL_NAME_SIZE];
    ecfs_journal_file_name (named, name);
    g_autoptr (GByteArray) bytes = size == 0 ? NULL : ecfs_recover_read (place, name, size, NULL);
    if (bytes == NULL || !ecfs_journal_file_head (bytes->data, bytes->len, &file, NULL) ||
        !is_named (self, &file, name))
        return KIND_NONE;
    if (file.is_sealed && file.kind == ECFS_JOURNAL_SEGMENT)
        return self->keys != NULL && ecfs_journal_file_is_authentic (bytes->data, bytes->len, self->keys, &file, NULL)
                   ? KIND_SEALED
                   : KIND_NONE;
    g_autoptr (GPtrArray) rows =
        ecfs_journal_file_parse (bytes->data, bytes->len, file.is_sealed ? self->keys : NULL, &file, NULL);
    if (rows == NULL || !file.is_sealed)
        return rows == NULL ? KIND_NONE : KIND_OPEN;
    return tells_begun (rows) ? KIND_BEGUN : KIND_SEALED;
}

void ecfs_recover_set_keys_aside (EcfsRecovering *self)
{
    self->pending_keys = g_steal_pointer (&self->keys);
}

/* Whoever gives a key as a file says that it is in use: then only what is sealed tells that it was not yet. */
static void judge_keys (EcfsRecovering *self, bool mostly_open, bool any_sealed, bool any_begun)
{
    bool was_given = self->what->keys != NULL;
    self->may_be_open = mostly_open && (any_begun || (!any_sealed && !was_given));
    if (mostly_open && !any_sealed && !any_begun && was_given)
        ecfs_recover_tell (self, "most endpoints have an open journal, and none has one that is sealed under the given "
                                 "key: if the archive was about to get this key, recover it without --key");
    if (self->may_be_open && !any_sealed && !any_begun)
        ecfs_recover_set_keys_aside (self);
}

bool ecfs_recover_weigh_keys (EcfsRecovering *self, GError **error)
{
    size_t n_open = 0;
    bool any_sealed = false, any_begun = false;
    self->may_be_open = false;
    for (size_t i = 0; i < self->n_places && self->keys != NULL; i++) {
        EcfsRecoverPlace *place = &self->places[i];
        Candidates found = {.segment_bytes = 0};
        if (place->distrusted)
            continue;
        if (!ecfs_endpoint_list_wait (place->endpoint, ECFS_JOURNAL_DIRECTORY, on_candidate, &found, error) ||
            !ecfs_endpoint_list_wait (place->endpoint, ECFS_SNAPSHOT_DIRECTORY, on_candidate, &found, error))
            return false;
        Kind kind = kind_of (self, place, &found.segment, found.segment_bytes);
        if (kind == KIND_SEALED)
            return true;
        n_open += kind == KIND_OPEN;
        kind = kind_of (self, place, &found.part, found.part_bytes);
        any_sealed = any_sealed || kind == KIND_SEALED;
        any_begun = any_begun || kind == KIND_BEGUN;
    }
    if (self->keys != NULL)
        judge_keys (self, 2 * n_open > self->n_places, any_sealed, any_begun);
    return true;
}

bool ecfs_recover_check_stripes (EcfsRecovering *self, GError **error)
{
    unsigned n_sealed = atomic_load (&self->n_sealed);
    bool has_journal = self->sums->has_snapshot || self->sums->n_records > 0; /* which could be read */
    return has_journal || n_sealed == 0 || n_sealed < atomic_load (&self->n_told) ||
           fail_sealed (self, "what is there", error);
}

bool ecfs_recover_check_opened (EcfsRecovering *self, GError **error)
{
    return !self->has_sealed || self->sums->has_snapshot || self->sums->n_records > 0 ||
           fail_sealed (self, "what is there of the journal", error);
}
