/*
 * Files of what only stripes tell of. What a stripe says of a file names the content that its object belongs to, and
 * which other objects the file has: only where all of these are there the file gets its name. Else what there is goes
 * below /recovered as NAME.UUID.partial, with holes for the rest.
 */
#include "recover/recover_priv.h"

#include <inttypes.h>
#include <sys/stat.h>

#define APART       "recovered"
#define BESIDE_MOST 1000000 /* files of one name that an object may have */
#define GAPS_TOLD   5

/* That an object is of a content. */
typedef struct Claim {
    EcfsStray *stray;
    const EcfsFileRecord *record;
    bool believed; /* enough endpoints say that of the file */
} Claim;

/* One content of a file, and what there is of it. */
typedef struct Content {
    const EcfsFileRecord *record; /* that tells most: the last object's, if it is there */
    GArray *claims;               /* of Claim, one for each object */
    GArray *extents;              /* of EcfsExtent */
    GPtrArray *objects;           /* const EcfsObjectRow, which the extents index */
    GPtrArray *known;             /* of these, the catalog's: owned */
    uint32_t epoch;               /* of the newest object, as the next */
    uint64_t sequence;
    bool is_logged; /* it is in a log, and what was begun with that number came before it */
    bool is_shared; /* it is in a log or a pack */
    uint64_t begun; /* the log or the pack */
    bool whole;
    bool believed; /* what all of its objects tell of the file */
    bool forged;   /* its bytes are not what its stripes say */
} Content;

typedef struct Strays {
    EcfsRecovering *recovering;
    GHashTable *by_uuid; /* EcfsStray by EcfsUuid */
    uint64_t next_ino;   /* of the journal's tree */
} Strays;

static void content_free (gpointer data)
{
    Content *self = data;
    g_array_unref (self->claims);
    g_array_unref (self->extents);
    g_ptr_array_unref (self->objects);
    g_ptr_array_unref (self->known);
    g_free (self);
}

/* Contents */

static int compare_u64 (uint64_t left, uint64_t right)
{
    return (left > right) - (left < right);
}

/* Claims of one content behind each other: those that tell of none are of one where size and time are the same. */
static int compare_contents (const EcfsFileRecord *left, const EcfsFileRecord *right)
{
    int order = compare_u64 (left->ino, right->ino);
    order = order != 0 ? order : memcmp (&left->content, &right->content, sizeof left->content);
    if (order != 0 || !ecfs_uuid_is_nil (&left->content))
        return order;
    order = compare_u64 (left->file_size, right->file_size);
    return order != 0 ? order : (left->mtime_ns > right->mtime_ns) - (left->mtime_ns < right->mtime_ns);
}

/* In a content by number, what is believed first, and what more stripes tell of; the newest first where no content is
 * told. */
static int compare_claims (const void *a, const void *b)
{
    const Claim *left = a, *right = b;
    int order = compare_contents (left->record, right->record);
    order = order != 0 ? order : compare_u64 (left->record->number, right->record->number);
    order = order != 0 ? order : right->believed - left->believed;
    if (order == 0 && !ecfs_uuid_is_nil (&left->record->content))
        order = compare_u64 (right->stray->row->stripes->len, left->stray->row->stripes->len);
    order = order != 0 ? order : compare_u64 (right->stray->row->epoch, left->stray->row->epoch);
    return order != 0 ? order : compare_u64 (right->stray->row->sequence, left->stray->row->sequence);
}

/* Of two records of one log that nothing came between, the later counts. */
static uint64_t offset_in_log (const Content *self)
{
    return self->extents->len == 0 ? 0 : g_array_index (self->extents, EcfsExtent, 0).object_offset;
}

