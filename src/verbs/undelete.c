#include "verbs/undelete.h"

#include "archive/common.h"
#include "catalog/brake.h"
#include "codec/codec.h"
#include "journal/sender.h"
#include "util/units.h"
#include "verbs/doubts.h"
#include "verbs/past.h"
#include "verbs/prune_note.h"

#include <string.h>

#define BATCH           256            /* entries of a directory between two looks at it */
#define STORE_FILES     64             /* come back before the journal is stored, … */
#define STORE_US        G_USEC_PER_SEC /* … or fewer in so long; … */
#define STORE_SHARE     3              /* … but it takes at most a quarter of the time, … */
#define STORE_MOST      256            /* … unless so many have come back */
#define CLOCKS_DIFFER_S 3600           /* between this machine and endpoints, at most */

typedef struct Undelete {
    EcfsArchive *archive;
    EcfsCatalog *now, *then;
    const EcfsUndeleteHere *what;
    EcfsNames names;
    GHashTable *endpoints; /* int64_t row of then → int64_t row of now */
    GHashTable *links;     /* uint64_t inode of then that has several names → uint64_t that it came back as */
    GHashTable *found;     /* uint64_t instances of stripes that were looked for here, and found */
    EcfsObjectRow *last;   /* object of then, with rows of now; NULL: none yet */
    GArray *brought;       /* of EcfsDoubt: what came back and the journal at endpoints may not tell */
    GArray *stayed;        /* likewise: what a run before may have left so, and somebody has pruned since */
    int64_t pruned_s;      /* when that ended last, since 1970; 0: never */
    int64_t stored_us;     /* when the journal was stored last, … */
    int64_t store_took_us; /* … which took so long */
    bool cannot_store;     /* so it was at the last time */
    bool is_over;          /* nothing more is brought back */
    EcfsTally tally;
} Undelete;

/* A directory that is being gone through. */
typedef struct Level {
    uint64_t then, now;
    int64_t offset; /* of the last entry of then that is done */
    char *path;     /* owned */
} Level;

static void level_clear (void *data)
{
    Level *self = data;
    g_free (self->path);
}

static void failed (Undelete *self, const char *path, GError *error)
{
    g_prefix_error (&error, "%s: ", path);
    ecfs_tally_failed (&self->tally, error);
}

/* Endpoints and objects */

static bool map_endpoints (Undelete *self, GError **error)
{
    g_autoptr (GPtrArray) then = ecfs_catalog_endpoints (self->then, error);
    g_autoptr (GPtrArray) now = then == NULL ? NULL : ecfs_catalog_endpoints (self->now, error);
    for (guint i = 0; now != NULL && i < then->len; i++)
        for (guint j = 0; j < now->len; j++) {
            const EcfsEndpointRow *a = g_ptr_array_index (then, i), *b = g_ptr_array_index (now, j);
            if (ecfs_uuid_equal (&a->uuid, &b->uuid))
                g_hash_table_insert (self->endpoints, g_memdup2 (&a->id, sizeof a->id),
                                     g_memdup2 (&b->id, sizeof b->id));
        }
    return now != NULL;
}

/* Borrowed until the next; NULL. */
static const EcfsObjectRow *object_of (Undelete *self, int64_t id, GError **error)
{
    if (self->last != NULL && self->last->id == id)
        return self->last;
    EcfsObjectRow *object = ecfs_catalog_object (self->then, id, error);
    for (guint i = object == NULL ? 0 : object->stripes->len; i-- > 0;) {
        EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        const int64_t *row = g_hash_table_lookup (self->endpoints, &stripe->endpoint);
        if (row == NULL)
            g_array_remove_index (object->stripes, i);
        else
            stripe->endpoint = *row;
    }
    g_clear_pointer (&self->last, ecfs_object_row_free);
    self->last = object;
    return object;
}

/* Whether it could be asked. */
static bool look_for (Undelete *self, const EcfsObjectRow *object, const EcfsStripeRow *stripe, GError **error)
{
    char name[ECFS_STRIPE_NAME_SIZE];
    uint64_t size;
    GError *why = NULL;
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (self->archive, stripe->endpoint);
    ecfs_stripe_name (&object->uuid, stripe->index, stripe->instance, name);
    if (endpoint == NULL || !ecfs_archive_endpoint_counts (endpoint))
        return true;
    if (ecfs_endpoint_size_wait (endpoint->endpoint, name, &size, &why)) {
        g_hash_table_add (self->found, g_memdup2 (&stripe->instance, sizeof stripe->instance));
        return true;
    }
    if (ecfs_errno (why) != ENOENT) {
        g_propagate_prefixed_error (error, why, "whether it is there still: ");
        return false;
    }
    g_error_free (why);
    return true;
}

