/* All staged files of a mounted archive: the beginning and the end of staging, and what time brings: tries again,
 * deadlines, endpoints that are back. */
#include "archive/common.h"
#include "staging/staged_priv.h"
#include "util/io.h"

#include <unistd.h>

#define N_WORKERS 4
#define N_COPIERS 2

#define STOP_FULL_US (30 * G_USEC_PER_SEC) /* for what has its quorum, when all else has ended */
#define LOOK_US      200000
#define ENDPOINTS_US G_USEC_PER_SEC /* whether endpoints came back, while something waits for them */
#define IDLE_US      (60 * G_USEC_PER_SEC)

static void unref_file (gpointer data)
{
    ecfs_staged_unref (data);
}

static EcfsStagedTable *table_new (EcfsArchive *archive, EcfsStagedStore store, int dir_fd)
{
    EcfsStagedTable *table = g_new0 (EcfsStagedTable, 1);
    ecfs_mutex_init (&table->lock);
    ecfs_cond_init (&table->timer_wake);
    ecfs_cond_init (&table->progress);
    table->archive = archive;
    table->dir_fd = dir_fd;
    table->shares_disk = ecfs_staged_shares_disk (archive, dir_fd);
    table->store = store;
    table->files = g_hash_table_new_full (g_int64_hash, g_int64_equal, NULL, unref_file);
    g_queue_init (&table->idle);
    g_queue_init (&table->paused);
    ecfs_staged_queues_init (table);
    ecfs_staged_stream_init (table);
    table->lingering = g_ptr_array_new_with_free_func (unref_file);
    table->workers = ecfs_workers_new ("ecfs-staging", N_WORKERS);
    table->copiers = ecfs_workers_new ("ecfs-copy-up", N_COPIERS);
    return table;
}

/* The table says stopped, or nobody knows it yet: no more jobs come. */
static void stop_workers (EcfsStagedTable *table)
{
    ecfs_workers_free (table->copiers);
    ecfs_workers_free (table->workers);
    table->workers = table->copiers = NULL;
}

void ecfs_staged_table_free (EcfsStagedTable *table)
{
    if (table == NULL)
        return;
    ecfs_staged_queues_clear (table);
    g_ptr_array_unref (table->lingering);
    g_hash_table_destroy (table->files);
    (void) close (table->dir_fd); /* a directory: nothing to lose */
    ecfs_cond_clear (&table->timer_wake);
    ecfs_cond_clear (&table->progress);
    ecfs_mutex_clear (&table->lock);
    g_free (table);
}

/* The timer */

/* Whether it is down or takes nothing. */
static bool is_out (const EcfsArchiveEndpoint *endpoint)
{
    EcfsEndpointHealth health = {.down = true};
    if (endpoint->endpoint != NULL)
        ecfs_endpoint_health (endpoint->endpoint, &health);
    bool out = health.down || health.refuses || health.full || health.takes_none;
    ecfs_endpoint_health_clear (&health);
    return out;
}

/* Whether an endpoint takes stripes that did not when this was last asked. */
static bool came_back_locked (EcfsStagedTable *table) ECFS_REQUIRES (table->lock)
{
    bool came_back = false;
    size_t n = ecfs_archive_n_endpoints (table->archive);
    for (size_t i = 0; i < n; i++) {
        uint8_t out = is_out (ecfs_archive_endpoint (table->archive, i));
        bool known = i < table->was_out->len;
        came_back = came_back || (known && table->was_out->data[i] && !out);
        if (known)
            table->was_out->data[i] = out;
        else
            g_byte_array_append (table->was_out, &out, 1);
    }
    return came_back;
}

/* Files whose time has come, or with @all every one, go back to their queues. */
static void bring_forward_locked (EcfsStagedTable *table, bool all, int64_t now_us) ECFS_REQUIRES (table->lock)
{
    EcfsStaged *self;
    while ((self = ecfs_staged_first_locked (table, ECFS_TURN_LATER)) != NULL && (all || self->retry_us <= now_us)) {
        self->retry_us = 0;
        ecfs_staged_line_up_locked (table, self);
    }
}

static int64_t next_pause_end_locked (EcfsStagedTable *table, int64_t now_us) ECFS_REQUIRES (table->lock)
{
    int64_t next_us = INT64_MAX;
    const EcfsRetryPace *paces[] = {&table->commit_pace, &table->fill_pace};
    for (size_t i = 0; i < G_N_ELEMENTS (paces); i++)
        if (paces[i]->n_failures >= ECFS_STAGED_PATIENCE && paces[i]->not_before_us > now_us)
            next_us = MIN (next_us, paces[i]->not_before_us);
    return next_us;
}