static int by_inode_newest_first (const void *a, const void *b)
{
    const Content *left = *(const Content *const *) a, *right = *(const Content *const *) b;
    int order = compare_u64 (left->record->ino, right->record->ino);
    order = order != 0 ? order : compare_u64 (right->epoch, left->epoch);
    order = order != 0 ? order : compare_u64 (right->sequence, left->sequence);
    order = order != 0 ? order : right->is_logged - left->is_logged;
    if (order != 0 || !left->is_logged)
        return order;
    order = compare_u64 (right->begun, left->begun);
    return order != 0 ? order : compare_u64 (offset_in_log (right), offset_in_log (left));
}

static int by_offset (const void *a, const void *b)
{
    const EcfsExtent *left = a, *right = b;
    return compare_u64 (left->offset, right->offset);
}

/* Adds a range of the file that object @index has; false: it is impossible, or another has some of it. @of: what tells
 * of an object that others share; NULL: it is none. */
static bool add_extent (Content *self, uint64_t file_size, const EcfsFileRange *range, guint index,
                        const EcfsFileRecord *of)
{
    const EcfsObjectRow *row = g_ptr_array_index (self->objects, index);
    bool fits = file_size <= INT64_MAX && range->length > 0 && range->file_offset <= file_size &&
                range->length <= file_size - range->file_offset && range->object_offset <= row->size &&
                range->length <= row->size - range->object_offset;
    for (guint i = 0; i < self->extents->len && fits; i++) {
        const EcfsExtent *other = &g_array_index (self->extents, EcfsExtent, i);
        fits =
            range->file_offset + range->length <= other->offset || other->offset + other->length <= range->file_offset;
    }
    EcfsExtent extent = {
        .offset = range->file_offset, .length = range->length, .object = index, .object_offset = range->object_offset};
    if (of != NULL) {
        extent.generation = of->generation;
        extent.has_sha256 = of->has_sha256;
        memcpy (extent.sha256, of->sha256, sizeof extent.sha256);
    }
    if (fits)
        g_array_append_val (self->extents, extent);
    return fits;
}

/* All ranges of a claim, or none. */
static bool add_claim (Content *self, const Claim *claim)
{
    guint n_before = self->extents->len;
    g_ptr_array_add (self->objects, claim->stray->row);
    for (guint i = 0; i < claim->record->ranges->len; i++) {
        const EcfsFileRange *range = &g_array_index (claim->record->ranges, EcfsFileRange, i);
        if (add_extent (self, self->record->file_size, range, self->objects->len - 1,
                        claim->stray->row->kind == ECFS_OBJECT_WHOLE ? NULL : claim->record))
            continue;
        g_array_set_size (self->extents, n_before);
        g_ptr_array_set_size (self->objects, (int) self->objects->len - 1);
        return false;
    }
    return true;
}

/* An object that the content did not make; NULL: it is not there, or not enough of it is. */
static const EcfsObjectRow *find_elsewhere (const Strays *strays, Content *self, const EcfsUuid *uuid)
{
    const EcfsStray *stray = g_hash_table_lookup (strays->by_uuid, uuid);
    if (stray != NULL)
        return stray->row;
    g_autoptr (EcfsObjectRow) row = ecfs_recover_object (strays->recovering, uuid, NULL);
    if (row == NULL || !ecfs_recover_is_whole (strays->recovering, strays->recovering->pieces, row))
        return NULL;
    g_ptr_array_add (self->known, row);
    return g_steal_pointer (&row);
}

static bool add_elsewhere (const Strays *strays, Content *self, const GArray *elsewhere)
{
    bool all = true;
    for (guint i = 0; elsewhere != NULL && i < elsewhere->len; i++) {
        const EcfsElsewhere *part = &g_array_index (elsewhere, EcfsElsewhere, i);
        const EcfsFileRange range = {
            .file_offset = part->file_offset, .length = part->length, .object_offset = part->object_offset};
        guint index = self->objects->len;
        for (guint j = 0; j < self->objects->len && index == self->objects->len; j++)
            if (ecfs_uuid_equal (&((const EcfsObjectRow *) self->objects->pdata[j])->uuid, &part->object))
                index = j;
        const EcfsObjectRow *row = index < self->objects->len ? NULL : find_elsewhere (strays, self, &part->object);
        if (row != NULL)
            g_ptr_array_add (self->objects, (gpointer) row);
        all = index < self->objects->len && add_extent (self, self->record->file_size, &range, index, NULL) && all;
    }
    return all;
}

