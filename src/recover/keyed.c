/*
 * Whether what was stored under a key can be opened. Anybody who has an endpoint can put a file there that looks
 * sealed, so a single one does not decide it: what most endpoints' newest files are does, before anything is claimed.
 */
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