/* Does what time brings; returns when to look again. */
static int64_t look_locked (EcfsStagedTable *table, GQueue *answers) ECFS_REQUIRES (table->lock)
{
    int64_t now_us = ecfs_now_us ();
    bool failing = ecfs_staged_first_locked (table, ECFS_TURN_LATER) != NULL ||
                   table->commit_pace.n_failures >= ECFS_STAGED_PATIENCE ||
                   table->fill_pace.n_failures >= ECFS_STAGED_PATIENCE;
    bool came_back = failing && came_back_locked (table);
    if (came_back)
        table->commit_pace.n_failures = table->fill_pace.n_failures = 0;
    bring_forward_locked (table, came_back, now_us);
    int64_t next_us = MIN (ecfs_staged_expire_flushes_locked (table, now_us), now_us + IDLE_US);
    next_us = MIN (next_us, ecfs_staged_resume_locked (table, now_us, answers));
    next_us = MIN (next_us, ecfs_staged_stream_expire_locked (table, now_us));
    next_us = MIN (next_us, ecfs_staged_end_lingering_locked (table, now_us));
    ecfs_staged_dispatch_locked (table);
    EcfsStaged *later = ecfs_staged_first_locked (table, ECFS_TURN_LATER);
    next_us = MIN (next_us, next_pause_end_locked (table, now_us));
    if (later != NULL)
        next_us = MIN (next_us, later->retry_us);
    return failing ? MIN (next_us, now_us + ENDPOINTS_US) : next_us;
}

static void *run_timer (void *data)
{
    EcfsStagedTable *table = data;
    ecfs_mutex_lock (&table->lock);
    while (!table->stopped) {
        if (ecfs_now_us () < table->wake_us) {
            (void) ecfs_cond_wait_until (&table->timer_wake, &table->lock, table->wake_us);
            continue;
        }
        GQueue answers = G_QUEUE_INIT;
        table->wake_us = INT64_MAX; /* looking may set it */
        ecfs_staged_schedule_locked (table, look_locked (table, &answers));
        if (g_queue_is_empty (&answers))
            continue;
        ecfs_mutex_unlock (&table->lock);
        ecfs_answer_all (&answers);
        ecfs_mutex_lock (&table->lock);
    }
    ecfs_mutex_unlock (&table->lock);
    return NULL;
}

/* Begin and end */

/* Begins whatever there is to be done; n_busy says what is under way then. */
static void step_all_locked (EcfsStagedTable *table) ECFS_REQUIRES (table->lock)
{
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init (&iter, table->files);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        EcfsStaged *self = value;
        self->retry_us = 0;
        ecfs_staged_line_up_locked (table, self);
    }
    ecfs_staged_dispatch_locked (table);
}

bool ecfs_staged_start_with (EcfsArchive *archive, EcfsStagedStore store, GError **error)
{
    ecfs_autofd dir_fd = ecfs_staged_open_dir (archive, "staging", error);
    if (dir_fd < 0 || !ecfs_staged_check_identity (archive, dir_fd, error))
        return false;
    EcfsStagedTable *table = table_new (archive, store, ecfs_steal_fd (&dir_fd));
    if (!ecfs_staged_recover (table, error)) {
        stop_workers (table);
        ecfs_staged_table_free (table);
        return false;
    }
    ecfs_mutex_lock (&table->lock);
    step_all_locked (table);
    ecfs_mutex_unlock (&table->lock);
    if (pthread_create (&table->timer, NULL, run_timer, table) != 0)
        g_error ("cannot start a thread");
    ecfs_archive_set_service (archive, ECFS_SERVICE_STAGING, table);
    return true;
}

bool ecfs_staged_start (EcfsArchive *archive, GError **error)
{
    return ecfs_staged_start_with (archive, ecfs_archive_commit, error);
}

static unsigned count_left_locked (EcfsStagedTable *table, GQueue *answers) ECFS_REQUIRES (table->lock)
{
    g_autoptr (GError) ended = g_error_new_literal (ECFS_ERROR, ECANCELED, "the mount ends");
    unsigned n_left = 0;
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init (&iter, table->files);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        EcfsStaged *self = value;
        n_left += !ecfs_staged_is_clean (self) && !self->unlinked;
        ecfs_staged_give_up_locked (table, self, ended, answers);
    }
    return n_left;
}

/* Whether a file that has its quorum is being brought to full, or is worth a try: where tries fail one after the other
 * an endpoint is away, and waiting would not help. */
