/* Stripes, as endpoints have them: whether there are enough of every object, and what no journal tells of. */
#include "archive/keys.h"
#include "recover/recover_priv.h"
#include "util/text.h"

#include <inttypes.h>

#define OBJECTS_AT_ONCE 1000

/* Objects of the catalog */

static void tell_lost (EcfsRecovering *self, const EcfsObjectRow *object)
{
    uint64_t ino;
    uint64_t live = 0;
    if (object->kind != ECFS_OBJECT_WHOLE && ecfs_catalog_live_bytes (self->catalog, object->id, &live, NULL) &&
        live == 0) /* it is on its way in or out */
        return;
    if (++self->sums->n_lost > ECFS_RECOVER_TOLD_MOST)
        return;
    g_autofree char *path = ecfs_catalog_object_file (self->catalog, object->id, &ino, NULL)
                                ? ecfs_catalog_path (self->catalog, ino)
                                : g_strdup ("an object of no file");
    ecfs_recover_tell (self, "%s%s cannot be read: too few of %s stripes are on these endpoints", path,
                       object->kind == ECFS_OBJECT_WHOLE ? "" : ", and small files with it,",
                       object->kind == ECFS_OBJECT_WHOLE ? "its" : "their");
}

static bool check_objects (EcfsRecovering *self, const EcfsRecoverPieces *all, GError **error)
{
    EcfsTotals totals;
    int64_t after = 0;
    uint64_t n_checked = 0;
    if (!ecfs_catalog_totals (self->catalog, &totals, error))
        return false;
    for (;;) {
        g_autoptr (GPtrArray) objects = ecfs_catalog_objects (self->catalog, after, OBJECTS_AT_ONCE, error);
        if (objects == NULL || objects->len == 0)
            return objects != NULL;
        if (!ecfs_recover_instances (self, all, objects, error))
            return false;
        for (guint i = 0; i < objects->len; i++) {
            const EcfsObjectRow *object = g_ptr_array_index (objects, i);
            after = object->id;
            if (!ecfs_recover_is_whole (self, all, object))
                tell_lost (self, object);
            if (self->what->at_ns != 0 && !ecfs_recover_forget_gone (self, all, object, error))
                return false;
        }
        n_checked += objects->len;
        if (!ecfs_recover_tick (self, "looking for stripes", n_checked, totals.n_objects, error))
            return false;
    }
}

static void read_all (EcfsRecovering *self, GArray *told)
{
    EcfsWorkers *workers = ecfs_workers_new ("ecfs-recover", ecfs_recover_n_readers (self));
    for (guint i = 0; i < told->len; i++)
        ecfs_workers_push (workers, ecfs_recover_told_read, &g_array_index (told, EcfsRecoverTold, i));
    ecfs_workers_free (workers);
}

/* Which pieces are of objects that a file may have, and no journal tells of */

/* What a journal tells of an object: of all but logs, all. */
static bool find_told (EcfsRecovering *self, const EcfsUuid *object, EcfsObjectRow **ret_row, GError **error)
{
    g_autoptr (GError) why = NULL;
    EcfsObjectRow *row = *ret_row = ecfs_recover_object (self, object, &why);
    if (row != NULL || why->code == ENOENT)
        return true;
    g_propagate_error (error, g_steal_pointer (&why));
    return false;
}

/* The pieces that a journal does not account for; where none was found, all. */
static GArray *find_strays (EcfsRecovering *self, const EcfsRecoverPieces *all, GError **error)
{
    g_autoptr (GArray) told = g_array_new (FALSE, TRUE, sizeof (EcfsRecoverTold));
    g_array_set_clear_func (told, ecfs_recover_told_clear);
    for (size_t at = 0, end; at < all->len; at = end) {
        g_autoptr (EcfsObjectRow) row = NULL;
        end = ecfs_recover_end_of_object (all, at);
        if (!find_told (self, &all->at[at].object, &row, error))
            return NULL;
        for (size_t i = at; i < end && (row == NULL || row->kind == ECFS_OBJECT_LOG); i++) {
            EcfsRecoverTold one = {.piece = &all->at[i],
                                   .recovering = self,
                                   .is_known = row != NULL,
                                   .is_unknown = row == NULL,
                                   .known_end = row == NULL ? 0 : row->size,
                                   .may_be_open = row != NULL && row->seal.kind == ECFS_SEAL_NONE};
            g_array_append_val (told, one);
        }
    }
    read_all (self, told);
    return g_steal_pointer (&told);
}

