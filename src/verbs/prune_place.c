/* One endpoint: what is dead there, whether it is what it seems, and its removal. */
#include "verbs/prune_note.h"
#include "verbs/prune_priv.h"

#include "archive/common.h"
#include "object/format.h"

#include <inttypes.h>
#include <string.h>

#define HEAD_BYTES        4096
#define JOURNAL_FILE_MOST (2 * (uint64_t) ECFS_JOURNAL_FILE_MAX)
#define READERS           16
#define BATCH             256 /* that are removed between two looks at the journal */

static void old_clear (gpointer data)
{
    g_free (((EcfsPruneOld *) data)->name);
}

bool ecfs_prune_place_open (EcfsPrunePlace *self, const EcfsPruning *pruning, const EcfsArchiveEndpoint *endpoint,
                            GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (pruning->archive);
    const EcfsConfigEndpoint *config = ecfs_config_endpoint (ecfs_archive_config (pruning->archive), endpoint->name);
    const EcfsMarker own = {
        .archive = *ecfs_catalog_archive (catalog), .endpoint = endpoint->uuid, .epoch = ecfs_catalog_epoch (catalog)};
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_copy (config->spec);
    if (spec->options == NULL)
        spec->options = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
    g_hash_table_insert (spec->options, g_strdup (ECFS_RETAIN_OPTION_KEY), g_strdup ("yes"));
    self->name = config->spec->name;
    self->uuid = endpoint->uuid;
    self->left = g_array_new (FALSE, FALSE, sizeof (EcfsPruneDead));
    self->old = g_array_new (FALSE, FALSE, sizeof (EcfsPruneOld));
    g_array_set_clear_func (self->old, old_clear);
    self->now_s = pruning->times.now_ns / ECFS_PRUNE_NS_PER_S;
    self->endpoint = ecfs_endpoint_new (spec, &own, error);
    if (self->endpoint != NULL)
        ecfs_endpoint_start (self->endpoint);
    return self->endpoint != NULL;
}

/* The journal */

typedef struct Listing {
    EcfsPruning *pruning;
    EcfsPrunePlace *place;
    GArray *found; /* of EcfsPruneDead */
} Listing;

static void on_journal (void *user, const EcfsListed *listed)
{
    Listing *self = user;
    EcfsPruneFile file = {
        .position = (size_t) (self->place - self->pruning->places), .size = listed->size, .mtime_s = listed->mtime_s};
    if (ecfs_journal_file_name_parse (listed->name, &file.file))
        g_array_append_val (self->pruning->times.files, file);
}

bool ecfs_prune_place_list_journal (EcfsPrunePlace *self, EcfsPruning *pruning, GError **error)
{
    Listing listing = {.pruning = pruning, .place = self};
    return ecfs_endpoint_list_wait (self->endpoint, ECFS_JOURNAL_DIRECTORY, on_journal, &listing, error) &&
           ecfs_endpoint_list_wait (self->endpoint, ECFS_SNAPSHOT_DIRECTORY, on_journal, &listing, error);
}

/* That it has the records which the archive has is compared, so it may also be open, from before there was a key. */
GPtrArray *ecfs_prune_place_load (const EcfsPruning *pruning, const EcfsPruneFile *file, EcfsJournalFile *ret_read)
{
    const EcfsPrunePlace *place = &pruning->places[file->position];
    char name[ECFS_JOURNAL_NAME_SIZE], own[ECFS_JOURNAL_NAME_SIZE];
    g_autoptr (GError) why = NULL;
    g_autoptr (GPtrArray) rows = NULL;
    ecfs_journal_file_name (&file->file, name);
    if (place->endpoint == NULL || file->size < ECFS_JOURNAL_HEADER_BYTES || file->size > JOURNAL_FILE_MOST)
        return NULL;
    g_autofree uint8_t *bytes = g_try_malloc (file->size);
    const EcfsRange range = {.size = file->size, .to = bytes};
    if (bytes != NULL && ecfs_endpoint_read_wait (place->endpoint, name, &range, 1, &why) &&
        ecfs_journal_file_head (bytes, file->size, ret_read, &why))
        rows = ecfs_journal_file_parse (
            bytes, file->size, ret_read->is_sealed ? ecfs_archive_keys (pruning->archive) : NULL, ret_read, &why);
    if (why != NULL)
        g_info ("endpoint %s: %s cannot be used: %s", place->name, name, why->message);
    if (rows == NULL)
        return NULL;
    ecfs_journal_file_name (ret_read, own);
    return g_str_equal (name, own) ? g_steal_pointer (&rows) : NULL;
}