/* What no longer waits for its deletion may be gone since the past was made. What cannot be asked is not counted on. */
static bool look_again (Undelete *self, const EcfsObjectRow *object, GError **error)
{
    g_autoptr (GArray) unsure = ecfs_catalog_unsure (self->now, object, self->what->looked_us, error);
    for (guint i = 0; unsure != NULL && i < unsure->len; i++) {
        g_autoptr (GError) why = NULL;
        if (!look_for (self, object, &g_array_index (unsure, EcfsStripeRow, i), &why))
            g_warning ("%s", why->message);
    }
    return unsure != NULL;
}

static bool is_there (void *user, const EcfsStripeRow *stripe)
{
    const Undelete *self = user;
    return g_hash_table_contains (self->found, &stripe->instance);
}

static bool decodes (void *user, const EcfsObjectRow *object)
{
    const Undelete *self = user;
    bool present[ECFS_CODEC_MAX_N] = {false};
    const EcfsCodec *codec = ecfs_archive_codec (self->archive, object->code, NULL);
    for (guint i = 0; codec != NULL && i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        if (stripe->index < ecfs_codec_n (codec))
            present[stripe->index] = !ecfs_stripe_lacks (object, stripe, object->size);
    }
    return codec != NULL && ecfs_codec_decodable (codec, present);
}

/* Files */

/* Whether two extents have the same content, wherever that is now. */
static bool is_same_part (const EcfsExtent *a, const EcfsObjectRow *in_a, const EcfsExtent *b,
                          const EcfsObjectRow *in_b)
{
    if (a->offset != b->offset || a->length != b->length)
        return false;
    if (a->has_sha256 && b->has_sha256)
        return memcmp (a->sha256, b->sha256, sizeof a->sha256) == 0;
    if (a->object_offset != b->object_offset)
        return false;
    return ecfs_uuid_equal (&in_a->uuid, &in_b->uuid) ||
           (in_a->has_sha256 && in_b->has_sha256 && in_a->size == in_b->size &&
            memcmp (in_a->sha256, in_b->sha256, sizeof in_a->sha256) == 0);
}

/* Whether a file of now has the content that one of then had. */
static bool is_same (Undelete *self, const EcfsAttr *then, uint64_t now_ino, bool *ret_same, GError **error)
{
    uint64_t then_size, now_size;
    *ret_same = false;
    g_autoptr (GArray) a = ecfs_catalog_content (self->then, then->ino, &then_size, error);
    g_autoptr (GArray) b = a == NULL ? NULL : ecfs_catalog_content (self->now, now_ino, &now_size, error);
    if (b == NULL)
        return false;
    bool same = a->len == b->len && then_size == now_size;
    for (guint i = 0; same && i < a->len; i++) {
        const EcfsExtent *x = &g_array_index (a, EcfsExtent, i), *y = &g_array_index (b, EcfsExtent, i);
        const EcfsObjectRow *was = object_of (self, x->object, error);
        g_autoptr (EcfsObjectRow) is = was == NULL ? NULL : ecfs_catalog_object (self->now, y->object, error);
        if (is == NULL)
            return false;
        same = is_same_part (x, was, y, is);
    }
    *ret_same = same;
    return true;
}

static bool bring_content (Undelete *self, const EcfsAttr *then, uint64_t ino, GError **error)
{
    uint64_t size;
    g_autoptr (GArray) extents = ecfs_catalog_content (self->then, then->ino, &size, error);
    g_autoptr (GPtrArray) objects = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_object_row_free);
    for (guint i = 0; extents != NULL && i < extents->len; i++) {
        EcfsExtent *extent = &g_array_index (extents, EcfsExtent, i);
        const EcfsObjectRow *object = object_of (self, extent->object, error);
        guint at = 0;
        if (object == NULL)
            return false;
        while (at < objects->len && ((const EcfsObjectRow *) g_ptr_array_index (objects, at))->id != object->id)
            at++;
        if (at == objects->len) {
            if (!look_again (self, object, error))
                return false;
            g_ptr_array_add (objects, ecfs_object_row_copy (object));
        }
        extent->object = at;
    }
    if (extents == NULL)
        return false;
    const EcfsTakeBack back = {.ino = ino,
                               .objects = (const EcfsObjectRow *const *) (void *) objects->pdata,
                               .n_objects = objects->len,
                               .extents = (const EcfsExtent *) (void *) extents->data,
                               .n_extents = extents->len,
                               .size = size,
                               .looked_us = self->what->looked_us,
                               .is_there = is_there,
                               .decodes = decodes,
                               .user = self};
    return ecfs_catalog_take_back (self->now, &back, error);
}

