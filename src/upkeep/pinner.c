#include "upkeep/pinner.h"

#include "archive/cached.h"
#include "archive/common.h"
#include "util/ticker.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define PERIOD_US (10 * 60 * G_USEC_PER_SEC)
#define BATCH     256
#define MOST_DEEP 4096

struct EcfsPinner {
    EcfsArchive *archive;
    EcfsTicker *ticker;
    atomic_bool stopping;
    char *told; /* what the log said last; the ticker's thread only */
};

typedef struct PinWalk {
    EcfsPinner *pinner;
    int64_t stamp;
    uint64_t n_failed;
    uint64_t missing; /* bytes for which there was no room */
    GError *error;    /* the first */
} PinWalk;

static bool goes_on (void *user, uint64_t bytes)
{
    const EcfsPinner *self = user;
    (void) bytes;
    return !atomic_load (&self->stopping);
}

/* @error is taken. */
static void note_failed (PinWalk *self, GError *error)
{
    self->n_failed++;
    if (self->error == NULL)
        self->error = error;
    else
        g_error_free (error);
}

static void keep_file (PinWalk *self, uint64_t ino)
{
    GError *why = NULL;
    uint64_t missing = 0;
    const EcfsWarming warming = {.pins = true, .stamp = self->stamp, .tick = goes_on, .user = self->pinner};
    if (!ecfs_archive_warm (self->pinner->archive, ino, &warming, &missing, &why))
        note_failed (self, why);
    self->missing += missing;
}

/* *ret_own: what its own attribute says. False: it has none. */
static bool has_own (PinWalk *self, uint64_t ino, bool *ret_own)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->pinner->archive);
    g_autoptr (GByteArray) value = ecfs_catalog_getxattr (catalog, ino, ECFS_PIN_ATTRIBUTE, NULL);
    return value != NULL && ecfs_pin_parse ((const char *) value->data, value->len, ret_own, NULL);
}

static void keep_directory (PinWalk *self, uint64_t ino, unsigned depth);

static void keep_below (PinWalk *self, const EcfsAttr *attr, unsigned depth)
{
    bool own;
    if (has_own (self, attr->ino, &own)) /* it is not pinned, or is walked for its own sake */
        return;
    if (S_ISREG (attr->mode))
        keep_file (self, attr->ino);
    else if (S_ISDIR (attr->mode) && depth < MOST_DEEP)
        keep_directory (self, attr->ino, depth + 1);
}

static void keep_directory (PinWalk *self, uint64_t ino, unsigned depth)
{
    int64_t after = 0;
    for (guint n = 1; n > 0 && goes_on (self->pinner, 0);) {
        GError *why = NULL;
        g_autoptr (GPtrArray) entries =
            ecfs_catalog_readdir (ecfs_archive_catalog (self->pinner->archive), ino, after, BATCH, &why);
        if (entries == NULL) {
            note_failed (self, why);
            return;
        }
        n = entries->len;
        for (guint i = 0; i < n && goes_on (self->pinner, 0); i++) {
            const EcfsDirent *entry = g_ptr_array_index (entries, i);
            after = entry->offset;
            keep_below (self, &entry->attr, depth);
        }
    }
}

static void keep_root (PinWalk *self, uint64_t ino)
{
    bool own = false;
    EcfsAttr attr;
    if (!has_own (self, ino, &own) || !own ||
        !ecfs_catalog_getattr (ecfs_archive_catalog (self->pinner->archive), ino, &attr, NULL))
        return; /* what is gone is not pinned */
    if (S_ISREG (attr.mode))
        keep_file (self, ino);
    else if (S_ISDIR (attr.mode))
        keep_directory (self, ino, 0);
}

/* Says what is wrong when that changes. */
static void tell (EcfsPinner *self, const PinWalk *walk)
{
    g_autofree char *text = NULL;
    if (walk->n_failed > 0)
        text =
            g_strdup_printf ("%" PRIu64 " pinned files are not in the cache: %s", walk->n_failed, walk->error->message);
    else if (walk->missing > 0)
        text = g_strdup_printf ("%" PRIu64 " bytes of pinned files do not fit into the cache: raise cache_size, or "
                                "pin less",
                                walk->missing);
    if (text != NULL && g_strcmp0 (text, self->told) != 0)
        g_warning ("%s", text);
    g_free (self->told);
    self->told = g_steal_pointer (&text);
}

static void walk_all (void *user)
{
    EcfsPinner *self = user;
    uint64_t after = 0;
    PinWalk walk = {.pinner = self, .stamp = g_get_real_time ()};
    for (guint n = 1; n > 0 && goes_on (self, 0) && walk.error == NULL;) {
        g_autoptr (GArray) roots = ecfs_catalog_xattr_inodes (ecfs_archive_catalog (self->archive), ECFS_PIN_ATTRIBUTE,
                                                              after, BATCH, &walk.error);
        n = roots == NULL ? 0 : roots->len;
        walk.n_failed += roots == NULL;
        for (guint i = 0; i < n && goes_on (self, 0); i++) {
            after = g_array_index (roots, uint64_t, i);
            keep_root (&walk, after);
        }
    }
    if (goes_on (self, 0)) {
        if (walk.n_failed == 0)
            ecfs_cache_unpin (ecfs_archive_cache (self->archive), walk.stamp);
        tell (self, &walk);
    }
    g_clear_error (&walk.error);
}

EcfsPinner *ecfs_pinner_start (EcfsArchive *archive)
{
    if (ecfs_archive_cache (archive) == NULL)
        return NULL;
    EcfsPinner *self = g_new0 (EcfsPinner, 1);
    self->archive = archive;
    self->ticker = ecfs_ticker_start (PERIOD_US, walk_all, self);
    return self;
}

void ecfs_pinner_hurry (EcfsPinner *self)
{
    if (self != NULL)
        ecfs_ticker_nudge (self->ticker);
}

void ecfs_pinner_stop (EcfsPinner *self)
{
    if (self == NULL)
        return;
    atomic_store (&self->stopping, true);
    ecfs_ticker_stop (self->ticker);
    g_free (self->told);
    g_free (self);
}
