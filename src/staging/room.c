/*
 * Room in the staging area: staging_max, and the part of the disk that staging leaves free.
 *
 * A writer that goes over a limit has its bytes taken and is answered when uploads have made room again, so it is as
 * fast as they are; the limit is exceeded by one request per writer at most. Where nothing can make room (what is
 * staged is still being written) or nothing did for long, writers fail with ENOSPC.
 */
#include "archive/cached.h"
#include "archive/common.h"
#include "staging/staged_priv.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define FREE_FIGURE_AGE_US 100000
#define LOOK_US            100000 /* again whether there is room, while somebody waits */

static uint64_t free_bytes_locked (EcfsStagedTable *table, int64_t max_age_us) ECFS_REQUIRES (table->lock)
{
    int64_t now_us = ecfs_now_us ();
    struct statvfs disk;
    if (now_us - table->free_us > max_age_us && fstatvfs (table->dir_fd, &disk) == 0) {
        table->free_bytes = (uint64_t) disk.f_bavail * disk.f_frsize;
        table->free_us = now_us;
    }
    return table->free_bytes;
}

static bool is_over_max_locked (EcfsStagedTable *table, uint64_t size) ECFS_REQUIRES (table->lock)
{
    uint64_t max = ecfs_archive_config (table->archive)->staging_max;
    return max != 0 && table->staged_bytes + size > max;
}

/* Whether less than @reserve stays free when @size more bytes are taken. Nobody is refused on an old figure. */
static bool is_short_of_disk_locked (EcfsStagedTable *table, uint64_t size, uint64_t reserve)
    ECFS_REQUIRES (table->lock)
{
    uint64_t needed = reserve + MIN (size, UINT64_MAX - reserve);
    return free_bytes_locked (table, FREE_FIGURE_AGE_US) < needed && free_bytes_locked (table, 0) < needed;
}

bool ecfs_staged_is_over_locked (EcfsStagedTable *table)
{
    return is_over_max_locked (table, 0) ||
           is_short_of_disk_locked (table, 0, ecfs_archive_config (table->archive)->staging_reserve);
}

/* Whether anything that is staged is on its way out. */
static bool may_make_room_locked (EcfsStagedTable *table) ECFS_REQUIRES (table->lock)
{
    GHashTableIter iter;
    gpointer value;
    if (table->out_of_room)
        return false;
    g_hash_table_iter_init (&iter, table->files);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        const EcfsStaged *self = value;
        if (self->charged_bytes > 0 && (self->n_writers == 0 || self->flushes.length > 0))
            return true;
    }
    return false;
}

bool ecfs_staged_shares_disk (EcfsArchive *archive, int dir_fd)
{
    struct stat own, other;
    if (ecfs_archive_cache (archive) == NULL || fstat (dir_fd, &own) != 0)
        return false;
    g_autofree char *place = ecfs_archive_cache_place (archive);
    while (stat (place, &other) != 0) { /* it is made below what there is */
        char *slash = strrchr (place, '/');
        if (slash == NULL || slash == place)
            return false;
        *slash = '\0';
    }
    return own.st_dev == other.st_dev;
}

/* What was only read is worth less than what is written. Returns whether there may be more room now. The cache is not
 * touched where its disk is another, which may hang. */
static bool cache_gives_way_locked (EcfsStagedTable *table, uint64_t size) ECFS_REQUIRES (table->lock)
{
    uint64_t reserve = ecfs_archive_config (table->archive)->staging_reserve;
    if (!table->shares_disk)
        return false;
    /* Also what is not enough may be of use. */
    (void) ecfs_cache_give_way (ecfs_archive_cache (table->archive), reserve / 2 + MIN (size, UINT64_MAX / 2));
    table->free_us = 0;
    return true;
}

