/* An archive with all that runs on it: the services of the rooms below, begun and ended in the order that they need. */
#include "archive/common.h"
#include "archive/key_watch.h"
#include "archive/lineage.h"
#include "catalog/reads.h"
#include "commit/logs.h"
#include "commit/together.h"
#include "journal/fork.h"
#include "journal/sender.h"
#include "service/leading.h"
#include "staging/staged.h"
#include "upkeep/packer.h"
#include "upkeep/pinner.h"
#include "upkeep/repairer.h"
#include "upkeep/upkeep.h"

static void *take (EcfsArchive *self, EcfsService service)
{
    void *running = ecfs_archive_service (self, service);
    ecfs_archive_set_service (self, service, NULL);
    return running;
}

/* What only who leads does. */
static void start_sending (EcfsArchive *self)
{
    ecfs_archive_set_service (self, ECFS_SERVICE_JOURNAL,
                              ecfs_journal_sender_start (self, ecfs_archive_lineage (self)));
}

bool ecfs_archive_start (EcfsArchive *self, GError **error)
{
    if (!ecfs_archive_begin (self, error))
        return false;
    ecfs_archive_set_service (self, ECFS_SERVICE_KEY, ecfs_key_watch_new (self));
    if (!ecfs_archive_is_readonly (self) && !ecfs_archive_lacks_keys (self)) {
        if (ecfs_archive_leads (self))
            start_sending (self);
        ecfs_archive_set_service (self, ECFS_SERVICE_LOGS, ecfs_logs_start (self));
        ecfs_archive_set_service (self, ECFS_SERVICE_TOGETHER, ecfs_together_new ());
        ecfs_archive_set_service (self, ECFS_SERVICE_READS, ecfs_reads_new (ecfs_archive_directory (self)));
        ecfs_archive_set_service (self, ECFS_SERVICE_UPKEEP, ecfs_maintenance_start (self));
    }
    return true;
}

bool ecfs_archive_lead (EcfsArchive *self, bool is_mount, GError **error)
{
    if (!ecfs_archive_check_newest (self, error) ||
        !ecfs_journal_check_fork (self, ecfs_archive_lineage (self), error) ||
        !ecfs_archive_begin_leading (self, error))
        return false;
    start_sending (self);
    ecfs_archive_note_leads (self); /* what deletes hurries the journal */
    if (!is_mount)
        return true;
    ecfs_archive_repair_behind (self);
    ecfs_archive_pack_behind (self);
    ecfs_key_watch_begin (ecfs_archive_service (self, ECFS_SERVICE_KEY));
    return true;
}

void ecfs_archive_lead_behind (EcfsArchive *self)
{
    if (ecfs_catalog_is_shared (ecfs_archive_catalog (self)))
        ecfs_archive_set_service (self, ECFS_SERVICE_LEADING, ecfs_leading_start (self, true));
}

void ecfs_archive_lead_meanwhile (EcfsArchive *self)
{
    if (ecfs_catalog_is_shared (ecfs_archive_catalog (self)) && !ecfs_archive_is_readonly (self))
        ecfs_archive_set_service (self, ECFS_SERVICE_LEADING, ecfs_leading_start (self, false));
}

void ecfs_archive_repair_behind (EcfsArchive *self)
{
    if (!ecfs_archive_leads (self) && !ecfs_archive_is_readonly (self))
        return;
    ecfs_archive_set_service (self, ECFS_SERVICE_REPAIR, ecfs_repairer_start (self));
}

void ecfs_archive_pack_behind (EcfsArchive *self)
{
    if (ecfs_archive_service (self, ECFS_SERVICE_LOGS) != NULL && ecfs_archive_leads (self))
        ecfs_archive_set_service (self, ECFS_SERVICE_PACKING, ecfs_packer_start (self));
}

void ecfs_archive_pin_behind (EcfsArchive *self)
{
    ecfs_archive_set_service (self, ECFS_SERVICE_PINNING, ecfs_pinner_start (self));
}

void ecfs_archive_hurry_pins (EcfsArchive *self)
{
    ecfs_pinner_hurry (ecfs_archive_service (self, ECFS_SERVICE_PINNING));
}

void ecfs_archive_end_repairs (EcfsArchive *self)
{
    ecfs_pinner_stop (take (self, ECFS_SERVICE_PINNING));
    ecfs_packer_stop (take (self, ECFS_SERVICE_PACKING));
    ecfs_repairer_stop (take (self, ECFS_SERVICE_REPAIR));
}

void ecfs_archive_hurry_repairs (EcfsArchive *self)
{
    EcfsRepairer *repairer = ecfs_archive_service (self, ECFS_SERVICE_REPAIR);
    if (repairer != NULL)
        ecfs_repairer_hurry (repairer);
}

bool ecfs_archive_await_damage (EcfsArchive *self, int64_t deadline_us)
{
    EcfsRepairer *repairer = ecfs_archive_service (self, ECFS_SERVICE_REPAIR);
    return repairer == NULL || ecfs_archive_is_readonly (self) || ecfs_repairer_await_queued (repairer, deadline_us);
}

void ecfs_archive_keep_space (EcfsArchive *self, int64_t deadline_us)
{
    if (ecfs_archive_service (self, ECFS_SERVICE_UPKEEP) == NULL)
        ecfs_archive_set_service (self, ECFS_SERVICE_UPKEEP, ecfs_maintenance_start (self));
    ecfs_maintenance_await_space (ecfs_archive_service (self, ECFS_SERVICE_UPKEEP), deadline_us);
}

void ecfs_archive_stop (EcfsArchive *self)
{
    ecfs_archive_set_stopping (self);
    ecfs_leading_stop (take (self, ECFS_SERVICE_LEADING)); /* others may have waited until now for what it does */
    if (ecfs_archive_service (self, ECFS_SERVICE_UPKEEP) != NULL)
        ecfs_archive_keep_estimates (self);
    ecfs_archive_end_repairs (self);
    if (ecfs_archive_is_readonly (self)) /* nothing is to be finished, and an endpoint that hangs is not waited for */
        ecfs_archive_begin_stop (self);
    ecfs_maintenance_stop (take (self, ECFS_SERVICE_UPKEEP));
    if (ecfs_archive_service (self, ECFS_SERVICE_READS) != NULL)
        ecfs_reads_keep (ecfs_archive_service (self, ECFS_SERVICE_READS));
    ecfs_archive_end_workers (self);
    ecfs_together_free (take (self, ECFS_SERVICE_TOGETHER));
    if (ecfs_archive_service (self, ECFS_SERVICE_LOGS) != NULL)
        ecfs_logs_stop (ecfs_archive_service (self, ECFS_SERVICE_LOGS));
    if (ecfs_archive_service (self, ECFS_SERVICE_JOURNAL) != NULL)
        ecfs_archive_await_session (self); /* nothing goes to endpoints that were not told who comes */
    ecfs_journal_sender_stop (take (self, ECFS_SERVICE_JOURNAL));
    ecfs_archive_end (self);
    ecfs_logs_free (take (self, ECFS_SERVICE_LOGS)); /* endpoints have given back what they had of them */
    ecfs_key_watch_free (take (self, ECFS_SERVICE_KEY));
    ecfs_reads_free (take (self, ECFS_SERVICE_READS));
}

void ecfs_archive_free (EcfsArchive *self)
{
    if (self == NULL)
        return;
    ecfs_archive_stop (self);
    ecfs_staged_table_free (take (self, ECFS_SERVICE_STAGING));
    ecfs_archive_close (self);
}