bool ecfs_recover_may_be_content (EcfsRecovering *self, const EcfsStripeHeader *header, bool *ret_may, GError **error)
{
    *ret_may = header->epoch > self->journal_epoch ||
               (header->epoch == self->journal_epoch && header->sequence > self->sums->sequence);
    return *ret_may || ecfs_restore_was_open (self->restore, &header->object, ret_may, error);
}

static void stray_free (gpointer data)
{
    EcfsStray *self = data;
    if (self->owns_row)
        ecfs_object_row_free (self->row);
    g_array_unref (self->words);
    g_free (self);
}

static bool same_object (const EcfsRecoverTold *a, const EcfsRecoverTold *b)
{
    return a->header.epoch == b->header.epoch && a->header.sequence == b->header.sequence &&
           a->header.family == b->header.family && a->header.k == b->header.k &&
           a->header.segment_bytes == b->header.segment_bytes && a->header.block_bytes == b->header.block_bytes &&
           a->header.header_bytes == b->header.header_bytes && ecfs_seal_equal (&a->header.seal, &b->header.seal) &&
           a->header.is_log == b->header.is_log && a->footer.is_pack == b->footer.is_pack &&
           (a->header.is_log || /* which grows */
            (a->footer.size == b->footer.size &&
             memcmp (a->footer.object_digest, b->footer.object_digest, ECFS_DIGEST_SIZE) == 0));
}

/* One for all stripes of the same code. */
static EcfsCodec *codec_of_stripe (EcfsRecovering *self, const EcfsStripeHeader *header, GError **error)
{
    EcfsCodec *codec = ecfs_stripe_codec (header, error);
    if (codec == NULL)
        return NULL;
    if (self->codecs == NULL)
        self->codecs = g_hash_table_new_full (g_str_hash, g_str_equal, NULL, (GDestroyNotify) ecfs_codec_free);
    EcfsCodec *known = g_hash_table_lookup (self->codecs, ecfs_codec_identity (codec));
    if (known == NULL)
        g_hash_table_insert (self->codecs, (char *) ecfs_codec_identity (codec), codec);
    else
        ecfs_codec_free (codec);
    return known == NULL ? codec : known;
}

static EcfsStray *stray_new (EcfsRecovering *self, const EcfsRecoverTold *told)
{
    g_autoptr (GError) error = NULL;
    const EcfsStripeHeader *header = &told->header;
    if ((told->footer.records->len == 0 && !header->is_log) || header->sequence > INT64_MAX)
        return NULL;
    EcfsCodec *codec = codec_of_stripe (self, header, &error);
    if (codec == NULL)
        return NULL;
    EcfsStray *stray = g_new0 (EcfsStray, 1);
    *stray = (EcfsStray){.row = ecfs_object_row_new (),
                         .owns_row = true,
                         .codec = codec,
                         .words = g_array_new (FALSE, FALSE, sizeof (EcfsStrayWord))};
    EcfsObjectRow *row = stray->row;
    row->kind = header->is_log ? ECFS_OBJECT_LOG : told->footer.is_pack ? ECFS_OBJECT_PACK : ECFS_OBJECT_WHOLE;
    row->uuid = header->object;
    row->epoch = header->epoch;
    row->sequence = header->sequence;
    row->code = g_strdup (ecfs_codec_identity (codec));
    row->size = told->footer.size;
    row->segment_bytes = header->segment_bytes;
    row->block_bytes = header->block_bytes;
    row->header_bytes = header->header_bytes;
    row->seal = header->seal;
    memcpy (row->digest, told->footer.object_digest, sizeof row->digest);
    self->sequence = MAX (self->sequence, header->sequence);
    return stray;
}

/* Each content that some stripe tells of is a way to have the file. */
static void add_words (EcfsStray *stray, const EcfsRecoverTold *told)
{
    const guint n_records =
        stray->row->kind == ECFS_OBJECT_WHOLE ? MIN (told->footer.records->len, 1) : told->footer.records->len;
    for (guint i = 0; i < n_records; i++) {
        const EcfsStrayWord word = {.record = told->footer.records->pdata[i], .position = told->piece->position};
        g_array_append_val (stray->words, word);
    }
}