GPtrArray *ecfs_prune_place_read_journal (void *user, const EcfsPruneFile *file)
{
    EcfsJournalFile read;
    return ecfs_prune_place_load (user, file, &read);
}

/* Judging */

typedef enum Fate {
    STAYS,   /* something has it, or had it within the time that is kept */
    DEAD,    /* it was something's, and is not any more */
    UNKNOWN, /* no record mentions it: it may be all that is left of a file */
} Fate;

/* Of a stripe that no record names alone, by its object. */
static bool judge_object (const EcfsPruning *pruning, const EcfsPruneDead *stripe, Fate *ret_fate, GError **error)
{
    const EcfsPrunePast *past = &pruning->past;
    EcfsCatalog *now = ecfs_archive_catalog (pruning->archive), *all = ecfs_archive_catalog (past->archive);
    EcfsDeath death;
    bool lives_now, lives;
    if (!ecfs_catalog_object_known (now, &stripe->object, &lives_now, error) ||
        !ecfs_catalog_object_known (all, &stripe->object, &lives, error) ||
        !ecfs_catalog_object_death (all, &stripe->object, &death, error))
        return false;
    if (death.number > past->death || death.is_marked)
        *ret_fate = STAYS;
    else if (lives_now || lives) /* what replaced it, or was to, may be among records that are missing */
        *ret_fate = UNKNOWN;
    else if (death.number > 0)
        *ret_fate = DEAD;
    else if (ecfs_prune_past_knew (past, &stripe->object))
        *ret_fate = pruning->has_marks ? STAYS : DEAD;
    else
        *ret_fate = UNKNOWN;
    return true;
}

static bool judge (const EcfsPruning *pruning, const EcfsPruneDead *stripe, Fate *ret_fate, GError **error)
{
    const EcfsPrunePast *past = &pruning->past;
    EcfsCatalog *now = ecfs_archive_catalog (pruning->archive), *all = ecfs_archive_catalog (past->archive);
    const EcfsStripeRow row = {.index = stripe->index, .instance = stripe->instance};
    bool is_alive, was_alive, is_lacking;
    EcfsDeath death;
    *ret_fate = STAYS;
    if (!ecfs_catalog_stripe_known (now, &stripe->object, &row, &is_alive, error) ||
        !ecfs_catalog_stripe_known (all, &stripe->object, &row, &was_alive, error) ||
        !ecfs_catalog_stripe_lacking (now, &stripe->object, stripe->index, &is_lacking, error))
        return false;
    if (is_alive || was_alive || is_lacking || ecfs_prune_past_keeps (past, &stripe->object))
        return true;
    if (!ecfs_catalog_death (all, &stripe->object, stripe->index, stripe->instance, &death, error))
        return false;
    if (death.number == 0)
        return judge_object (pruning, stripe, ret_fate, error);
    if (death.number <= past->death && !death.is_marked)
        *ret_fate = DEAD;
    return true;
}

static void on_stripe (void *user, const EcfsListed *listed)
{
    Listing *self = user;
    EcfsPruneDead stripe = {.size = listed->size, .mtime_s = listed->mtime_s};
    if (ecfs_stripe_name_parse (listed->name, &stripe.object, &stripe.index, &stripe.instance))
        g_array_append_val (self->found, stripe);
}

void ecfs_prune_add (EcfsPruneSum *sum, uint64_t bytes)
{
    sum->n++;
    sum->bytes += bytes;
}

static bool judge_all (EcfsPrunePlace *self, const EcfsPruning *pruning, const GArray *found, GError **error)
{
    for (guint i = 0; i < found->len; i++) {
        const EcfsPruneDead *stripe = &g_array_index (found, EcfsPruneDead, i);
        Fate fate;
        if (!judge (pruning, stripe, &fate, error))
            return false;
        const bool is_old = ecfs_prune_place_is_old (self, pruning, stripe->mtime_s);
        if (fate == UNKNOWN && is_old)
            ecfs_prune_add (&self->unknown, stripe->size);
        if (fate == DEAD)
            g_array_append_val (is_old ? self->dead : self->left, *stripe);
    }
    return true;
}

