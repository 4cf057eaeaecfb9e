#include "packing/packing.h"

#include "archive/common.h"
#include "archive/content.h"
#include "archive/places_of.h"
#include "commit/commit.h"
#include "commit/logs.h"
#include "object/format.h"
#include "util/io.h"
#include "util/sha256.h"

#include <unistd.h>

#define PACK_BYTES  (16u << 20)
#define PATHS_BYTES (640u << 10) /* of paths of the files in a pack: its footers tell them */
#define MOST_FILES  16384        /* that are looked at together, so that they lie in the order of their paths */
#define SHARERS     1024

/* An object that files are taken out of. */
typedef struct Source {
    EcfsObjectRow *row;
    int fd;               /* of its content; -1 */
    EcfsContent *content; /* NULL: not opened yet */
} Source;

/* A file that is to be packed. */
typedef struct Item {
    EcfsPackFile file;
    Source *source;
    char *path;  /* owned, as the next */
    char *code;  /* that it is to have */
    char *marks; /* of EcfsRuled; empty: no rule holds for it */
} Item;

/* Some sources, and what is taken out of them. */
typedef struct Round {
    EcfsPacking *packing;
    GPtrArray *sources; /* of Source */
    GArray *items;      /* of Item, by code, rules and path */
} Round;

static void source_free (gpointer data)
{
    Source *self = data;
    if (self->fd >= 0)
        (void) close (self->fd);
    ecfs_content_unref (self->content);
    ecfs_object_row_free (self->row);
    g_free (self);
}

static void item_clear (gpointer data)
{
    Item *self = data;
    g_free (self->path);
    g_free (self->code);
    g_free (self->marks);
}

static void round_init (Round *self, EcfsPacking *packing)
{
    *self = (Round){.packing = packing,
                    .sources = g_ptr_array_new_with_free_func (source_free),
                    .items = g_array_new (FALSE, FALSE, sizeof (Item))};
    g_array_set_clear_func (self->items, item_clear);
}

static void round_clear (Round *self)
{
    g_array_unref (self->items);
    g_ptr_array_unref (self->sources);
}

static EcfsCatalog *catalog_of (const Round *self)
{
    return ecfs_archive_catalog (self->packing->archive);
}

static EcfsLogs *logs_of (const Round *self)
{
    return ecfs_archive_service (self->packing->archive, ECFS_SERVICE_LOGS);
}

static bool is_cancelled (const Round *self, GError **error)
{
    const atomic_bool *cancelled = self->packing->cancelled;
    return cancelled != NULL && atomic_load (cancelled) && !ecfs_fail (error, ECANCELED, "cancelled");
}

/* What is to be packed */

/* NULL without an error: it is gone. */
static Source *add_source (Round *self, int64_t object, GError **error)
{
    GError *why = NULL;
    EcfsObjectRow *row = ecfs_catalog_object (catalog_of (self), object, &why);
    if (row == NULL) {
        if (why->code == ENOENT)
            g_error_free (why);
        else
            g_propagate_error (error, why);
        return NULL;
    }
    if (row->kind == ECFS_OBJECT_LOG) { /* what comes into it until then is seen, too */
        ecfs_logs_end (logs_of (self), &row->uuid);
        bool closed = ecfs_catalog_log_close (catalog_of (self), &row->uuid, error);
        ecfs_object_row_free (row);
        row = closed ? ecfs_catalog_object (catalog_of (self), object, error) : NULL;
        if (row == NULL)
            return NULL;
    }
    Source *source = g_new0 (Source, 1);
    *source =
        (Source){.row = row, .fd = row->kind == ECFS_OBJECT_LOG ? ecfs_logs_content (logs_of (self), &row->uuid) : -1};
    g_ptr_array_add (self->sources, source);
    return source;
}