static bool bring_xattrs (Undelete *self, uint64_t then, uint64_t ino, GError **error)
{
    g_autoptr (GByteArray) names = ecfs_catalog_listxattr (self->then, then, error);
    for (guint at = 0; names != NULL && at < names->len; at += (guint) strlen ((const char *) names->data + at) + 1) {
        const char *name = (const char *) names->data + at;
        g_autoptr (GByteArray) value = ecfs_catalog_getxattr (self->then, then, name, error);
        if (value == NULL || !ecfs_catalog_setxattr (self->now, ino, name, value->data, value->len, 0, error))
            return false;
    }
    return names != NULL;
}

/* All but type, links, size and content. */
static bool bring_attributes (Undelete *self, const EcfsAttr *then, uint64_t ino, GError **error)
{
    g_autofree char *code = NULL;
    const bool is_link = S_ISLNK (then->mode);
    const unsigned mask =
        (is_link ? 0 : ECFS_ATTR_MODE) | ECFS_ATTR_UID | ECFS_ATTR_GID | ECFS_ATTR_ATIME | ECFS_ATTR_MTIME;
    return bring_xattrs (self, then->ino, ino, error) && ecfs_catalog_get_code (self->then, then->ino, &code, error) &&
           (code == NULL || ecfs_catalog_set_code (self->now, ino, code, error)) &&
           ecfs_catalog_setattr (self->now, ino, then, mask, NULL, error);
}

/* An inode without a name, which is all that one of then was; who does not give it one drops it. */
static bool make_again (Undelete *self, uint64_t parent, const EcfsAttr *then, uint64_t *ret_ino, GError **error)
{
    g_autofree char *target = S_ISLNK (then->mode) ? ecfs_catalog_readlink (self->then, then->ino, error) : NULL;
    if (S_ISLNK (then->mode) && target == NULL)
        return false;
    const EcfsNewInode new = {
        .mode = then->mode, .uid = then->uid, .gid = then->gid, .rdev = then->rdev, .target = target};
    EcfsAttr made;
    if (!ecfs_catalog_make (self->now, parent, NULL, &new, &made, NULL, error))
        return false;
    *ret_ino = made.ino;
    if ((!S_ISREG (then->mode) || bring_content (self, then, made.ino, error)) &&
        bring_attributes (self, then, made.ino, error))
        return true;
    (void) ecfs_catalog_drop (self->now, made.ino, NULL); /* else it goes with the next mount */
    return false;
}

/* Whether both have the same extended attributes. */
static bool same_xattrs (Undelete *self, uint64_t then, uint64_t now, bool *ret_same, GError **error)
{
    g_autoptr (GByteArray) a = ecfs_catalog_listxattr (self->then, then, error);
    g_autoptr (GByteArray) b = a == NULL ? NULL : ecfs_catalog_listxattr (self->now, now, error);
    if (b == NULL)
        return false;
    bool same = a->len == b->len;
    for (guint at = 0; same && at < a->len; at += (guint) strlen ((const char *) a->data + at) + 1) {
        const char *name = (const char *) a->data + at;
        g_autoptr (GByteArray) was = ecfs_catalog_getxattr (self->then, then, name, error);
        g_autoptr (GByteArray) is = was == NULL ? NULL : ecfs_catalog_getxattr (self->now, now, name, NULL);
        if (was == NULL)
            return false;
        same = is != NULL && is->len == was->len && memcmp (is->data, was->data, was->len) == 0;
    }
    *ret_same = same;
    return true;
}