/* Headers: whoever has the account renames files, but makes no header without the key */

typedef struct Looking {
    const EcfsPruning *pruning;
    EcfsPrunePlace *place;
    EcfsPruneDead *stripe;
    bool is_young; /* its header is from after then */
} Looking;

static bool check_head (Looking *self, GError **error)
{
    char name[ECFS_STRIPE_NAME_SIZE];
    uint8_t head[HEAD_BYTES];
    const EcfsPruneDead *stripe = self->stripe;
    const EcfsPrunePast *past = &self->pruning->past;
    EcfsArchive *archive = self->pruning->archive;
    EcfsStripeHeader header = {.header_bytes = 0};
    g_autoptr (EcfsSealKeys) keys = NULL;
    const EcfsRange range = {.size = (size_t) MIN (stripe->size, sizeof head), .to = head};
    ecfs_stripe_name (&stripe->object, stripe->index, stripe->instance, name);
    if (range.size == 0) /* an upload that broke off before its first byte: there is nothing to be lost */
        return true;
    if (!ecfs_endpoint_read_wait (self->place->endpoint, name, &range, 1, error) ||
        !ecfs_stripe_header_parse (head, range.size, &header, error))
        return false;
    if (ecfs_archive_keys (archive) != NULL && header.seal.kind == ECFS_SEAL_NONE)
        return ecfs_fail (error, EBADMSG, "it is not sealed, and the archive has a key");
    if (!ecfs_seal_open (&header.seal, ecfs_archive_keys (archive), &header.object, &keys, error) ||
        !ecfs_stripe_header_check (&header, head, keys, error))
        return false;
    self->is_young = header.epoch > past->epoch || (header.epoch == past->epoch && header.sequence > past->sequence);
    return (ecfs_uuid_equal (&header.archive, ecfs_catalog_archive (ecfs_archive_catalog (archive))) &&
            ecfs_uuid_equal (&header.object, &stripe->object) && header.index == stripe->index &&
            header.instance == stripe->instance) ||
           ecfs_fail (error, EBADMSG, "its header is that of another stripe");
}

static void look (void *data)
{
    Looking *self = data;
    g_autoptr (GError) why = NULL;
    self->stripe->is_strange = !check_head (self, &why);
    if (why != NULL)
        g_info ("endpoint %s: %s", self->place->name, why->message);
}

static bool look_at_heads (EcfsPrunePlace *self, const EcfsPruning *pruning, GError **error)
{
    g_autofree Looking *looking = g_new0 (Looking, self->dead->len + 1);
    for (guint from = 0, to; from < self->dead->len; from = to) {
        to = MIN (from + BATCH, self->dead->len);
        EcfsWorkers *workers = ecfs_workers_new ("ecfs-prune", READERS);
        for (guint i = from; i < to; i++) {
            looking[i] =
                (Looking){.pruning = pruning, .place = self, .stripe = &g_array_index (self->dead, EcfsPruneDead, i)};
            ecfs_workers_push (workers, look, &looking[i]);
        }
        ecfs_workers_free (workers);
        if (!ecfs_prune_tick (pruning, self->name, to, self->dead->len, error))
            return false;
    }
    for (guint i = self->dead->len; i-- > 0;)
        if (looking[i].is_young) {
            g_array_append_val (self->left, *looking[i].stripe);
            g_array_remove_index_fast (self->dead, i);
        }
    return true;
}

static bool is_named (const char *const *names, const char *name)
{
    return names != NULL && g_strv_contains (names, name);
}

/* What is strange stays, but where that was asked for. */
static void sum_up (EcfsPrunePlace *self, const EcfsPruning *pruning)
{
    const bool strange_goes = is_named (pruning->what->unproven, self->name);
    for (guint i = self->dead->len; i-- > 0;) {
        const EcfsPruneDead stripe = g_array_index (self->dead, EcfsPruneDead, i);
        if (stripe.is_strange)
            ecfs_prune_add (&self->strange, stripe.size);
        if (stripe.is_strange && !strange_goes) {
            g_array_append_val (self->left, stripe);
            g_array_remove_index_fast (self->dead, i);
            continue;
        }
        ecfs_prune_add (&self->found, stripe.size);
        self->oldest_s = self->oldest_s == 0 ? stripe.mtime_s : MIN (self->oldest_s, stripe.mtime_s);
        self->newest_s = MAX (self->newest_s, stripe.mtime_s);
    }
}