/* Packs that a policy moved to another code keep that. Small ones are copies, whatever their files' code is. */
static void keep_code (const Round *self, const EcfsObjectRow *row, char **code)
{
    const EcfsCodec *codec = row->kind == ECFS_OBJECT_PACK && self->packing->code == NULL
                                 ? ecfs_archive_codec (self->packing->archive, row->code, NULL)
                                 : NULL;
    if (codec == NULL || ecfs_codec_family (codec) == ECFS_CODE_COPIES)
        return;
    g_free (*code);
    *code = g_strdup (ecfs_codec_code (codec));
}

/* A file that has something of a source; what is gone by now is well. */
static bool add_item (Round *self, Source *source, uint64_t ino, const EcfsExtent *extent, GError **error)
{
    EcfsArchive *archive = self->packing->archive;
    GError *why = NULL;
    Item item = {.source = source,
                 .code = g_strdup (self->packing->code),
                 .file = {.ino = ino,
                          .length = extent->length,
                          .object = source->row->uuid,
                          .object_offset = extent->object_offset,
                          .generation = extent->generation,
                          .is_known = extent->has_sha256}};
    EcfsRuled ruled = {.marks = NULL};
    if ((item.code == NULL && !ecfs_catalog_get_code (catalog_of (self), ino, &item.code, &why)) ||
        !ecfs_archive_file_ruled (archive, ino, &ruled, &why)) {
        g_free (item.code);
        if (why->code == ENOENT) {
            g_error_free (why);
            return true;
        }
        g_propagate_error (error, why);
        return false;
    }
    if (item.code == NULL)
        item.code = g_strdup (ecfs_archive_config (archive)->code);
    item.marks = g_strdup (ruled.marks != NULL ? ruled.marks : "");
    ecfs_ruled_clear (&ruled);
    keep_code (self, source->row, &item.code);
    if (item.file.generation == 0) /* it was an object of its own, or was cut */
        item.file.generation = source->row->sequence;
    memcpy (item.file.sha256, extent->sha256, ECFS_SHA256_SIZE);
    item.path = ecfs_catalog_path (catalog_of (self), ino);
    g_array_append_val (self->items, item);
    return true;
}

static bool add_sharers (Round *self, Source *source, GError **error)
{
    uint64_t after = 0;
    for (bool more = true; more;) {
        g_autoptr (GArray) sharers = ecfs_catalog_sharers (catalog_of (self), source->row->id, after, SHARERS, error);
        for (guint i = 0; sharers != NULL && i < sharers->len; i++) {
            const EcfsSharer *sharer = &g_array_index (sharers, EcfsSharer, i);
            after = sharer->ino;
            if (sharer->extent.length <= PACK_BYTES && !add_item (self, source, sharer->ino, &sharer->extent, error))
                return false;
        }
        if (sharers == NULL)
            return false;
        more = sharers->len == SHARERS;
    }
    return true;
}

/* What goes into one pack is 0 apart. */
static int compare_kinds (const Item *left, const Item *right)
{
    int order = strcmp (left->code, right->code);
    return order != 0 ? order : strcmp (left->marks, right->marks);
}

static int by_kind_and_path (gconstpointer a, gconstpointer b)
{
    const Item *left = a, *right = b;
    int order = compare_kinds (left, right);
    return order != 0 ? order : strcmp (left->path, right->path);
}

/* Content */

static bool read_from (EcfsContent *content, uint64_t offset, uint8_t *to, size_t size, GError **error)
{
    size_t got;
    return ecfs_content_read_wait (content, offset, size, to, &got, error) &&
           (got == size || ecfs_fail (error, EIO, "there is less of it than the catalog says"));
}

/* What has no digest yet gets one. */
static bool fits (Item *item, const uint8_t *bytes)
{
    uint8_t sha256[ECFS_SHA256_SIZE];
    g_autoptr (EcfsSha256) sum = ecfs_sha256_new ();
    ecfs_sha256_update (sum, bytes, item->file.length);
    ecfs_sha256_end (sum, sha256);
    if (!item->file.is_known)
        memcpy (item->file.sha256, sha256, sizeof sha256);
    return memcmp (item->file.sha256, sha256, sizeof sha256) == 0;
}