/* Whether the objects are all that the content has, which the last tells. */
static bool has_all_numbers (const Content *self)
{
    for (guint i = 0; i < self->claims->len; i++) {
        const EcfsFileRecord *record = g_array_index (self->claims, Claim, i).record;
        bool last = i == self->claims->len - 1;
        if (record->number != i || (record->n_objects != self->claims->len && (last || record->n_objects != 0)))
            return false;
    }
    return true;
}

/*
 * Stripes from before contents were told: objects were 16 GiB but for the last, so nothing is missing where no whole
 * object fits in front of the last, and that is shorter.
 */
static bool is_whole_by_sizes (const Content *self)
{
    uint64_t held = 0, end = 0;
    const EcfsObjectRow *last = NULL;
    for (guint i = 0; i < self->extents->len; i++) {
        const EcfsExtent *extent = &g_array_index (self->extents, EcfsExtent, i);
        held += extent->length;
        if (extent->offset + extent->length > end)
            last = g_ptr_array_index (self->objects, (guint) extent->object);
        end = MAX (end, extent->offset + extent->length);
    }
    return last != NULL && last->size < ECFS_OBJECT_MAX_BYTES && end - held < ECFS_OBJECT_MAX_BYTES;
}

/* What there is of the content that the claims from @at to @end tell of. */
static Content *content_new (const Strays *strays, const GArray *claims, guint at, guint end)
{
    Content *self = g_new0 (Content, 1);
    const Claim *first = &g_array_index (claims, Claim, at);
    const bool told = !ecfs_uuid_is_nil (&first->record->content);
    *self = (Content){.record = told ? g_array_index (claims, Claim, end - 1).record : first->record,
                      .claims = g_array_new (FALSE, FALSE, sizeof (Claim)),
                      .extents = g_array_new (FALSE, FALSE, sizeof (EcfsExtent)),
                      .objects = g_ptr_array_new (),
                      .known = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_object_row_free)};
    bool fits = true;
    self->believed = true;
    for (guint i = at; i < end; i++) {
        const Claim *claim = &g_array_index (claims, Claim, i);
        const EcfsObjectRow *row = claim->stray->row;
        /* Of an object that others share it may be older than that. */
        const uint64_t sequence = row->kind == ECFS_OBJECT_WHOLE ? row->sequence : claim->record->generation;
        if (told && i > at && claim->record->number == g_array_index (claims, Claim, i - 1).record->number)
            continue;
        if (!add_claim (self, claim)) {
            fits = !told; /* without contents it is older, and what newer ones have does not count */
            continue;
        }
        g_array_append_val (self->claims, *claim);
        self->believed = self->believed && claim->believed;
        if (row->epoch > self->epoch || (row->epoch == self->epoch && sequence >= self->sequence)) {
            self->epoch = row->epoch;
            self->sequence = sequence;
            self->is_logged = row->kind == ECFS_OBJECT_LOG;
            self->is_shared = row->kind != ECFS_OBJECT_WHOLE;
            self->begun = row->sequence;
        }
        fits = fits && add_elsewhere (strays, self, claim->record->elsewhere);
    }
    self->whole = fits && self->claims->len > 0 && (told ? has_all_numbers (self) : is_whole_by_sizes (self));
    g_array_sort (self->extents, by_offset);
    return self;
}