bool ecfs_prune_place_look (EcfsPrunePlace *self, EcfsPruning *pruning, GError **error)
{
    g_autoptr (GArray) found = g_array_new (FALSE, FALSE, sizeof (EcfsPruneDead));
    Listing listing = {.pruning = pruning, .place = self, .found = found};
    g_clear_pointer (&self->dead, g_array_unref);
    self->dead = g_array_new (FALSE, FALSE, sizeof (EcfsPruneDead));
    g_array_set_size (self->left, 0);
    if (!ecfs_endpoint_list_wait (self->endpoint, "stripes", on_stripe, &listing, error) ||
        !judge_all (self, pruning, found, error) || !look_at_heads (self, pruning, error))
        return false;
    sum_up (self, pruning);
    return true;
}

/* Notes */

static void on_note (void *user, const EcfsListed *listed)
{
    int64_t *mtime_s = user;
    if (g_str_equal (listed->name, ECFS_PRUNE_NOTE))
        *mtime_s = listed->mtime_s;
}

/* Takes @why. */
static bool advise (GError **error, GError *why)
{
    const bool is_forbidden = why->code == EPERM || why->code == EACCES || why->code == EROFS;
    g_autoptr (GError) own = why;
    return ecfs_fail (error, own->code, "%s%s", own->message,
                      is_forbidden ? ": this takes a login that may delete there" : "");
}

/* There may be one of a run that was killed. */
static bool put_note (EcfsEndpoint *endpoint, const char *name, GError **error)
{
    char host[ECFS_MARKER_HOST_SIZE];
    GError *why = NULL;
    ecfs_marker_host (host);
    g_autofree char *text = g_strconcat (host, "\n", NULL);
    if (!ecfs_endpoint_remove_wait (endpoint, name, &why) && why->code != ENOENT)
        return advise (error, why);
    g_clear_error (&why);
    return ecfs_endpoint_write_wait (endpoint, name, text, strlen (text), error);
}

bool ecfs_prune_place_note (EcfsPrunePlace *self, GError **error)
{
    int64_t mtime_s = 0;
    self->has_note = true;
    if (!put_note (self->endpoint, ECFS_PRUNE_NOTE, error) ||
        !ecfs_endpoint_list_wait (self->endpoint, ECFS_SCRATCH_DIRECTORY, on_note, &mtime_s, error))
        return false;
    self->now_s = mtime_s;
    return mtime_s > 0 || ecfs_fail (error, ENOTSUP, "endpoint %s does not tell how old its files are", self->name);
}

/* Removing */

/* What is still dead of a batch; *ret_n of @names. */
static bool choose (const EcfsPrunePlace *self, const EcfsPruning *pruning, guint from, guint to,
                    char (*names)[ECFS_STRIPE_NAME_SIZE], guint *at, guint *ret_n, GError **error)
{
    *ret_n = 0;
    for (guint i = from; i < to; i++) {
        const EcfsPruneDead *stripe = &g_array_index (self->dead, EcfsPruneDead, i);
        Fate fate;
        if (!judge (pruning, stripe, &fate, error))
            return false;
        if (fate != DEAD || !ecfs_prune_place_is_old (self, pruning, stripe->mtime_s)) /* by its own clock now */
            continue;
        ecfs_stripe_name (&stripe->object, stripe->index, stripe->instance, names[*ret_n]);
        at[(*ret_n)++] = i;
    }
    return true;
}

/* Some files; @gone (n): which of them are not there any more. */
static bool remove_files (EcfsPrunePlace *self, const char *const *names, guint n, bool *gone, GError **error)
{
    GError *errors[BATCH] = {NULL};
    bool good = true;
    if (n > 0)
        ecfs_endpoint_remove_all_wait (self->endpoint, names, n, errors);
    for (guint i = 0; i < n; i++) {
        gone[i] = errors[i] == NULL || errors[i]->code == ENOENT;
        if (!gone[i] && good)
            good = advise (error, g_error_copy (errors[i]));
        g_clear_error (&errors[i]);
    }
    return good;
}