/* Of several instances of a stripe the first whose packets are what its footer says. *last: what was added last. */
static void add_stripe (EcfsRecovering *self, EcfsStray *stray, const EcfsRecoverTold *told,
                        const EcfsRecoverTold **last)
{
    EcfsStripeRow stripe = {.index = told->piece->index,
                            .instance = told->piece->instance,
                            .endpoint = self->places[told->piece->position].id,
                            .size = told->piece->size};
    memcpy (stripe.digest, told->footer.area_digest, sizeof stripe.digest);
    GArray *stripes = stray->row->stripes;
    if (stripe.index >= ecfs_codec_n (stray->codec) || stripe.instance == 0 || stripe.instance > INT64_MAX)
        return;
    if (stray->row->kind == ECFS_OBJECT_LOG)
        stripe.size = 0;
    if (*last != NULL && (*last)->piece->index == stripe.index) {
        if (stray->row->kind == ECFS_OBJECT_LOG || ecfs_recover_told_fits (*last, (*last)->footer.area_digest))
            return;
        g_array_set_size (stripes, stripes->len - 1);
    }
    g_array_append_val (stripes, stripe);
    *last = told;
}

static bool is_decodable (const EcfsStray *stray)
{
    bool present[ECFS_CODEC_MAX_N] = {false};
    for (guint i = 0; i < stray->row->stripes->len; i++)
        present[g_array_index (stray->row->stripes, EcfsStripeRow, i).index] = true;
    return ecfs_codec_decodable (stray->codec, present);
}

/* Of a log that the catalog knows it is what that tells; false: it is another. */
static bool take_known (EcfsRecovering *self, EcfsStray *stray)
{
    EcfsObjectRow *told = stray->row, *known = ecfs_recover_object (self, &told->uuid, NULL);
    if (known == NULL)
        return true;
    stray->row = known;
    bool same = known->kind == ECFS_OBJECT_LOG && known->epoch == told->epoch && known->sequence == told->sequence &&
                known->segment_bytes == told->segment_bytes && known->block_bytes == told->block_bytes &&
                known->header_bytes == told->header_bytes && ecfs_seal_equal (&known->seal, &told->seal);
    ecfs_object_row_free (told);
    return same;
}

/* What the stripes from @at to @end that agree with the first of them make; NULL: nothing. */
static EcfsStray *gather_alike (EcfsRecovering *self, const GArray *told, guint at, guint end)
{
    const EcfsRecoverTold *first = &g_array_index (told, EcfsRecoverTold, at);
    const EcfsRecoverTold *last = NULL;
    EcfsStray *stray = stray_new (self, first);
    g_autoptr (GPtrArray) alike = g_ptr_array_new ();
    for (guint i = at; stray != NULL && i < end; i++) {
        const EcfsRecoverTold *one = &g_array_index (told, EcfsRecoverTold, i);
        if (!one->good || !same_object (first, one))
            continue;
        add_stripe (self, stray, one, &last);
        add_words (stray, one);
        g_ptr_array_add (alike, (gpointer) one);
    }
    if (stray != NULL && first->header.is_log && !take_known (self, stray))
        g_clear_pointer (&stray, stray_free);
    if (stray != NULL && first->header.is_log)
        ecfs_recover_set_log_ends (self, stray->row, (const EcfsRecoverTold *const *) (void *) alike->pdata,
                                   alike->len);
    if (stray != NULL && !is_decodable (stray))
        g_clear_pointer (&stray, stray_free);
    return stray;
}

/* Where its stripes are not: at endpoints that are not given, or that were never there. */
static void note_spread (EcfsRecovering *self, const EcfsStray *stray)
{
    const GArray *stripes = stray->row->stripes;
    bool doubled = false;
    for (guint i = 0; i < stripes->len; i++)
        for (guint j = 0; j < i && !doubled; j++)
            doubled = g_array_index (stripes, EcfsStripeRow, i).endpoint ==
                      g_array_index (stripes, EcfsStripeRow, j).endpoint;
    self->has_doubled = self->has_doubled || doubled;
    self->n_lacking += stripes->len < ecfs_codec_n (stray->codec);
}