/* Whether a file of now has all that one of then had. */
static bool is_as_it_was (Undelete *self, const EcfsAttr *then, const EcfsAttr *now, bool *ret_same, GError **error)
{
    *ret_same = false;
    bool same =
        now->mode == then->mode && now->uid == then->uid && now->gid == then->gid && now->mtime_ns == then->mtime_ns;
    if (same && !same_xattrs (self, then->ino, now->ino, &same, error))
        return false;
    if (!same)
        return true;
    if (S_ISREG (then->mode))
        return is_same (self, then, now->ino, ret_same, error);
    if (S_ISLNK (then->mode)) {
        g_autofree char *is = ecfs_catalog_readlink (self->now, now->ino, error);
        g_autofree char *was = is == NULL ? NULL : ecfs_catalog_readlink (self->then, then->ino, error);
        *ret_same = was != NULL && strcmp (is, was) == 0;
        return was != NULL;
    }
    *ret_same = now->rdev == then->rdev;
    return true;
}

/* Names of one file of then lead to one inode of now. */
static void keep_link (Undelete *self, const EcfsAttr *then, uint64_t ino)
{
    if (then->nlink > 1)
        g_hash_table_insert (self->links, g_memdup2 (&then->ino, sizeof then->ino), g_memdup2 (&ino, sizeof ino));
}

/* One that the other names of then lead to now, as a run before brought some of them back. */
static bool find_by_names (Undelete *self, const EcfsAttr *then, uint64_t *ret_ino, GError **error)
{
    g_autoptr (GPtrArray) paths = ecfs_catalog_paths (self->then, then->ino, error);
    for (guint i = 0; paths != NULL && i < paths->len; i++) {
        EcfsAttr now;
        bool same;
        if (!ecfs_catalog_resolve (self->now, g_ptr_array_index (paths, i), &now, NULL))
            continue; /* that one is not there */
        if (!is_as_it_was (self, then, &now, &same, error))
            return false;
        if (same) {
            *ret_ino = now.ino;
            return true;
        }
    }
    return paths != NULL;
}

/* The inode that has what one of then had, and others' names still or again; 0: there is none. */
static bool find_again (Undelete *self, const EcfsAttr *then, uint64_t *ret_ino, GError **error)
{
    EcfsAttr now;
    bool same = false;
    const uint64_t *again = then->nlink > 1 ? g_hash_table_lookup (self->links, &then->ino) : NULL;
    *ret_ino = again == NULL ? 0 : *again;
    if (again != NULL || then->nlink < 2)
        return true;
    if (ecfs_catalog_getattr (self->now, then->ino, &now, NULL) && now.nlink > 0 && now.mode == then->mode &&
        S_ISREG (then->mode) && !is_same (self, then, now.ino, &same, error))
        return false;
    *ret_ino = same ? now.ino : 0;
    return same || find_by_names (self, then, ret_ino, error);
}

/* Whether what has the name is to stay: it is the same, or nobody wants it changed. */
static bool stays (Undelete *self, const EcfsAttr *then, uint64_t parent, const char *name, EcfsAttr *ret_now,
                   bool *ret_stays, GError **error)
{
    GError *why = NULL;
    *ret_stays = false;
    if (!ecfs_catalog_lookup (self->now, parent, name, ret_now, &why)) {
        bool is_free = ecfs_errno (why) == ENOENT;
        if (is_free)
            g_error_free (why);
        else
            g_propagate_error (error, why);
        return is_free;
    }
    if (self->what->keep) {
        *ret_stays = true;
        return true;
    }
    if (S_ISDIR (ret_now->mode))
        return ecfs_fail (error, EISDIR, "a directory has its name now: move that away");
    return is_as_it_was (self, then, ret_now, ret_stays, error);
}

/* *ret_now: what has the name then. */
static bool bring_file (Undelete *self, const EcfsAttr *then, uint64_t parent, const char *name, EcfsAttr *ret_now,
                        bool *ret_stayed, GError **error)
{
    uint64_t ino;
    EcfsAttr lost = {0};
    if (!stays (self, then, parent, name, ret_now, ret_stayed, error))
        return false;
    if (*ret_stayed && !self->what->keep)
        keep_link (self, then, ret_now->ino);
    if (*ret_stayed)
        return true;
    if (!find_again (self, then, &ino, error) || (ino == 0 && !make_again (self, parent, then, &ino, error)) ||
        !ecfs_catalog_link_over (self->now, ino, parent, name, &lost, error))
        return false;
    keep_link (self, then, ino);
    ecfs_names_changed (&self->names, parent, name, &lost);
    ret_now->ino = ino;
    return true;
}

