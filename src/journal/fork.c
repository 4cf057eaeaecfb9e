#include "journal/fork.h"

#include "archive/common.h"
#include "catalog/journal_rows.h"
#include "journal/journal_io.h"

#include <string.h>

#define FILES_MAX 256 /* of an endpoint that are compared; behind a fork each one differs */

typedef struct Beyond {
    const EcfsArchive *archive;
    uint64_t after; /* what the catalog knows to be there */
    GArray *files;  /* of Segment */
} Beyond;

typedef struct Segment {
    char name[ECFS_JOURNAL_NAME_SIZE];
    uint64_t size;
} Segment;

static void on_listed (void *user, const EcfsListed *listed)
{
    Beyond *self = user;
    EcfsJournalFile file;
    if (self->files->len == FILES_MAX || !ecfs_journal_file_name_parse (listed->name, &file) ||
        file.kind != ECFS_JOURNAL_SEGMENT || file.last <= self->after ||
        file.epoch != ecfs_catalog_epoch (ecfs_archive_catalog (self->archive)))
        return;
    Segment segment = {.size = listed->size};
    g_strlcpy (segment.name, listed->name, sizeof segment.name);
    g_array_append_val (self->files, segment);
}

/* Whether the catalog has another record under the number of one of these; what it has no more says nothing. */
static bool contradicts (EcfsCatalog *catalog, const GPtrArray *there, bool *ret_other, GError **error)
{
    *ret_other = false;
    if (there->len == 0)
        return true;
    const EcfsJournalRow *first = g_ptr_array_index (there, 0);
    g_autoptr (GPtrArray) here =
        ecfs_catalog_journal (catalog, first->sequence > 0 ? first->sequence - 1 : 0, there->len, error);
    if (here == NULL)
        return false;
    for (guint i = 0, j = 0; i < there->len && j < here->len && !*ret_other;) {
        const EcfsJournalRow *a = g_ptr_array_index (there, i), *b = g_ptr_array_index (here, j);
        if (a->sequence == b->sequence)
            *ret_other =
                a->record->len != b->record->len || memcmp (a->record->data, b->record->data, a->record->len) != 0;
        i += a->sequence <= b->sequence;
        j += b->sequence <= a->sequence;
    }
    return true;
}

static bool compare (EcfsArchive *archive, EcfsEndpoint *endpoint, const Segment *segment, bool *ret_other,
                     GError **error)
{
    EcfsJournalFile file;
    g_autoptr (GPtrArray) there =
        ecfs_journal_load (archive, endpoint, segment->name, segment->size, ECFS_JOURNAL_FILE_MAX, &file, NULL, error);
    return there != NULL && contradicts (ecfs_archive_catalog (archive), there, ret_other, error);
}

/* A file that is damaged or none of ours says nothing: others have it, too. */
int ecfs_journal_is_forked (EcfsArchive *archive, EcfsLineage *lineage, size_t position, uint64_t known, GError **error)
{
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, position);
    g_autoptr (GArray) files = g_array_new (FALSE, FALSE, sizeof (Segment));
    Beyond beyond = {.archive = archive, .after = known, .files = files};
    bool other = false;
    if (ecfs_lineage_listed (lineage, position) <= known)
        return 0;
    if (!ecfs_endpoint_list_wait (endpoint->endpoint, ECFS_JOURNAL_DIRECTORY, on_listed, &beyond, error))
        return -1;
    for (guint i = 0; i < files->len && !other; i++) {
        g_autoptr (GError) why = NULL;
        if (compare (archive, endpoint->endpoint, &g_array_index (files, Segment, i), &other, &why))
            continue;
        g_info ("%s", why->message);
        if (why->code != EBADMSG && why->code != ENOENT && why->code != ENOKEY && why->code != ENOTSUP) {
            g_propagate_error (error, g_steal_pointer (&why));
            return -1;
        }
    }
    return other ? 1 : 0;
}

static uint64_t known_there (const GArray *places, int64_t endpoint)
{
    for (guint i = 0; i < places->len; i++) {
        const EcfsJournalPlace *place = &g_array_index (places, EcfsJournalPlace, i);
        if (place->endpoint == endpoint)
            return place->sequence;
    }
    return 0;
}

bool ecfs_journal_check_fork (EcfsArchive *archive, EcfsLineage *lineage, GError **error)
{
    g_autoptr (GArray) places = ecfs_catalog_journal_places (ecfs_archive_catalog (archive), error);
    if (places == NULL)
        return false;
    size_t forked[ECFS_ENDPOINTS_MAX], n_forked = 0;
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        g_autoptr (GError) why = NULL;
        if (ecfs_archive_endpoint_counts (endpoint) &&
            ecfs_journal_is_forked (archive, lineage, i, known_there (places, endpoint->id), &why) > 0)
            forked[n_forked++] = i;
        if (why != NULL)
            g_info ("%s", why->message); /* it is asked again before anything is stored there */
    }
    ecfs_lineage_foreign_segments (lineage, forked, n_forked);
    if (!ecfs_lineage_is_stale (lineage))
        return true;
    g_autofree char *trouble = ecfs_lineage_trouble (lineage);
    return ecfs_fail (error, ESTALE, "%s", trouble);
}
