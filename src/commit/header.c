/* What the headers of stripes say of their object. */
#include "commit/commit_priv.h"

EcfsStripeHeader ecfs_attempt_header (EcfsArchive *archive, const EcfsObjectRow *row, const EcfsCodec *codec)
{
    EcfsStripeHeader header = {.archive = *ecfs_catalog_archive (ecfs_archive_catalog (archive)),
                               .object = row->uuid,
                               .sequence = row->sequence,
                               .epoch = row->epoch,
                               .segment_bytes = row->segment_bytes,
                               .block_bytes = row->block_bytes,
                               .is_log = row->kind == ECFS_OBJECT_LOG,
                               .seal = row->seal};
    ecfs_stripe_header_set_code (&header, codec);
    return header;
}