static bool is_filling_locked (EcfsStagedTable *table) ECFS_REQUIRES (table->lock)
{
    GHashTableIter iter;
    gpointer value;
    if (table->fill_pace.n_failures >= ECFS_STAGED_FILL_TRIES)
        return false;
    g_hash_table_iter_init (&iter, table->files);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        const EcfsStaged *self = value;
        if (ecfs_staged_is_clean (self) && self->row_state == ECFS_STAGING_STORED && !self->full && !self->unlinked &&
            self->n_writers == 0 && self->n_failures < ECFS_STAGED_FILL_TRIES)
            return true;
    }
    return false;
}

void ecfs_staged_await_full (EcfsArchive *archive, bool (*goes_on) (void *user), void *user)
{
    bool on = true;
    EcfsStagedTable *table = ecfs_archive_service (archive, ECFS_SERVICE_STAGING);
    ecfs_mutex_lock (&table->lock);
    step_all_locked (table);
    while (on && is_filling_locked (table)) {
        (void) ecfs_cond_wait_until (&table->progress, &table->lock, ecfs_now_us () + LOOK_US);
        ecfs_mutex_unlock (&table->lock);
        on = goes_on (user);
        ecfs_mutex_lock (&table->lock);
    }
    ecfs_mutex_unlock (&table->lock);
}

size_t ecfs_staged_under_way (EcfsArchive *archive, EcfsStagedFacts *ret_facts, size_t most)
{
    static const char *const words[] = {
        [ECFS_PHASE_OPENING] = "opening",    [ECFS_PHASE_STREAMING] = "streaming", [ECFS_PHASE_COMMITTING] = "storing",
        [ECFS_PHASE_PUBLISHING] = "storing", [ECFS_PHASE_TRAILING] = "completing", [ECFS_PHASE_ENDING] = "completing",
        [ECFS_PHASE_FILLING] = "completing", [ECFS_PHASE_LEAVING] = NULL};
    EcfsStagedTable *table = ecfs_archive_service (archive, ECFS_SERVICE_STAGING);
    GHashTableIter iter;
    gpointer value;
    size_t n = 0;
    if (table == NULL)
        return 0;
    ecfs_mutex_lock (&table->lock);
    g_hash_table_iter_init (&iter, table->files);
    while (n < most && g_hash_table_iter_next (&iter, NULL, &value)) {
        const EcfsStaged *self = value;
        int64_t began_us = self->attempt_bytes > 0 ? self->attempt_began_us : 0;
        if (words[self->phase] != NULL)
            ret_facts[n++] = (EcfsStagedFacts){.ino = self->ino,
                                               .doing = words[self->phase],
                                               .size = self->size,
                                               .took_us = began_us > 0 ? ecfs_now_us () - began_us : 0};
    }
    ecfs_mutex_unlock (&table->lock);
    return n;
}

static void await_end_locked (EcfsStagedTable *table, int64_t deadline_us) ECFS_REQUIRES (table->lock)
{
    int64_t full_us = 0; /* until then what is committed is brought to full */
    for (;;) {
        int64_t now_us = ecfs_now_us ();
        if (table->n_busy == 0 && full_us == 0)
            full_us = MIN (now_us + STOP_FULL_US, deadline_us);
        if (now_us >= deadline_us || (table->n_busy == 0 && (now_us >= full_us || !is_filling_locked (table))))
            return;
        (void) ecfs_cond_wait_until (&table->progress, &table->lock, now_us + LOOK_US);
    }
}

void ecfs_staged_stop (EcfsArchive *archive, int64_t deadline_us, unsigned *ret_left)
{
    EcfsStagedTable *table = ecfs_archive_service (archive, ECFS_SERVICE_STAGING);
    *ret_left = 0;
    if (table == NULL)
        return;
    ecfs_mutex_lock (&table->lock);
    table->stopping = table->filling = true;
    step_all_locked (table);
    await_end_locked (table, deadline_us);
    table->filling = false;
    step_all_locked (table);
    table->stopped = true;
    ecfs_cond_broadcast (&table->timer_wake);
    ecfs_mutex_unlock (&table->lock);

    if (pthread_join (table->timer, NULL) != 0)
        g_error ("cannot join the timer of staging");
    stop_workers (table);
    GQueue answers = G_QUEUE_INIT;
    ecfs_mutex_lock (&table->lock);
    *ret_left = count_left_locked (table, &answers);
    (void) ecfs_staged_resume_locked (table, ecfs_now_us (), &answers);
    ecfs_mutex_unlock (&table->lock);
    ecfs_answer_all (&answers);
}