/* What an undelete brought back before has another inode than then. Had that not ended, the journal did not tell of it
 * when another machine removed what was dead. */
static bool is_doubtful (const Undelete *self, const EcfsAttr *then, const EcfsAttr *now)
{
    return self->pruned_s != 0 && now->ino != then->ino &&
           now->ctime_ns / 1000000000 <= self->pruned_s + CLOCKS_DIFFER_S;
}

/* Where too few stripes are left and somebody has pruned, that may be why. */
static void add_cause (const Undelete *self, GError *why)
{
    if (why->code != EIO || self->pruned_s == 0)
        return;
    g_autoptr (GDateTime) time = g_date_time_new_from_unix_local (self->pruned_s);
    g_autofree char *when = time == NULL ? g_strdup ("?") : g_date_time_format (time, "%F %T");
    char *text =
        g_strdup_printf ("%s, or 'ecfs prune' removed them, which ended on another machine at %s", why->message, when);
    g_free (why->message);
    why->message = text;
}

static void bring_name (Undelete *self, const EcfsAttr *then, uint64_t parent, const char *name, const char *path)
{
    GError *why = NULL;
    EcfsAttr now;
    bool stayed = false;
    self->tally.progress.n_found++;
    if (!bring_file (self, then, parent, name, &now, &stayed, &why)) {
        add_cause (self, why);
        failed (self, path, why);
        return;
    }
    self->tally.progress.n_done++;
    self->tally.progress.n_current += stayed;
    self->tally.progress.bytes_done += S_ISREG (then->mode) ? then->size : 0;
    if (S_ISREG (then->mode) && !stayed)
        ecfs_doubts_add (self->brought, now.ino, false, path);
    else if (S_ISREG (then->mode) && is_doubtful (self, then, &now))
        ecfs_doubts_add (self->stayed, now.ino, true, path);
}

/* Storing */

/* What it removed since the past was looked at may be what is to come back. */
static bool was_alone (const char *notes, EcfsArchive *archive, const char *so, GError **error)
{
    g_auto (EcfsPruneNotes) now = {.text = NULL};
    if (notes == NULL) /* who asks is of an earlier ecfs */
        return true;
    ecfs_prune_notes_look (&now, archive);
    return !ecfs_prune_notes_are_new (&now, notes) ||
           ecfs_fail (error, EAGAIN, "another machine removed what died long ago meanwhile ('ecfs prune'): %s", so);
}

static void told_lost (void *user, const EcfsDoubt *doubt, GError *why)
{
    Undelete *self = user;
    self->tally.progress.n_done--;
    self->tally.progress.n_current -= doubt->stayed;
    failed (self, doubt->path, why);
}

/* That machine reads the journal before it removes anything, and leaves a note before that: what the journal told while
 * there was no note is safe. */
static bool store (Undelete *self, GError **error)
{
    int64_t began_us = ecfs_now_us ();
    GError *why = NULL;
    bool stored = ecfs_catalog_barrier (self->now, error) &&
                  (ecfs_archive_store_journal (self->archive, NULL, NULL, error) ||
                   ecfs_prefix (error, "what came back may go again if another machine prunes endpoints now"));
    bool alone = stored && was_alone (self->what->notes, self->archive,
                                      "what came back and is gone again is named, and 'ecfs status' tells it", &why);
    if (alone)
        g_array_set_size (self->brought, 0);
    bool settled = stored && ecfs_doubts_settle (self->brought, self->archive, told_lost, self, error) &&
                   ecfs_doubts_settle (self->stayed, self->archive, told_lost, self, error);
    self->is_over = self->is_over || (stored && !(alone && settled));
    self->cannot_store = !stored;
    self->stored_us = ecfs_now_us ();
    self->store_took_us = self->stored_us - began_us;
    if (settled && why != NULL)
        g_propagate_error (error, why);
    else
        g_clear_error (&why);
    return settled && alone;
}

/* False: nothing more is to be brought back. */
static bool store_now_and_then (Undelete *self, GError **error)
{
    guint n = self->brought->len + self->stayed->len;
    int64_t past_us = ecfs_now_us () - self->stored_us;
    GError *why = NULL;
    if (n == 0 || (n < STORE_FILES && past_us < STORE_US) ||
        ((n < STORE_MOST || self->cannot_store) && past_us < STORE_SHARE * self->store_took_us) || store (self, &why))
        return true;
    if (self->is_over) {
        g_propagate_error (error, why);
        return false;
    }
    g_error_free (why); /* the end tries again, and tells */
    return true;
}

