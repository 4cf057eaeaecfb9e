#include "upkeep/prune.h"

#include "archive/common.h"
#include "archive/keys.h"
#include "archive/lineage.h"
#include "catalog/marks.h"
#include "journal/sender.h"
#include "object/format.h"

#define HEAD_BYTES 4096

typedef struct Pruning {
    EcfsArchive *archive;
    const EcfsArchiveEndpoint *endpoint;
    bool unrecovered; /* what a recovery left alone is to go, too */
} Pruning;

/* Whether the archive had no key when it was stored: what counted then is listed by the catalog that was sealed first.
 */
static bool is_from_before (const Pruning *self, const EcfsStripeHeader *header, bool *ret_is, GError **error)
{
    EcfsOpenEnd end;
    if (!ecfs_keys_end (ecfs_archive_catalog (self->archive), &end, error))
        return false;
    *ret_is = header->seal.kind == ECFS_SEAL_NONE && ecfs_archive_keys (self->archive) != NULL &&
              (header->epoch < end.epoch || (header->epoch == end.epoch && header->sequence <= end.sequence));
    return true;
}

/* A recovery leaves alone what it cannot make a file of for want of other stripes, and that may be all that there is of
 * it: what is from before is removed only where the catalog has its object, in other stripes, or where that is meant.
 */
static bool is_accounted_for (Pruning *self, const EcfsStripeHeader *header, EcfsPruneStripe *stripe, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    bool known = false, lacking = false;
    if (!stripe->is_open && !ecfs_catalog_stripe_lacking (catalog, &header->object, header->index, &lacking, error))
        return false;
    if (lacking)
        return ecfs_fail (error, EBUSY, "its object lacks this stripe: 'ecfs fsck -y' gives it back");
    g_autoptr (GArray) marks = ecfs_catalog_marks (catalog, error);
    if (marks == NULL)
        return false;
    for (guint i = 0; i < marks->len && header->epoch != ecfs_catalog_epoch (catalog); i++)
        if (g_array_index (marks, EcfsMark, i).epoch != ecfs_catalog_epoch (catalog))
            return ecfs_fail (error, EPERM,
                              "the mark %s, from before the archive was recovered, may need it: remove that first "
                              "('ecfs mark --remove')",
                              g_array_index (marks, EcfsMark, i).name);
    if (header->epoch == ecfs_catalog_epoch (catalog) || self->unrecovered || stripe->is_open)
        return true;
    if (!ecfs_catalog_object_known (catalog, &header->object, &known, error))
        return false;
    stripe->is_unrecovered = !known;
    return known || ecfs_fail (error, EPERM, "it was stored before the archive was recovered, without its object");
}

/* What the stripe says of itself must be what its name says, of this archive and of the past. */
static bool check_header (Pruning *self, EcfsPruneStripe *stripe, const EcfsStripeHeader *header, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    uint32_t epoch = ecfs_catalog_epoch (catalog);
    if (!ecfs_uuid_equal (&header->archive, ecfs_catalog_archive (catalog)))
        return ecfs_fail (error, EPERM, "it is of another archive");
    if (!ecfs_uuid_equal (&header->object, &stripe->object) || header->index != stripe->index ||
        header->instance != stripe->instance)
        return ecfs_fail (error, EPERM, "its header is that of another stripe");
    if (header->epoch > epoch || (header->epoch == epoch && header->sequence > ecfs_catalog_sequence (catalog)))
        return ecfs_fail (error, ESTALE, "it is newer than the catalog: run ecfs recover");
    return is_accounted_for (self, header, stripe, error);
}

/* Where the archive has a key, what tells of none, or of one that is not here, may tell anything; but that it is from
 * before nobody gains by. */
static bool check_authentic (const Pruning *self, const EcfsStripeHeader *header, const uint8_t *head,
                             EcfsPruneStripe *stripe, GError **error)
{
    const EcfsKeyRing *ring = ecfs_archive_keys (self->archive);
    g_autoptr (EcfsSealKeys) keys = NULL;
    if (!is_from_before (self, header, &stripe->is_open, error))
        return false;
    if (stripe->is_open)
        return true;
    if (ring != NULL && header->seal.kind == ECFS_SEAL_NONE)
        return ecfs_fail (error, EPERM, "it is not sealed, and the archive has a key");
    return ecfs_seal_open (&header->seal, ring, &header->object, &keys, error) &&
           ecfs_stripe_header_check (header, head, keys, error);
}

/* What has no header that can be read stays: nobody knows what it was. */
static bool examine (Pruning *self, EcfsPruneStripe *stripe, const char *name, GError **error)
{
    EcfsEndpoint *endpoint = self->endpoint->endpoint;
    uint64_t size;
    EcfsStripeHeader header = {.header_bytes = 0};
    if (!ecfs_endpoint_size_wait (endpoint, name, &size, error))
        return false;
    size_t wanted = (size_t) MIN (size, HEAD_BYTES);
    g_autofree uint8_t *head = g_malloc (wanted + 1);
    EcfsRange range = {.size = wanted, .to = head};
    if (wanted == 0)
        return ecfs_fail (error, EPERM, "it is empty");
    return ecfs_endpoint_read_wait (endpoint, name, &range, 1, error) &&
           ecfs_stripe_header_parse (head, wanted, &header, error) &&
           check_authentic (self, &header, head, stripe, error) && check_header (self, stripe, &header, error);
}

