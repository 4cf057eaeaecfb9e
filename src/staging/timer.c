/* What time brings: tries again, deadlines, endpoints that are back. */
#include "archive/common.h"
#include "staging/staged_priv.h"

#define LOOK_US G_USEC_PER_SEC /* whether endpoints came back, while something waits for them */
#define IDLE_US (60 * G_USEC_PER_SEC)

/* Whether it is down or takes nothing. */
static bool is_out (const EcfsArchiveEndpoint *endpoint)
{
    EcfsEndpointHealth health = {.down = true};
    if (endpoint->endpoint != NULL)
        ecfs_endpoint_health (endpoint->endpoint, &health);
    bool out = health.down || health.refuses || health.full;
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
    ecfs_staged_dispatch_locked (table);
    EcfsStaged *later = ecfs_staged_first_locked (table, ECFS_TURN_LATER);
    next_us = MIN (next_us, next_pause_end_locked (table, now_us));
    if (later != NULL)
        next_us = MIN (next_us, later->retry_us);
    return failing ? MIN (next_us, now_us + LOOK_US) : next_us;
}

void *ecfs_staged_timer (void *data)
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