/* The file's content by itself: from what its source has of it, where not all of that can be read. */
static bool read_apart (const Round *self, Item *item, uint8_t *to, GError **error)
{
    EcfsContent *content = ecfs_content_open (self->packing->archive, item->file.ino, error);
    bool fine = content != NULL && read_from (content, 0, to, item->file.length, error);
    ecfs_content_unref (content);
    return fine && (fits (item, to) || ecfs_fail (error, EBADMSG, "what is read of it is not what was stored"));
}

/* All of an object is read in order, as most of it is needed. */
static bool read_in_order (const Round *self, Item *item, uint8_t *to)
{
    Source *source = item->source;
    if (source->content == NULL)
        source->content = ecfs_content_open_object (self->packing->archive, source->row->id, NULL);
    return source->content != NULL &&
           read_from (source->content, item->file.object_offset, to, item->file.length, NULL) && fits (item, to);
}

static bool read_item (const Round *self, Item *item, uint8_t *to, GError **error)
{
    const EcfsPackFile *file = &item->file;
    if (item->source->fd >= 0 &&
        ecfs_pread_all (item->source->fd, to, file->length, file->object_offset) == (ssize_t) file->length &&
        fits (item, to))
        return true;
    return read_in_order (self, item, to) || read_apart (self, item, to, error);
}

/* Packs */

/* A pack that is being made. */
typedef struct Pack {
    const Round *round;
    GArray *files; /* of EcfsPackFile */
    int fd;        /* of its content */
    uint64_t size;
    uint64_t paths_bytes;
    uint64_t packet_bytes; /* that no file lies across, where it can be helped */
    EcfsMutex lock;
    EcfsCond ended;
    bool has_ended; /* guarded by lock, as the next */
    GError *error;
} Pack;

/* Where the next file of @length begins. */
static uint64_t next_offset (const Pack *self, uint64_t length)
{
    uint64_t left = self->packet_bytes - self->size % self->packet_bytes;
    return length > left && length <= self->packet_bytes ? self->size + left : self->size;
}

static bool takes (const Pack *self, const Item *item)
{
    return self->files->len == 0 ||
           (self->files->len < ECFS_RECORDS_MAX && self->paths_bytes + strlen (item->path) <= PATHS_BYTES &&
            next_offset (self, item->file.length) + item->file.length <= PACK_BYTES);
}

/* Copies the item's content into the pack. What cannot be read stays where it is, and is told. */
static bool put_item (Pack *self, Item *item, GError **error)
{
    GError *why = NULL;
    EcfsPacking *packing = self->round->packing;
    g_autofree uint8_t *bytes = g_malloc (item->file.length);
    if (!read_item (self->round, item, bytes, &why)) {
        bool is_gone = why->code == ENOENT || why->code == ESTALE;
        packing->n_left += !is_gone;
        if (!is_gone && packing->left != NULL)
            g_array_append_val (packing->left, item->source->row->id);
        if (!is_gone)
            g_warning ("%s: it stays where it is: %s", item->path, why->message);
        g_error_free (why);
        return true;
    }
    item->file.offset = next_offset (self, item->file.length);
    int result = ecfs_pwrite_all (self->fd, bytes, item->file.length, item->file.offset);
    if (result < 0)
        return ecfs_fail_errno (error, -result, "%s", ecfs_archive_directory (packing->archive));
    self->size = item->file.offset + item->file.length;
    self->paths_bytes += strlen (item->path);
    g_array_append_val (self->files, item->file);
    return true;
}

static void pack_done (void *user, const EcfsOutcome *outcome)
{
    Pack *self = user;
    ecfs_mutex_lock (&self->lock);
    self->error = outcome->error == NULL ? NULL : g_error_copy (outcome->error);
    self->has_ended = true;
    ecfs_cond_signal (&self->ended);
    ecfs_mutex_unlock (&self->lock);
}