/* What is believed of one content, where that is whole; what is not believed cannot spoil it then, and is apart. */
static void add_contents (const Strays *strays, const GArray *claims, guint at, guint end, GPtrArray *contents)
{
    g_autoptr (GArray) believed = g_array_new (FALSE, FALSE, sizeof (Claim));
    g_autoptr (GArray) others = g_array_new (FALSE, FALSE, sizeof (Claim));
    for (guint i = at; i < end; i++) {
        const Claim *claim = &g_array_index (claims, Claim, i);
        g_array_append_val (claim->believed ? believed : others, *claim);
    }
    bool split = believed->len > 0 && others->len > 0;
    Content *content = split ? content_new (strays, believed, 0, believed->len) : NULL;
    if (content == NULL || !content->whole) {
        g_clear_pointer (&content, content_free);
        g_ptr_array_add (contents, content_new (strays, claims, at, end));
        return;
    }
    g_ptr_array_add (contents, content);
    for (guint i = 0; i < others->len; i++)
        g_ptr_array_add (contents, content_new (strays, others, i, i + 1));
}

/*
 * Whether the journal tells what became of a file since this was put into a log, and perhaps from there into a pack: it
 * tells of the same content, or of what is newer, or of the file's end. What a log has may have been given up, too, as
 * too few endpoints took it.
 */
static bool is_past (const Strays *self, const Content *content)
{
    const EcfsRecovering *recovering = self->recovering;
    const uint64_t ino = content->record->ino;
    EcfsAttr attr;
    g_autoptr (GError) error = NULL;
    if (!content->is_shared || content->epoch > recovering->journal_epoch)
        return false;
    if (content->epoch < recovering->journal_epoch) /* who made this journal has looked at it */
        return true;
    if (ino >= self->next_ino)
        return false;
    /* Mounts take numbers ahead: what the journal does not have may be younger than it, and was not removed. */
    if (!ecfs_catalog_getattr (recovering->catalog, ino, &attr, &error))
        return error->code == ENOENT && content->sequence <= recovering->sums->sequence;
    g_autoptr (GArray) extents = ecfs_catalog_extents (recovering->catalog, ino, NULL);
    if (extents == NULL || extents->len == 0)
        return extents != NULL && ecfs_restore_emptied (recovering->restore, ino) > content->sequence;
    const EcfsExtent *extent = &g_array_index (extents, EcfsExtent, 0);
    g_autoptr (EcfsObjectRow) object = ecfs_catalog_object (recovering->catalog, extent->object, NULL);
    if (object == NULL || (content->is_logged && object->epoch != content->epoch))
        return false;
    uint64_t sequence = extent->generation != 0 ? extent->generation : object->sequence;
    return sequence > content->sequence ||
           (sequence == content->sequence && (!content->is_logged || object->sequence >= content->begun));
}

static GPtrArray *gather_contents (const Strays *strays, const GPtrArray *all)
{
    GPtrArray *contents = g_ptr_array_new_with_free_func (content_free);
    g_autoptr (GArray) claims = g_array_new (FALSE, FALSE, sizeof (Claim));
    for (guint i = 0; i < all->len; i++) {
        EcfsStray *stray = g_ptr_array_index (all, i);
        for (guint j = 0; j < stray->words->len; j++) {
            const EcfsStrayWord *word = ecfs_recover_best_word (stray, j);
            if (word == NULL)
                continue;
            const Claim claim = {.stray = stray, .record = word->record, .believed = word->believed};
            g_array_append_val (claims, claim);
        }
    }
    g_array_sort (claims, compare_claims);
    for (guint at = 0, end; at < claims->len; at = end) {
        const EcfsFileRecord *first = g_array_index (claims, Claim, at).record;
        for (end = at + 1; end < claims->len; end++)
            if (compare_contents (first, g_array_index (claims, Claim, end).record) != 0)
                break;
        add_contents (strays, claims, at, end, contents);
    }
    for (guint i = contents->len; i-- > 0;)
        if (is_past (strays, contents->pdata[i]))
            g_ptr_array_remove_index_fast (contents, i);
    g_ptr_array_sort (contents, by_inode_newest_first);
    return contents;
}

/* Names */