/* Directories */

/* One that is there stays as it is. */
static bool bring_directory (Undelete *self, const EcfsAttr *then, uint64_t parent, const char *name, uint64_t *ret_ino,
                             GError **error)
{
    static const EcfsAttr nobody = {.ino = 0};
    EcfsAttr now;
    GError *why = NULL;
    if (ecfs_catalog_lookup (self->now, parent, name, &now, &why)) {
        *ret_ino = now.ino;
        return S_ISDIR (now.mode) || ecfs_fail (error, ENOTDIR, "something else has its name now: move that away");
    }
    if (ecfs_errno (why) != ENOENT) {
        g_propagate_error (error, why);
        return false;
    }
    g_error_free (why);
    const EcfsNewInode new = {.mode = then->mode, .uid = then->uid, .gid = then->gid};
    if (!ecfs_catalog_make (self->now, parent, name, &new, &now, NULL, error))
        return false;
    *ret_ino = now.ino;
    ecfs_names_changed (&self->names, parent, name, &nobody);
    return bring_attributes (self, then, now.ino, error);
}

static void descend (Undelete *self, GArray *levels, const EcfsAttr *then, uint64_t parent, const char *name,
                     const char *path)
{
    Level level = {.then = then->ino};
    GError *why = NULL;
    if (!bring_directory (self, then, parent, name, &level.now, &why)) {
        failed (self, path, why);
        return;
    }
    level.path = g_strdup (path);
    g_array_append_val (levels, level);
}

/* The next entries of the last level, up to the first directory. *ret_done: there are no more. */
static bool bring_some (Undelete *self, GArray *levels, bool *ret_done, GError **error)
{
    Level level = g_array_index (levels, Level, levels->len - 1);
    g_autoptr (GPtrArray) entries = ecfs_catalog_readdir (self->then, level.then, level.offset, BATCH, error);
    if (entries == NULL)
        return false;
    *ret_done = entries->len == 0;
    for (guint i = 0; i < entries->len; i++) {
        const EcfsDirent *entry = g_ptr_array_index (entries, i);
        g_autofree char *path = g_strconcat (level.path, "/", entry->name, NULL);
        g_array_index (levels, Level, levels->len - 1).offset = entry->offset;
        if (!ecfs_tally_tick (&self->tally))
            return ecfs_fail (error, ECANCELED, "cancelled");
        if (S_ISDIR (entry->attr.mode)) {
            descend (self, levels, &entry->attr, level.now, entry->name, path);
            return true;
        }
        bring_name (self, &entry->attr, level.now, entry->name, path);
        if (!store_now_and_then (self, error))
            return false;
    }
    return true;
}

/* What came into a directory has changed its times. */
static void end_level (Undelete *self, const Level *level)
{
    EcfsAttr then;
    if (ecfs_catalog_getattr (self->then, level->then, &then, NULL) && then.ino != ECFS_ROOT_INO)
        (void) ecfs_catalog_setattr (self->now, level->now, &then, ECFS_ATTR_MTIME, NULL, NULL); /* a detail */
    if (self->what->watch != NULL && self->what->watch->changed != NULL)
        self->what->watch->changed (self->what->watch->user, level->now);
}

static bool bring_tree (Undelete *self, GArray *levels, GError **error)
{
    while (levels->len > 0) {
        bool done;
        if (!bring_some (self, levels, &done, error))
            return false;
        if (!done)
            continue;
        end_level (self, &g_array_index (levels, Level, levels->len - 1));
        g_array_set_size (levels, levels->len - 1);
    }
    return true;
}