static void run_commit (Pack *self, const EcfsCommit *commit)
{
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->ended);
    ecfs_archive_commit (self->round->packing->archive, commit);
    ecfs_mutex_lock (&self->lock);
    while (!self->has_ended) /* an attempt ends by itself */
        (void) ecfs_cond_wait_until (&self->ended, &self->lock, ecfs_now_us () + G_USEC_PER_SEC);
    ecfs_mutex_unlock (&self->lock);
    ecfs_cond_clear (&self->ended);
    ecfs_mutex_clear (&self->lock);
}

static bool store (Pack *self, const Item *first, GError **error)
{
    EcfsPacking *packing = self->round->packing;
    EcfsPackOrder order = {.files = (const EcfsPackFile *) (void *) self->files->data, .n_files = self->files->len};
    g_autofree char *text = g_strdup_printf ("%u small files, the first of which is %s", self->files->len, first->path);
    const EcfsCommit commit = {.kind = ECFS_COMMIT_PACK,
                               .size = self->size,
                               .path = text,
                               .cancelled = packing->cancelled,
                               .done = pack_done,
                               .user = self,
                               .fd = self->fd,
                               .is_foreign = true,
                               .code = first->code,
                               .marks = first->marks[0] != '\0' ? first->marks : NULL,
                               .pack = &order};
    run_commit (self, &commit);
    packing->n_packed += order.n_moved;
    packing->bytes += self->size;
    if (self->error != NULL)
        g_propagate_error (error, self->error);
    return self->error == NULL;
}

static uint64_t packet_bytes (EcfsArchive *archive, const char *code)
{
    const EcfsCodec *codec = ecfs_archive_codec (archive, code, NULL);
    if (codec == NULL)
        return PACK_BYTES;
    return ecfs_layout_segment_bytes (ecfs_archive_config (archive)->segment_size, ecfs_codec_k (codec),
                                      ecfs_codec_granule (codec)) /
           ecfs_codec_k (codec);
}

/* Packs items from @at on, as many as go into one. Returns where the next begin; 0: error. */
static guint pack_some (const Round *self, guint at, GError **error)
{
    EcfsArchive *archive = self->packing->archive;
    const Item *first = &g_array_index (self->items, Item, at);
    g_autoptr (GArray) files = g_array_new (FALSE, FALSE, sizeof (EcfsPackFile));
    ecfs_autofd fd = ecfs_nameless_file (ecfs_archive_directory (archive), error);
    if (fd < 0)
        return 0;
    Pack pack = {.round = self, .files = files, .fd = fd, .packet_bytes = packet_bytes (archive, first->code)};
    for (; at < self->items->len; at++) {
        Item *item = &g_array_index (self->items, Item, at);
        if (compare_kinds (item, first) != 0 || !takes (&pack, item))
            break;
        if (is_cancelled (self, error) || !put_item (&pack, item, error))
            return 0;
    }
    return files->len == 0 || store (&pack, first, error) ? at : 0;
}

/* Rounds */

/* Objects of which nobody has anything go. */
static bool drop_sources (const Round *self, GError **error)
{
    for (guint i = 0; i < self->sources->len; i++) {
        bool gone;
        const EcfsObjectRow *row = ((const Source *) g_ptr_array_index (self->sources, i))->row;
        if (!ecfs_catalog_drop_unused (catalog_of (self), &row->uuid, &gone, error))
            return false;
        if (gone && row->kind == ECFS_OBJECT_LOG)
            ecfs_logs_forget (logs_of (self), &row->uuid);
    }
    return true;
}

/* Where items of another kind than that at @at begin. */
static guint next_kind (const Round *self, guint at)
{
    const Item *first = &g_array_index (self->items, Item, at);
    while (at < self->items->len && compare_kinds (&g_array_index (self->items, Item, at), first) == 0)
        at++;
    return at;
}