/* Makes the directories of a path; false where something else is in the way. */
static bool make_parent (EcfsRecovering *self, char **names, uint64_t *ret_parent, GError **error)
{
    *ret_parent = ECFS_ROOT_INO;
    for (; names[0] != NULL && names[1] != NULL; names++) {
        static const EcfsNewInode directory = {.mode = S_IFDIR | 0755};
        EcfsAttr attr;
        if (ecfs_catalog_lookup (self->catalog, *ret_parent, names[0], &attr, NULL)) {
            if (!S_ISDIR (attr.mode))
                return ecfs_fail (error, ENOTDIR, "%s is not a directory", names[0]);
        } else if (!ecfs_catalog_make (self->catalog, *ret_parent, names[0], &directory, &attr, NULL, error)) {
            return false;
        }
        *ret_parent = attr.ino;
    }
    return true;
}

/* Puts it where its footer says; EEXIST where that is taken. */
static bool put_at_hint (EcfsRecovering *self, EcfsFoundFile *file, const char *path, GError **error)
{
    g_auto (GStrv) names = g_strsplit (path, "/", -1);
    char **at = names;
    while (*at != NULL && **at == '\0')
        at++;
    guint n_names = g_strv_length (at);
    if (path[0] != '/' || n_names == 0)
        return ecfs_fail (error, EINVAL, "it has no path");
    file->name = at[n_names - 1];
    return make_parent (self, at, &file->parent, error) && ecfs_restore_found (self->restore, file, error);
}

/* The directory /recovered, or the first of /recovered-2, … that nothing else is in the way of. */
static bool make_apart (EcfsRecovering *self, uint64_t *ret_parent, GError **error)
{
    for (unsigned i = 1;; i++) {
        GError *reason = NULL;
        char name[] = "";
        g_autofree char *apart = i == 1 ? g_strdup (APART) : g_strdup_printf (APART "-%u", i);
        char *names[] = {apart, name, NULL};
        if (make_parent (self, names, ret_parent, &reason))
            return true;
        if (reason->code != ENOTDIR) {
            g_propagate_error (error, reason);
            return false;
        }
        g_error_free (reason);
    }
}

/* Under @name, or that with the inode's number, or the first of NAME-3, … that is free: files of one name may share an
 * object. Returns the name, g_free (). */
static char *put_beside (EcfsRecovering *self, EcfsFoundFile *file, const char *name, uint64_t ino, GError **error)
{
    for (unsigned i = 1;; i++) {
        GError *reason = NULL;
        g_autofree char *own = i == 1   ? g_strdup (name)
                               : i == 2 ? g_strdup_printf ("%s.ino-%" PRIu64, name, ino)
                                        : g_strdup_printf ("%s-%u", name, i);
        file->name = own;
        if (ecfs_restore_found (self->restore, file, &reason))
            return g_steal_pointer (&own);
        if (reason->code != EEXIST || i == BESIDE_MOST) {
            g_propagate_error (error, reason);
            return NULL;
        }
        g_error_free (reason);
    }
}

/* Puts it there, under a name that is its own; *ret_path is where, g_free (). */
static bool put_apart (EcfsRecovering *self, EcfsFoundFile *file, const Content *content, char **ret_path,
                       GError **error)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    const char *path = content->record->path, *slash = strrchr (path, '/');
    g_autofree char *last = g_strndup (slash == NULL ? path : slash + 1, 200);
    ecfs_uuid_text (&g_array_index (content->claims, Claim, content->claims->len - 1).stray->row->uuid, uuid);
    g_autofree char *name = g_strdup_printf ("%s.%s%s", last, uuid, content->whole ? "" : ".partial");
    g_autofree char *own =
        make_apart (self, &file->parent, error) ? put_beside (self, file, name, content->record->ino, error) : NULL;
    if (own == NULL)
        return false;
    g_autofree char *directory = ecfs_catalog_path (self->catalog, file->parent);
    *ret_path = g_strdup_printf ("%s/%s", directory, own);
    return true;
}