/* Directories on the way to it come back as well. */
static bool bring_path (Undelete *self, const char *path, GError **error)
{
    g_auto (GStrv) names = ecfs_names_split (path, error);
    g_autoptr (GArray) levels = g_array_new (FALSE, FALSE, sizeof (Level));
    EcfsAttr then = {.ino = ECFS_ROOT_INO};
    uint64_t now = ECFS_ROOT_INO;
    g_array_set_clear_func (levels, level_clear);
    if (names == NULL)
        return false;
    for (char **name = names; *name != NULL; name++) {
        uint64_t parent = now;
        if (!ecfs_catalog_lookup (self->then, then.ino, *name, &then, error))
            return ecfs_prefix (error, "%s: it was not there then", path);
        if (!S_ISDIR (then.mode)) {
            if (name[1] != NULL)
                return ecfs_fail (error, ENOTDIR, "%s: %s was no directory then", path, *name);
            bring_name (self, &then, parent, *name, path);
            return store_now_and_then (self, error);
        }
        if (!bring_directory (self, &then, parent, *name, &now, error))
            return ecfs_prefix (error, "%s", path);
    }
    const Level level = {.then = then.ino, .now = now, .path = g_strdup (then.ino == ECFS_ROOT_INO ? "" : path)};
    g_array_append_val (levels, level);
    return bring_tree (self, levels, error);
}

/* One that fails keeps no other from it. False: it was cancelled, or another machine removed something. */
static bool bring_paths (Undelete *self, GError **error)
{
    for (const char *const *path = self->what->paths; *path != NULL; path++) {
        GError *why = NULL;
        if (bring_path (self, *path, &why))
            continue;
        if (why->code == ECANCELED || self->is_over) {
            g_propagate_error (error, why);
            return false;
        }
        self->tally.progress.n_found++;
        ecfs_tally_failed (&self->tally, why);
    }
    return true;
}

/* A mass deletion is undone with all that was there just before it; one that came back in part is not. */
static bool end_brake (const Undelete *self, GError **error)
{
    EcfsBrake brake;
    bool all = false;
    for (const char *const *path = self->what->paths; *path != NULL; path++)
        all = all || strcmp (*path, "/") == 0;
    if (!all || self->what->at_ns <= 0 || self->what->keep || self->tally.progress.n_failed > 0)
        return true;
    if (!ecfs_catalog_brake (self->now, &brake, error))
        return false;
    return brake.until_age_ns == 0 || self->what->at_ns / 1000 != brake.from.time_ns / 1000 ||
           ecfs_catalog_brake_end (self->now, error);
}

/* Another machine may remove just now what comes back here. */
static bool is_alone (EcfsPruneNotes *now, EcfsArchive *archive, bool beside, GError **error)
{
    ecfs_prune_notes_look (now, archive);
    return now->running_at == NULL || beside ||
           ecfs_fail (
               error, EBUSY,
               "endpoint %s: another machine removes what died long ago ('ecfs prune'): bring things back when it "
               "has ended; if it was killed, run it there again, or say --beside-prune if nothing runs there",
               now->running_at);
}

bool ecfs_undelete_here (EcfsArchive *archive, const EcfsUndeleteHere *what, GError **error)
{
    g_autoptr (EcfsArchive) past = ecfs_archive_open (what->past, ECFS_ARCHIVE_READONLY, error);
    if (past == NULL || !was_alone (what->notes, archive, "nothing was brought back, run this again", error))
        return false;
    Undelete self = {.archive = archive,
                     .now = ecfs_archive_catalog (archive),
                     .then = ecfs_archive_catalog (past),
                     .what = what,
                     .names = {.archive = archive, .watch = what->watch},
                     .found = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL),
                     .endpoints = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, g_free),
                     .links = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, g_free),
                     .brought = ecfs_doubts_new (),
                     .stayed = ecfs_doubts_new (),
                     .pruned_s = ecfs_prune_notes_last (what->notes),
                     .stored_us = ecfs_now_us (),
                     .tally = {.transfer = what->transfer}};
    bool brought = ecfs_uuid_equal (ecfs_catalog_archive (self.now), ecfs_catalog_archive (self.then)) ||
                   ecfs_fail (error, EINVAL, "%s is of another archive", what->past);
    brought = brought && map_endpoints (&self, error) && bring_paths (&self, error);
    brought = brought && end_brake (&self, error);
    bool kept = self.is_over || store (&self, brought ? error : NULL); /* also what came back before it was cancelled */
    g_clear_pointer (&self.last, ecfs_object_row_free);
    g_hash_table_unref (self.found);
    g_hash_table_unref (self.endpoints);
    g_hash_table_unref (self.links);
    g_array_unref (self.brought);
    g_array_unref (self.stayed);
    ecfs_archive_hurry_repairs (archive); /* some came back with fewer stripes than their code has */
    return ecfs_tally_end (&self.tally, "were not brought back", brought && kept ? error : NULL) && brought && kept;
}