/* A code or rule for which endpoints are lacking now is in no other's way; @error is the first. */
static bool pack_all (Round *self, GError **error)
{
    GError *why = NULL;
    g_array_sort (self->items, by_kind_and_path);
    for (guint at = 0, next; at < self->items->len; at = next) {
        g_autoptr (GError) local = NULL;
        next = pack_some (self, at, &local);
        if (next == 0 && why == NULL)
            why = g_error_copy (local);
        if (next == 0)
            next = local->code == ECANCELED || local->code == EROFS ? self->items->len : next_kind (self, at);
    }
    if (self->items->len > 0)
        ecfs_archive_stripes_changed (self->packing->archive);
    bool dropped = drop_sources (self, why == NULL ? error : NULL); /* else what came first is told */
    if (why != NULL)
        g_propagate_error (error, why);
    return dropped && why == NULL;
}

/* As many objects from @at on as are looked at together. Returns where the next begin; 0: error. */
static size_t pack_from (EcfsPacking *self, const int64_t *objects, size_t n_objects, size_t at, GError **error)
{
    Round round;
    GError *why = NULL;
    round_init (&round, self);
    while (at < n_objects && round.items->len < MOST_FILES && why == NULL) {
        Source *source = add_source (&round, objects[at++], &why);
        if (source != NULL)
            (void) add_sharers (&round, source, &why); /* why says it */
    }
    bool fine = why == NULL && pack_all (&round, &why);
    round_clear (&round);
    if (!fine)
        g_propagate_error (error, why);
    return fine ? at : 0;
}

bool ecfs_pack_objects (EcfsPacking *self, const int64_t *objects, size_t n_objects, GError **error)
{
    EcfsMutex *turn = ecfs_logs_packing_lock (ecfs_archive_service (self->archive, ECFS_SERVICE_LOGS));
    size_t at = 0;
    bool fine = true;
    ecfs_mutex_lock (turn);
    while (at < n_objects && fine) {
        at = pack_from (self, objects, n_objects, at, error);
        fine = at > 0;
    }
    ecfs_mutex_unlock (turn);
    return fine;
}

static Source *find_source (Round *self, int64_t object, GError **error)
{
    for (guint i = 0; i < self->sources->len; i++) {
        Source *source = g_ptr_array_index (self->sources, i);
        if (source->row->id == object)
            return source;
    }
    return add_source (self, object, error);
}

static bool add_file (Round *self, uint64_t ino, GError **error)
{
    g_autoptr (GError) why = NULL;
    g_autoptr (GArray) extents = ecfs_catalog_extents (catalog_of (self), ino, &why);
    const EcfsExtent *first = extents == NULL || extents->len == 0 ? NULL : &g_array_index (extents, EcfsExtent, 0);
    Source *source = first == NULL ? NULL : find_source (self, first->object, &why);
    if (source != NULL && first->offset == 0 && (source->row->kind != ECFS_OBJECT_WHOLE || extents->len == 1))
        (void) add_item (self, source, ino, first, &why); /* why says it */
    if (why == NULL || why->code == ENOENT)
        return true;
    g_propagate_error (error, g_steal_pointer (&why));
    return false;
}

bool ecfs_pack_files (EcfsPacking *self, const uint64_t *inos, size_t n_inos, GError **error)
{
    EcfsMutex *turn = ecfs_logs_packing_lock (ecfs_archive_service (self->archive, ECFS_SERVICE_LOGS));
    bool fine = true;
    ecfs_mutex_lock (turn);
    for (size_t at = 0; at < n_inos && fine;) {
        Round round;
        round_init (&round, self);
        while (at < n_inos && round.items->len < MOST_FILES && fine)
            fine = add_file (&round, inos[at++], error);
        fine = fine && pack_all (&round, error);
        round_clear (&round);
    }
    ecfs_mutex_unlock (turn);
    return fine;
}