static void tell_apart (EcfsRecovering *self, const Content *content, const char *shown, const char *apart)
{
    if (content->forged) {
        ecfs_recover_tell (
            self,
            "%s: no journal mentions this content, and its bytes are not what its stripes say, whichever "
            "endpoint is left out; it is %s",
            shown, apart);
        return;
    }
    if (content->believed) {
        ecfs_recover_tell (self, "%s: no journal mentions this content; it is %s", shown, apart);
        return;
    }
    const Claim *claim = &g_array_index (content->claims, Claim, 0);
    for (guint i = 0; i < content->claims->len && claim->believed; i++)
        claim = &g_array_index (content->claims, Claim, i);
    g_autofree char *tellers = ecfs_recover_tellers (self, claim->stray, claim->record);
    ecfs_recover_tell (
        self,
        "%s: no journal mentions this content, and too few endpoints say that it has this name and these "
        "attributes (%s); it is %s",
        shown, tellers, apart);
}

static bool put_whole (EcfsRecovering *self, EcfsFoundFile *file, const Content *content, GError **error)
{
    const char *path = content->record->path;
    g_autofree char *shown = g_utf8_make_valid (path, -1), *apart = NULL;
    if (content->believed && !content->forged && put_at_hint (self, file, path, NULL)) {
        if (++self->sums->n_hinted <= ECFS_RECOVER_TOLD_MOST)
            ecfs_recover_tell (self, "%s: no journal mentions it; its name and attributes are hints in its stripes",
                               shown);
        return true;
    }
    if (!put_apart (self, file, content, &apart, error))
        return ecfs_prefix (error, "%s", shown);
    if (++self->sums->n_set_apart <= ECFS_RECOVER_TOLD_MOST)
        tell_apart (self, content, shown, apart);
    return true;
}

/* The ranges that no object has, as far as they are told; g_free (). */
static char *gaps_text (const Content *content)
{
    GString *text = g_string_new (NULL);
    uint64_t at = 0, size = content->record->file_size;
    unsigned n_told = 0;
    for (guint i = 0; i <= content->extents->len && n_told < GAPS_TOLD; i++) {
        const EcfsExtent *extent = i < content->extents->len ? &g_array_index (content->extents, EcfsExtent, i) : NULL;
        uint64_t next = extent == NULL ? size : extent->offset;
        if (next > at && ++n_told <= GAPS_TOLD)
            g_string_append_printf (text, "%s%" PRIu64 "-%" PRIu64, n_told > 1 ? ", " : "", at, next - 1);
        at = extent == NULL ? at : extent->offset + extent->length;
    }
    if (n_told == GAPS_TOLD)
        g_string_append (text, " and maybe more");
    return g_string_free (text, FALSE);
}

static void tell_partial (EcfsRecovering *self, const Content *content, const char *apart)
{
    if (++self->sums->n_partial > ECFS_RECOVER_TOLD_MOST)
        return;
    g_autofree char *gaps = gaps_text (content), *shown = g_utf8_make_valid (content->record->path, -1);
    g_autofree char *where = gaps[0] == '\0' ? g_strdup ("what is missing comes after that")
                                             : g_strdup_printf ("what is missing reads as zeros, among bytes %s", gaps);
    ecfs_recover_tell (self, "%s: only a part of this content is there (%u objects); it is %s, and %s", shown,
                       content->claims->len, apart, where);
}

static bool keep_code (EcfsRecovering *self, const EcfsCodec *codec, GError **error)
{
    size_t size;
    const uint8_t *parameters = ecfs_codec_parameters (codec, &size);
    return size == 0 || ecfs_catalog_keep_code (self->catalog, ecfs_codec_identity (codec), parameters, size, error);
}

/* What was stored in the last minute, behind the end of the journal, is little; without a journal it is everything, and
 * that is not read. */