static bool remove_batch (EcfsPrunePlace *self, const EcfsPruning *pruning, guint from, guint to, GError **error)
{
    char names[BATCH][ECFS_STRIPE_NAME_SIZE];
    const char *pointers[BATCH] = {NULL};
    guint at[BATCH], n;
    bool gone[BATCH];
    if (!choose (self, pruning, from, to, names, at, &n, error))
        return false;
    for (guint i = 0; i < n; i++)
        pointers[i] = names[i];
    const bool good = remove_files (self, pointers, n, gone, error);
    for (guint i = 0; i < n; i++)
        if (gone[i])
            ecfs_prune_add (&self->removed, g_array_index (self->dead, EcfsPruneDead, at[i]).size);
    return good;
}

bool ecfs_prune_place_remove (EcfsPrunePlace *self, EcfsPruning *pruning, GError **error)
{
    bool good = true;
    for (guint from = 0, to; good && from < self->dead->len; from = to) {
        to = MIN (from + BATCH, self->dead->len);
        good = ecfs_prune_tick (pruning, self->name, from, self->dead->len, error) &&
               ecfs_prune_go_on (pruning, error) && remove_batch (self, pruning, from, to, error);
    }
    return good;
}

/* Files that are no stripes */

bool ecfs_prune_place_is_old (const EcfsPrunePlace *self, const EcfsPruning *pruning, int64_t mtime_s)
{
    return mtime_s > 0 && mtime_s < self->now_s - pruning->keep_us / G_USEC_PER_SEC;
}

void ecfs_prune_place_add_old (EcfsPrunePlace *self, EcfsPruneKind kind, const char *name, uint64_t size,
                               int64_t mtime_s)
{
    const EcfsPruneOld old = {.kind = kind, .name = g_strdup (name), .size = size, .mtime_s = mtime_s};
    ecfs_prune_add (&self->old_found[kind], size);
    g_array_append_val (self->old, old);
}

static bool remove_old_batch (EcfsPrunePlace *self, const EcfsPruning *pruning, guint from, guint to, GError **error)
{
    const char *names[BATCH] = {NULL};
    const EcfsPruneOld *files[BATCH];
    bool gone[BATCH];
    guint n = 0;
    for (guint i = from; i < to; i++) {
        const EcfsPruneOld *old = &g_array_index (self->old, EcfsPruneOld, i);
        if (!ecfs_prune_place_is_old (self, pruning, old->mtime_s)) /* by its own clock now */
            continue;
        names[n] = old->name;
        files[n++] = old;
    }
    const bool good = remove_files (self, names, n, gone, error);
    for (guint i = 0; i < n; i++)
        if (gone[i])
            ecfs_prune_add (&self->old_removed[files[i]->kind], files[i]->size);
    return good;
}

bool ecfs_prune_place_remove_old (EcfsPrunePlace *self, EcfsPruning *pruning, GError **error)
{
    bool good = true;
    for (guint from = 0, to; good && from < self->old->len; from = to) {
        to = MIN (from + BATCH, self->old->len);
        good = ecfs_prune_tick (pruning, self->name, from, self->old->len, error) &&
               ecfs_prune_go_on (pruning, error) && remove_old_batch (self, pruning, from, to, error);
    }
    return good;
}

bool ecfs_prune_place_end (EcfsPrunePlace *self, GError **error)
{
    return put_note (self->endpoint, ECFS_PRUNE_DONE_NOTE, error) &&
           ecfs_endpoint_remove_wait (self->endpoint, ECFS_PRUNE_NOTE, error);
}

static void find_note (void *user, const EcfsListed *listed)
{
    bool *found = user;
    *found = *found || g_str_equal (listed->name, ECFS_PRUNE_NOTE);
}

bool ecfs_prune_place_end_left (EcfsPrunePlace *self, GError **error)
{
    bool found = false;
    GError *why = NULL;
    if (!ecfs_endpoint_list_wait (self->endpoint, ECFS_SCRATCH_DIRECTORY, find_note, &found, &why)) {
        if (why->code == ENOENT) {
            g_error_free (why);
            return true;
        }
        g_propagate_error (error, why);
        return false;
    }
    return !found || ecfs_prune_place_end (self, error);
}

void ecfs_prune_place_clear (EcfsPrunePlace *self)
{
    ecfs_endpoint_free (g_steal_pointer (&self->endpoint));
    g_clear_pointer (&self->dead, g_array_unref);
    g_clear_pointer (&self->left, g_array_unref);
    g_clear_pointer (&self->old, g_array_unref);
    g_clear_error (&self->error);
}