static bool is_unknown (EcfsArchive *archive, int64_t endpoint, const EcfsPruneStripe *stripe, GError **error)
{
    bool known;
    const EcfsStripeRow row = {.index = stripe->index, .instance = stripe->instance, .endpoint = endpoint};
    if (!ecfs_catalog_stripe_known (ecfs_archive_catalog (archive), &stripe->object, &row, &known, error))
        return false;
    if (known || ecfs_archive_pinned (archive, &stripe->object))
        return ecfs_fail (error, EBUSY, "it is in use");
    if (!ecfs_catalog_deletion_queued (ecfs_archive_catalog (archive), &stripe->object, &row, &known, error))
        return false;
    return !known || ecfs_fail (error, EBUSY, "it waits to be deleted");
}

/* A recovery from the endpoints would end where the catalog does. */
static bool journal_is_stored (EcfsArchive *archive, GError **error)
{
    EcfsRecoveryPoint point;
    if (!ecfs_archive_store_journal (archive, NULL, NULL, error) ||
        !ecfs_archive_recovery_point (archive, &point, error))
        return false;
    return point.stored >= point.sequence ||
           ecfs_fail (error, EAGAIN, "too few endpoints have the journal up to now: bring endpoints back");
}

/* Of those from before there was a key there is one less. */
static bool count_down (EcfsArchive *archive, GError **error)
{
    uint64_t n_stripes;
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    return ecfs_keys_strays (catalog, &n_stripes, error) &&
           (n_stripes == 0 || ecfs_keys_note_strays (catalog, n_stripes - 1, error));
}

static bool prune_one (Pruning *self, EcfsPruneStripe *stripe, GError **error)
{
    char name[ECFS_STRIPE_NAME_SIZE];
    ecfs_stripe_name (&stripe->object, stripe->index, stripe->instance, name);
    if (!examine (self, stripe, name, error) ||
        !is_unknown (self->archive, self->endpoint->id, stripe, error) /* the last thing before */
        || !ecfs_endpoint_remove_wait (self->endpoint->endpoint, name, error))
        return ecfs_prefix (error, "endpoint %s: %s stays", self->endpoint->name, name);
    stripe->removed = true;
    return !stripe->is_open || count_down (self->archive, error);
}

static bool prune_all (Pruning *self, EcfsPruneStripe *stripes, size_t n_stripes, GError **error)
{
    size_t position = ecfs_archive_position (self->archive, self->endpoint);
    g_autoptr (GError) first = NULL;
    for (size_t i = 0; i < n_stripes; i++) {
        g_autoptr (GError) why = NULL;
        if (ecfs_archive_is_stopping (self->archive) ||
            !ecfs_lineage_may_delete (ecfs_archive_lineage (self->archive), position))
            return ecfs_fail (error, ECANCELED, "endpoint %s: the archive is being closed, or may not be the newest",
                              self->endpoint->name);
        if (!prune_one (self, &stripes[i], &why) && first == NULL && !stripes[i].is_unrecovered)
            first = g_steal_pointer (&why);
    }
    if (first == NULL)
        return true;
    g_propagate_error (error, g_steal_pointer (&first));
    return false;
}

bool ecfs_prune_here (EcfsArchive *archive, int64_t endpoint_id, EcfsPruneStripe *stripes, size_t n_stripes,
                      bool unrecovered, GError **error)
{
    Pruning self = {
        .archive = archive, .endpoint = ecfs_archive_endpoint_by_id (archive, endpoint_id), .unrecovered = unrecovered};
    if (self.endpoint == NULL || !ecfs_archive_endpoint_counts (self.endpoint) || ecfs_archive_is_readonly (archive))
        return ecfs_fail (error, EINVAL, "there is no such endpoint, or the archive may only be read");
    if (!ecfs_catalog_harden (ecfs_archive_catalog (archive), NULL, error) || !journal_is_stored (archive, error))
        return false;
    size_t position = ecfs_archive_position (archive, self.endpoint);
    ecfs_lineage_await_told (ecfs_archive_lineage (archive), position, ecfs_now_us () + ecfs_lineage_told_us);
    if (!ecfs_lineage_confirm (ecfs_archive_lineage (archive), position))
        return ecfs_fail (error, EAGAIN,
                          "endpoint %s: too few endpoints confirm that this archive directory is the newest there is; "
                          "bring endpoints back",
                          self.endpoint->name);
    return prune_all (&self, stripes, n_stripes, error);
}