static bool check_content (EcfsRecovering *self, Content *content, GError **error)
{
    if (!content->whole || !content->believed || (!self->sums->has_snapshot && self->sums->n_records == 0))
        return true;
    for (guint i = 0; i < content->claims->len; i++) {
        EcfsStray *stray = g_array_index (content->claims, Claim, i).stray;
        g_autoptr (GError) why = NULL;
        if (stray->row->has_sha256 || stray->row->kind == ECFS_OBJECT_LOG /* each record has a checksum */ ||
            ecfs_recover_check_content (self, content->record->path, stray, &why))
            continue;
        if (why->code == ECANCELED) {
            g_propagate_error (error, g_steal_pointer (&why));
            return false;
        }
        g_autofree char *shown = g_utf8_make_valid (content->record->path, -1);
        content->forged = content->forged || why->code == EBADMSG;
        if (why->code != EBADMSG)
            ecfs_recover_tell (self, "%s: its bytes are not verified: %s", shown, why->message);
    }
    return true;
}

/* Of the bytes that a file has in an object; NULL: it is not known. */
static const uint8_t *sha256_of (const EcfsExtent *extent, const EcfsObjectRow *object)
{
    if (object->kind != ECFS_OBJECT_WHOLE)
        return extent->has_sha256 ? extent->sha256 : NULL;
    return object->has_sha256 && extent->object_offset == 0 && extent->length == object->size ? object->sha256 : NULL;
}

/* What is enciphered is other bytes each time. */
static bool are_same (const EcfsObjectRow *object, const EcfsObjectRow *row)
{
    if (object->size != row->size)
        return false;
    if (object->seal.kind == ECFS_SEAL_NONE && row->seal.kind == ECFS_SEAL_NONE)
        return memcmp (object->digest, row->digest, ECFS_DIGEST_SIZE) == 0;
    return object->has_sha256 && row->has_sha256 && memcmp (object->sha256, row->sha256, ECFS_SHA256_SIZE) == 0;
}

static bool has_same_bytes (const EcfsExtent *there, const EcfsObjectRow *object, const EcfsExtent *here,
                            const EcfsObjectRow *row)
{
    if (object->kind == ECFS_OBJECT_WHOLE && row->kind == ECFS_OBJECT_WHOLE)
        return there->object_offset == here->object_offset && are_same (object, row);
    const uint8_t *sha256 = sha256_of (there, object), *other = sha256_of (here, row);
    return sha256 != NULL && other != NULL && memcmp (sha256, other, ECFS_SHA256_SIZE) == 0;
}

/* Whether the catalog's file has the same bytes: it was recoded or packed, and the journal does not tell of that. */
static bool is_there_already (EcfsRecovering *self, Content *content)
{
    g_autoptr (GArray) extents = ecfs_catalog_extents (self->catalog, content->record->ino, NULL);
    if (extents == NULL || extents->len != content->extents->len)
        return false;
    for (guint i = 0; i < extents->len; i++) {
        const EcfsExtent *there = &g_array_index (extents, EcfsExtent, i);
        const EcfsExtent *here = &g_array_index (content->extents, EcfsExtent, i);
        const EcfsObjectRow *row = g_ptr_array_index (content->objects, (guint) here->object);
        if (row->seal.kind != ECFS_SEAL_NONE && !check_content (self, content, NULL)) /* its SHA-256 is to be known */
            return false;
        g_autoptr (EcfsObjectRow) object = ecfs_catalog_object (self->catalog, there->object, NULL);
        if (object == NULL || there->offset != here->offset || there->length != here->length ||
            !has_same_bytes (there, object, here, row))
            return false;
    }
    return true;
}

static bool put_content (EcfsRecovering *self, Content *content, GError **error)
{
    if (!check_content (self, content, error))
        return false;
    const EcfsFileRecord *record = content->record;
    const bool is_awaited = content->whole && content->believed && !content->forged &&
                            ecfs_restore_is_unfinished (self->restore, record->ino);
    for (guint i = 0; i < content->claims->len; i++)
        if (!keep_code (self, g_array_index (content->claims, Claim, i).stray->codec, error))
            return false;
    EcfsFoundFile file = {.unfinished = is_awaited ? record->ino : 0,
                          .attr = {.mode = record->mode & ~(uint32_t) (S_ISUID | S_ISGID), /* it is a hint */
                                   .uid = record->uid,
                                   .gid = record->gid,
                                   .size = MIN (record->file_size, INT64_MAX),
                                   .mtime_ns = record->mtime_ns},
                          .objects = (const EcfsObjectRow *const *) (void *) content->objects->pdata,
                          .n_objects = content->objects->len,
                          .extents = (const EcfsExtent *) (void *) content->extents->data,
                          .n_extents = content->extents->len};
    if (content->whole)
        return is_awaited ? ecfs_restore_found (self->restore, &file, error) : put_whole (self, &file, content, error);
    g_autofree char *apart = NULL;
    if (!put_apart (self, &file, content, &apart, error))
        return ecfs_prefix (error, "%s", record->path);
    tell_partial (self, content, apart);
    return true;
}