/* Even with writers that wait, the catalog keeps half of the reserve. */
bool ecfs_staged_check_room_locked (EcfsStagedTable *table, uint64_t size, GError **error)
{
    const EcfsConfig *config = ecfs_archive_config (table->archive);
    const char *directory = ecfs_archive_directory (table->archive);
    bool over_max = is_over_max_locked (table, size);
    bool disk_is_short = is_short_of_disk_locked (table, size, config->staging_reserve);
    if (disk_is_short && cache_gives_way_locked (table, size))
        disk_is_short = is_short_of_disk_locked (table, size, config->staging_reserve);
    bool hopeless = (over_max || disk_is_short) && !may_make_room_locked (table);
    if (hopeless && over_max)
        return ecfs_fail (error, ENOSPC,
                          "%s/staging: staging_max = %" PRIu64
                          " is reached, and no upload makes room; ecfs put stores files without staging them",
                          directory, config->staging_max);
    if (hopeless || is_short_of_disk_locked (table, size, config->staging_reserve / 2))
        return ecfs_fail (error, ENOSPC,
                          "%s/staging: the disk has only %" PRIu64 " bytes left, staging_reserve is %" PRIu64
                          "; ecfs put stores files without staging them",
                          directory, table->free_bytes, config->staging_reserve);
    table->free_bytes -= MIN (size, table->free_bytes);
    return true;
}

void ecfs_staged_room_made_locked (EcfsStagedTable *table, uint64_t bytes)
{
    if (bytes == 0)
        return;
    table->out_of_room = false;
    table->room_until_us = ecfs_now_us () + ecfs_archive_config (table->archive)->close_timeout_us;
    if (table->paused.length > 0)
        ecfs_staged_schedule_locked (table, ecfs_now_us ());
}

/* Writers that wait */

static void answer_paused (EcfsPaused *paused, GQueue *answers)
{
    g_queue_push_tail (answers, paused->answer);
    ecfs_staged_unref (paused->staged);
    g_free (paused);
}

int64_t ecfs_staged_resume_locked (EcfsStagedTable *table, int64_t now_us, GQueue *answers)
{
    if (table->paused.length == 0)
        return INT64_MAX;
    bool over = ecfs_staged_is_over_locked (table) && !table->stopping;
    if (over && !table->out_of_room && now_us >= table->room_until_us) {
        g_warning ("%s/staging is full, and nothing was stored for close_timeout: writers get \"no space\"",
                   ecfs_archive_directory (table->archive));
        table->out_of_room = true;
    }
    GList *next;
    for (GList *l = table->paused.head; l != NULL; l = next) {
        EcfsPaused *paused = l->data;
        next = l->next;
        bool wanted = (over && !table->out_of_room) || (paused->staged->held && !table->stopping);
        if (wanted && !paused->ended)
            continue;
        g_queue_delete_link (&table->paused, l);
        answer_paused (paused, answers);
    }
    return table->paused.length > 0 ? now_us + LOOK_US : INT64_MAX;
}

void ecfs_staged_pause (EcfsStaged *self, EcfsStagedDone done, void *user)
{
    EcfsStagedTable *table = self->table;
    EcfsPaused *paused = g_new (EcfsPaused, 1);
    *paused = (EcfsPaused){.staged = ecfs_staged_ref (self), .answer = ecfs_answer_new (done, user)};
    GQueue answers = G_QUEUE_INIT;
    ecfs_mutex_lock (&table->lock);
    if (table->paused.length == 0)
        table->room_until_us = ecfs_now_us () + ecfs_archive_config (table->archive)->close_timeout_us;
    g_queue_push_tail (&table->paused, paused);
    int64_t again_us = ecfs_staged_resume_locked (table, ecfs_now_us (), &answers);
    ecfs_staged_schedule_locked (table, again_us);
    ecfs_mutex_unlock (&table->lock);
    ecfs_answer_all (&answers);
}

void ecfs_staged_unpause (EcfsStaged *self, const void *user)
{
    EcfsStagedTable *table = self->table;
    ecfs_mutex_lock (&table->lock);
    for (GList *l = table->paused.head; l != NULL; l = l->next) {
        EcfsPaused *paused = l->data;
        paused->ended = paused->ended || paused->answer->user == user;
    }
    ecfs_staged_schedule_locked (table, ecfs_now_us ());
    ecfs_mutex_unlock (&table->lock);
}