/* Just before the path went the last time; g_free (). ENOENT: nothing is known of it, EEXIST: it is there. */
static char *moment_before (const char *directory, const char *path, GError **error)
{
    g_autoptr (JsonArray) entries = ecfs_past_log (directory, path, error);
    guint n_entries = entries == NULL ? 0 : json_array_get_length (entries);
    if (entries == NULL)
        return NULL;
    JsonObject *last = n_entries == 0 ? NULL : json_array_get_object_element (entries, n_entries - 1);
    if (last == NULL || strcmp (json_object_get_string_member (last, "change"), "went") != 0) {
        (void) !ecfs_fail (error, last == NULL ? ENOENT : EEXIST,
                           last == NULL ? "%s: nothing is kept of it"
                                        : "%s is there: say with --at of when it is to be; 'ecfs log' tells its past",
                           path);
        return NULL;
    }
    JsonObject *was = n_entries < 2 ? NULL : json_array_get_object_element (entries, n_entries - 2);
    if (was != NULL && json_object_has_member (was, "mode") &&
        S_ISDIR ((mode_t) json_object_get_int_member (was, "mode"))) { /* file by file, as rm -r does */
        (void) !ecfs_fail (error, EISDIR,
                           "%s was a directory, and what was in it went before it did: say with --at of when it is to "
                           "be; 'ecfs log' tells when it went",
                           path);
        return NULL;
    }
    int64_t before_us = (json_object_get_int_member (last, "time_ns") - 1) / 1000;
    g_autoptr (GDateTime) second = g_date_time_new_from_unix_utc (before_us / G_USEC_PER_SEC);
    g_autofree char *text = g_date_time_format (second, "%FT%T");
    return g_strdup_printf ("%s.%06dZ", text, (int) (before_us % G_USEC_PER_SEC));
}

static bool bring_back (Ecfs *self, const char *const *paths, const char *moment, unsigned flags,
                        const EcfsTransferOptions *transfer, GError **error)
{
    g_auto (EcfsPruneNotes) notes = {.text = NULL};
    const char *directory = ecfs_archive_directory (self->archive);
    int64_t looked_us = ecfs_now_us ();
    int64_t at_ns = 0; /* of a mark: a mass deletion is undone by the moment that is told */
    (void) ecfs_parse_moment (moment, &at_ns);
    char *past = is_alone (&notes, self->archive, (flags & ECFS_UNDELETE_BESIDE_PRUNE) != 0, error)
                     ? ecfs_past_open (directory, moment, error)
                     : NULL;
    if (past == NULL)
        return false;
    const EcfsUndeleteHere what = {.past = past,
                                   .paths = paths,
                                   .at_ns = at_ns,
                                   .looked_us = looked_us,
                                   .keep = (flags & ECFS_UNDELETE_KEEP) != 0,
                                   .notes = notes.text,
                                   .transfer = transfer};
    bool brought = self->mounted ? ecfs_undelete_mounted (directory, &what, error)
                                 : ecfs_undelete_here (self->archive, &what, error);
    ecfs_past_close (past);
    return brought;
}

bool ecfs_release_brake (Ecfs *self, GError **error)
{
    const char *directory = ecfs_archive_directory (self->archive);
    if (!self->writable)
        return ecfs_fail (error, EROFS, "%s is open for reading", directory);
    return self->mounted ? ecfs_release_brake_mounted (directory, error)
                         : ecfs_catalog_brake_end (ecfs_archive_catalog (self->archive), error);
}

bool ecfs_undelete (Ecfs *self, const char *const *paths, const char *moment, unsigned flags,
                    const EcfsTransferOptions *transfer, GError **error)
{
    const char *directory = ecfs_archive_directory (self->archive);
    if (!ecfs_check_leads (self, error))
        return false;
    if (moment == NULL && (paths[0] == NULL || paths[1] != NULL))
        return ecfs_fail (error, EINVAL, "without a moment it is one path that comes back");
    if (!self->mounted && !ecfs_archive_store_journal (self->archive, NULL, NULL, error))
        return false;
    g_autofree char *before = moment != NULL ? NULL : moment_before (directory, paths[0], error);
    return (moment != NULL || before != NULL) &&
           bring_back (self, paths, moment != NULL ? moment : before, flags, transfer, error);
}