static bool uses_others (const Content *content)
{
    for (guint i = 0; i < content->claims->len; i++)
        if (!g_array_index (content->claims, Claim, i).stray->used)
            return true;
    return false;
}

/* What uses the same objects is told by this one. */
static void note_used (const GPtrArray *contents, guint at, guint end, const Content *content)
{
    for (guint i = 0; i < content->objects->len; i++)
        for (guint j = at; j < end; j++) {
            const Content *other = g_ptr_array_index (contents, j);
            for (guint k = 0; k < other->claims->len; k++) {
                EcfsStray *stray = g_array_index (other->claims, Claim, k).stray;
                stray->used = stray->used || stray->row == g_ptr_array_index (content->objects, i);
            }
        }
}

static guint next_whole (const GPtrArray *contents, guint at, guint end, bool believed)
{
    for (; at < end; at++) {
        const Content *content = g_ptr_array_index (contents, at);
        if (content->whole && content->believed == believed)
            break;
    }
    return at;
}

/* Of one inode, from @at to @end: the newest content that is whole and believed; apart what is not believed, which may
 * be as good, and the newest part of one that is newer. */
static bool put_file (EcfsRecovering *self, const GPtrArray *contents, guint at, guint end, GError **error)
{
    guint whole = next_whole (contents, at, end, true);
    if (whole < end) {
        Content *content = g_ptr_array_index (contents, whole);
        if (!is_there_already (self, content) && !put_content (self, content, error))
            return false;
        note_used (contents, at, end, content);
    }
    for (guint i = at; (i = next_whole (contents, i, end, false)) < end; i++) {
        Content *content = g_ptr_array_index (contents, i);
        if (uses_others (content) && !is_there_already (self, content) && !put_content (self, content, error))
            return false;
        note_used (contents, at, end, content);
        whole = MIN (whole, i);
    }
    for (guint i = at; i < whole; i++) {
        Content *content = g_ptr_array_index (contents, i);
        if (content->extents->len > 0 && uses_others (content))
            return put_content (self, content, error);
    }
    return true;
}

static uint64_t ino_at (const GPtrArray *contents, guint i)
{
    return ((const Content *) g_ptr_array_index (contents, i))->record->ino;
}

bool ecfs_recover_strays (EcfsRecovering *self, GPtrArray *strays, GError **error)
{
    g_autoptr (GHashTable) by_uuid = g_hash_table_new (ecfs_uuid_hash, ecfs_uuid_same);
    for (guint i = 0; i < strays->len; i++) {
        EcfsStray *stray = g_ptr_array_index (strays, i);
        g_hash_table_insert (by_uuid, &stray->row->uuid, stray);
    }
    Strays all = {.recovering = self, .by_uuid = by_uuid};
    if (!ecfs_catalog_next_ino (self->catalog, &all.next_ino, error))
        return false;
    g_autoptr (GPtrArray) contents = gather_contents (&all, strays);
    for (guint at = 0, end; at < contents->len; at = end) {
        for (end = at + 1; end < contents->len && ino_at (contents, end) == ino_at (contents, at);)
            end++;
        if (!put_file (self, contents, at, end, error) ||
            !ecfs_recover_tick (self, "files that no journal mentions", end, contents->len, error))
            return false;
    }
    return true;
}
