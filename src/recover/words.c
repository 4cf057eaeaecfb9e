/*
 * Whose word on the name and the attributes of a file counts, where no journal tells of it: an endpoint can put any
 * stripe anywhere, so as many have to say the same as of the journal, or all that the object's code takes stripes to,
 * where that is one that the archive uses.
 */
#include "recover/recover_priv.h"

/* Where the file has which bytes of which objects. */
static bool same_parts (const GArray *left, const GArray *right, size_t size)
{
    guint n_left = left == NULL ? 0 : left->len, n_right = right == NULL ? 0 : right->len;
    return n_left == n_right && (n_left == 0 || memcmp (left->data, right->data, n_left * size) == 0);
}

/* Whether they say the same of the file; that a stripe was stored later makes it another content. */
static bool say_the_same (const EcfsFileRecord *a, const EcfsFileRecord *b)
{
    return a->ino == b->ino && a->file_size == b->file_size && a->mode == b->mode && a->uid == b->uid &&
           a->gid == b->gid && a->mtime_ns == b->mtime_ns && g_strcmp0 (a->path, b->path) == 0 &&
           same_parts (a->ranges, b->ranges, sizeof (EcfsFileRange)) &&
           same_parts (a->elsewhere, b->elsewhere, sizeof (EcfsElsewhere));
}

/* Endpoints that say the same, each once; *ret_believed: the user said that the word of one counts alone. */
static size_t count_tellers (const EcfsRecovering *self, const GArray *words, const EcfsFileRecord *record,
                             bool *ret_believed)
{
    size_t n_tellers = 0;
    g_autofree bool *seen = g_new0 (bool, self->n_places + 1);
    *ret_believed = false;
    for (guint i = 0; i < words->len; i++) {
        const EcfsStrayWord *word = &g_array_index (words, EcfsStrayWord, i);
        const EcfsRecoverPlace *place = &self->places[word->position];
        if (seen[word->position] || place->distrusted || !say_the_same (word->record, record))
            continue;
        seen[word->position] = true;
        n_tellers++;
        *ret_believed = *ret_believed || place->believed;
    }
    return n_tellers;
}

static bool is_in_use (EcfsRecovering *self, const char *code, bool *ret_used, GError **error)
{
    g_autoptr (GPtrArray) codes = ecfs_catalog_codes_in_use (self->catalog, error);
    *ret_used = false;
    for (guint i = 0; codes != NULL && i < codes->len; i++)
        *ret_used = *ret_used || g_str_equal (g_ptr_array_index (codes, i), code);
    return codes != NULL;
}

static bool count_wanted (EcfsRecovering *self, const EcfsStray *stray, size_t *ret_wanted, GError **error)
{
    bool used;
    *ret_wanted = ecfs_recover_least_words (self);
    if (ecfs_codec_n (stray->codec) >= *ret_wanted)
        return true;
    if (!is_in_use (self, stray->row->code, &used, error))
        return false;
    *ret_wanted = used ? ecfs_codec_n (stray->codec) : *ret_wanted;
    return true;
}

static bool is_of_content (const EcfsStrayWord *word, const EcfsStrayWord *other)
{
    return word->record->ino == other->record->ino && ecfs_uuid_equal (&word->record->content, &other->record->content);
}

bool ecfs_recover_judge_words (EcfsRecovering *self, EcfsStray *stray, GError **error)
{
    size_t n_wanted;
    GArray *words = stray->words;
    if (!count_wanted (self, stray, &n_wanted, error))
        return false;
    for (guint i = 0; i < words->len; i++) {
        EcfsStrayWord *word = &g_array_index (words, EcfsStrayWord, i);
        size_t n_tellers = count_tellers (self, words, word->record, &word->believed);
        /* What is sealed nobody says falsely. */
        bool is_authentic = self->keys != NULL && stray->row->seal.kind != ECFS_SEAL_NONE;
        word->believed = word->believed || is_authentic || n_tellers >= n_wanted;
    }
    return true;
}

char *ecfs_recover_tellers (const EcfsRecovering *self, const EcfsStray *stray, const EcfsFileRecord *record)
{
    GString *names = g_string_new (NULL);
    g_autofree bool *seen = g_new0 (bool, self->n_places + 1);
    for (guint i = 0; i < stray->words->len; i++) {
        const EcfsStrayWord *word = &g_array_index (stray->words, EcfsStrayWord, i);
        if (seen[word->position] || !say_the_same (word->record, record))
            continue;
        seen[word->position] = true;
        g_string_append_printf (names, "%s%s", names->len == 0 ? "" : ", ", self->places[word->position].name);
    }
    return g_string_free (names, FALSE);
}

const EcfsStrayWord *ecfs_recover_best_word (const EcfsStray *stray, guint at)
{
    const EcfsStrayWord *first = &g_array_index (stray->words, EcfsStrayWord, at), *best = first;
    for (guint i = 0; i < stray->words->len; i++) {
        const EcfsStrayWord *word = &g_array_index (stray->words, EcfsStrayWord, i);
        if (!is_of_content (word, first))
            continue;
        if (i < at)
            return NULL; /* it was looked at with that one */
        if (word->believed && !best->believed)
            best = word;
    }
    return best;
}