/* One object of those that @told is about, from @at to @end: where its stripes do not agree, what most of them say.
 * NULL: it cannot be content, or error. */
static EcfsStray *gather_stray (EcfsRecovering *self, const GArray *told, guint at, guint end)
{
    bool any = false, is_known = false;
    EcfsStray *best = NULL;
    for (guint i = at; i < end; i++) {
        const EcfsRecoverTold *one = &g_array_index (told, EcfsRecoverTold, i);
        bool may, seen = false;
        self->sums->n_foreign += !one->good;
        for (guint j = at; j < i && !seen; j++)
            seen = g_array_index (told, EcfsRecoverTold, j).good &&
                   same_object (&g_array_index (told, EcfsRecoverTold, j), one);
        if (!one->good || seen)
            continue;
        may = one->is_known || !one->is_over;
        is_known = is_known || one->is_known;
        self->n_given_up +=
            !one->is_known && one->header.epoch < self->journal_epoch && one->header.sequence > self->sums->sequence;
        any = any || may;
        EcfsStray *stray = may ? gather_alike (self, told, i, end) : NULL;
        if (stray != NULL && (best == NULL || stray->row->stripes->len > best->row->stripes->len)) {
            g_clear_pointer (&best, stray_free);
            best = g_steal_pointer (&stray);
        }
        g_clear_pointer (&stray, stray_free);
    }
    self->sums->n_lost_strays += any && best == NULL;
    if (best != NULL && !is_known)
        note_spread (self, best);
    return best;
}

static guint hash_record (gconstpointer key)
{
    const EcfsFileRecord *record = key;
    return ecfs_uuid_hash (&record->content) ^ g_int64_hash (&record->ino);
}

static gboolean same_record (gconstpointer a, gconstpointer b)
{
    const EcfsFileRecord *left = a, *right = b;
    return left->ino == right->ino && ecfs_uuid_equal (&left->content, &right->content);
}

/* One stray for each of the files of an object that they share. */
static void split (EcfsStray *whole, GPtrArray *strays)
{
    g_autoptr (GHashTable) parts = g_hash_table_new (hash_record, same_record);
    for (guint i = 0; i < whole->words->len; i++) {
        const EcfsStrayWord *word = &g_array_index (whole->words, EcfsStrayWord, i);
        EcfsStray *part = g_hash_table_lookup (parts, word->record);
        if (part == NULL) {
            part = g_new (EcfsStray, 1);
            *part = (EcfsStray){.row = whole->row,
                                .owns_row = whole->owns_row,
                                .codec = whole->codec,
                                .words = g_array_new (FALSE, FALSE, sizeof *word)};
            whole->owns_row = false;
            g_hash_table_insert (parts, (gpointer) word->record, part);
            g_ptr_array_add (strays, part);
        }
        g_array_append_val (part->words, *word);
    }
    stray_free (whole);
}

static bool judge_from (EcfsRecovering *self, const GPtrArray *strays, guint from, GError **error)
{
    for (guint i = from; i < strays->len; i++)
        if (!ecfs_recover_judge_words (self, g_ptr_array_index (strays, i), error))
            return false;
    return true;
}

static GPtrArray *gather_strays (EcfsRecovering *self, const GArray *told, GError **error)
{
    g_autoptr (GPtrArray) strays = g_ptr_array_new_with_free_func (stray_free);
    for (guint at = 0, end; at < told->len; at = end) {
        const EcfsUuid *object = &g_array_index (told, EcfsRecoverTold, at).piece->object;
        for (end = at;
             end < told->len && ecfs_uuid_equal (&g_array_index (told, EcfsRecoverTold, end).piece->object, object);)
            end++;
        const guint n_before = strays->len;
        EcfsStray *stray = gather_stray (self, told, at, MIN (end, at + ECFS_RECOVER_STRIPES_MOST));
        if (stray != NULL && stray->row->kind == ECFS_OBJECT_WHOLE)
            g_ptr_array_add (strays, stray);
        else if (stray != NULL)
            split (stray, strays);
        if (!judge_from (self, strays, n_before, error))
            return NULL;
    }
    return g_steal_pointer (&strays);
}

static void tell_rest (EcfsRecovering *self)
{
    const EcfsRecovered *sums = self->sums;
    if (sums->n_hinted > ECFS_RECOVER_TOLD_MOST)
        ecfs_recover_tell (self, "%" PRIu64 " files in all are named by hints in their stripes", sums->n_hinted);
    if (sums->n_set_apart > ECFS_RECOVER_TOLD_MOST)
        ecfs_recover_tell (self, "%" PRIu64 " files in all are set apart in this way", sums->n_set_apart);
    if (sums->n_partial > ECFS_RECOVER_TOLD_MOST)
        ecfs_recover_tell (self, "%" PRIu64 " files in all have only a part of their content", sums->n_partial);
    if (sums->n_lost > ECFS_RECOVER_TOLD_MOST)
        ecfs_recover_tell (self, "%" PRIu64 " objects in all cannot be read", sums->n_lost);
    if (self->n_exchanged > 0)
        ecfs_recover_tell (self,
                           "%" PRIu64 " stripes that the journal names are gone or damaged, and others that have the "
                           "same content take their places",
                           self->n_exchanged);
    if (self->n_given_up > 0)
        ecfs_recover_tell (self,
                           "%" PRIu64 " objects were stored by a copy of the archive directory that was given up when "
                           "another was recovered; they are left alone",
                           self->n_given_up);
    if (self->n_open > 0)
        ecfs_recover_tell (self,
                           "%" PRIu64 " stripes are from before the archive had its key, and anybody who has these "
                           "endpoints can read them: 'ecfs fsck --prune' removes them",
                           self->n_open);
    if (sums->n_lost_strays > 0)
        ecfs_recover_tell (self,
                           "%" PRIu64 " objects that no journal mentions have too few stripes on these endpoints: they "
                           "were not finished, or are lost",
                           sums->n_lost_strays);
    if (self->n_lacking > 0) {
        g_autofree char *directory = ecfs_recover_directory_word (self);
        g_autofree char *advice =
            self->what->dry_run || self->what->read_only
                ? g_strdup ("give it too")
                : g_strdup_printf ("add it with 'ecfs endpoint add %s NAME=URL'; 'ecfs fsck -y %s' rebuilds what is "
                                   "missing",
                                   directory, directory);
        ecfs_recover_tell (self,
                           "stripes of %" PRIu64 " objects are at none of the endpoints that are given: if there is "
                           "another one, %s",
                           self->n_lacking, advice);
    }
    if (sums->n_foreign > 0)
        ecfs_recover_tell (self, "%" PRIu64 " stripes are of another archive or damaged; they are left alone",
                           sums->n_foreign);
}

/* What lies open, and is nothing that the archive has still. */
static bool note_open (EcfsRecovering *self, const GArray *told, GError **error)
{
    EcfsOpenEnd end;
    self->n_open = 0;
    if (!ecfs_keys_end (self->catalog, &end, error))
        return false;
    for (guint i = 0; i < told->len; i++) {
        const EcfsRecoverTold *one = &g_array_index (told, EcfsRecoverTold, i);
        const EcfsStripeHeader *header = &one->header;
        self->n_open += one->is_open &&
                        (header->epoch < end.epoch || (header->epoch == end.epoch && header->sequence <= end.sequence));
    }
    return self->keys == NULL || self->what->dry_run || ecfs_keys_note_strays (self->catalog, self->n_open, error);
}

static bool look (EcfsRecovering *self, const EcfsRecoverPieces *all, GError **error)
{
    if (!check_objects (self, all, error))
        return false;
    if (self->what->at_ns != 0) { /* what no journal mentions came later */
        tell_rest (self);
        return true;
    }
    self->pieces = all;
    g_autoptr (GArray) told = find_strays (self, all, error);
    g_autoptr (GPtrArray) strays = told == NULL ? NULL : gather_strays (self, told, error);
    bool put = strays != NULL && note_open (self, told, error) && ecfs_recover_strays (self, strays, error);
    self->pieces = NULL;
    if (put)
        tell_rest (self);
    return put;
}

bool ecfs_recover_objects (EcfsRecovering *self, GError **error)
{
    EcfsRecoverPieces all;
    if (self->what->watch != NULL) /* who wants to know what there was asks for no content */
        return true;
    bool looked = ecfs_recover_pieces (self, &all, error) && look (self, &all, error);
    ecfs_recover_pieces_clear (&all);
    return looked;
}
