/* The event loop of drivers on HTTP. */
#include "endpoint/web/http.h"

#define IDLE_CLOSE_US (60 * G_USEC_PER_SEC)
#define LOOK_MS       1000 /* at calls that make no progress while others do */

/* False: there may be more for when calls have ended. */
static bool take_requests (EcfsHttp *self)
{
    EcfsStream *request = NULL;
    while (self->n_calls + self->n_waiting < ECFS_HTTP_MAX_ACTIVE && (request = ecfs_slot_take (self->slot)) != NULL)
        self->dialect->begin (self, request);
    return self->n_calls + self->n_waiting < ECFS_HTTP_MAX_ACTIVE;
}

/* Gives every op its turn. An op may end itself and others meanwhile, and add others behind. */
static void turn_all (EcfsHttp *self)
{
    self->next = self->ops.head;
    while (self->next != NULL) {
        EcfsHttpOp *op = self->next->data;
        self->next = self->next->next;
        if (op->request != NULL && !op->cancelled && ecfs_request_cancelled (op->request)) {
            op->cancelled = true;
            op->cancel (self, op);
        } else if (op->turn != NULL) {
            op->turn (self, op);
        }
    }
}

/* The core's clock is for all calls; this finds the one that hangs beside others that do not. */
static void check_calls (EcfsHttp *self)
{
    int64_t late_us = ecfs_now_us () - ecfs_slot_stall_timeout_us (self->slot);
    for (GList *at = self->ops.head; at != NULL; at = at->next) {
        const EcfsHttpCall *call = &((EcfsHttpOp *) at->data)->call;
        if (call->easy != NULL && !call->paused && call->again_us == 0 && call->moved_us < late_us)
            ecfs_http_break (self, g_error_new (ECFS_ERROR, ETIMEDOUT, "%s makes no progress with %s",
                                                ecfs_http_title (self->config), call->method));
    }
}

static EcfsOwes owes (const EcfsHttp *self)
{
    if (self->n_calls == 0)
        return ECFS_OWES_NOTHING;
    for (GList *at = self->ops.head; at != NULL; at = at->next) {
        const EcfsHttpCall *call = &((EcfsHttpOp *) at->data)->call;
        if (call->easy != NULL && call->again_us == 0 && call->sent)
            return ECFS_OWES_SYNC;
    }
    return ECFS_OWES_ANSWER;
}

/* The stall clock runs while the server owes something, and starts again when something came. */
static void set_clock (EcfsHttp *self, EcfsOwes *owed)
{
    EcfsOwes now = owes (self);
    if (now != *owed || (now != ECFS_OWES_NOTHING && self->arrived))
        ecfs_slot_owed (self->slot, now);
    self->arrived = false;
    *owed = now;
}

void ecfs_http_wait (EcfsHttp *self, int patience_ms)
{
    struct curl_waitfd waits[1 + ECFS_HTTP_MAX_WATCHED] = {
        {.fd = ecfs_slot_fd (self->slot), .events = CURL_WAIT_POLLIN}};
    unsigned n = 1;
    if (self->dialect->watch != NULL)
        n += self->dialect->watch (self, waits + 1, ECFS_HTTP_MAX_WATCHED);
    /* Whatever it says, who waits looks at everything again. */
    (void) curl_multi_poll (self->multi, waits, n, patience_ms, NULL);
}

static void wait_for_events (EcfsHttp *self)
{
    int patience_ms = self->n_calls > 0 ? LOOK_MS : (int) (IDLE_CLOSE_US / 1000);
    int64_t next_us = ecfs_http_next_us (self);
    if (next_us != 0)
        patience_ms = MIN (patience_ms, (int) (MAX (next_us - ecfs_now_us (), 0) / 1000 + 1));
    ecfs_http_wait (self, patience_ms);
}

/* The core fails the requests. */
static void abandon (EcfsHttp *self)
{
    while (self->ops.head != NULL)
        ecfs_http_op_drop (self->ops.head->data);
}

bool ecfs_http_serve (EcfsSlot *slot, void *connection, GError **error)
{
    EcfsHttp *self = connection;
    EcfsOwes owed = ECFS_OWES_NOTHING;
    bool idle = false;
    int64_t busy_us = ecfs_now_us ();
    while (!idle && ecfs_slot_check (slot, error)) {
        bool took_all = take_requests (self);
        if (self->dialect->look != NULL)
            self->dialect->look (self);
        turn_all (self);
        ecfs_http_move (self);
        check_calls (self);
        if (self->broken != NULL) {
            (void) !ecfs_fail (error, self->broken->code, "%s", self->broken->message);
            break;
        }
        turn_all (self);
        set_clock (self, &owed);
        if (self->ops.length > 0)
            busy_us = ecfs_now_us ();
        idle = self->ops.length == 0 && ecfs_now_us () - busy_us > IDLE_CLOSE_US;
        if (!idle && (took_all || self->n_calls + self->n_waiting >= ECFS_HTTP_MAX_ACTIVE))
            wait_for_events (self);
    }
    abandon (self);
    return idle;
}

bool ecfs_http_drive (EcfsHttp *self, const bool *over, GError **error)
{
    int64_t deadline_us = ecfs_now_us () + ecfs_slot_connect_timeout_us (self->slot);
    for (;;) {
        ecfs_http_move (self);
        if (self->dialect->look != NULL)
            self->dialect->look (self);
        if (self->broken != NULL)
            return ecfs_fail (error, self->broken->code, "%s", self->broken->message);
        if (*over)
            return true;
        int64_t next_us = ecfs_http_next_us (self);
        int64_t left_us = deadline_us - ecfs_now_us ();
        if (left_us <= 0)
            return ecfs_fail (error, ETIMEDOUT, "%s did not answer within %.3g s", ecfs_http_title (self->config),
                              (double) ecfs_slot_connect_timeout_us (self->slot) / G_USEC_PER_SEC);
        if (next_us != 0)
            left_us = CLAMP (next_us - ecfs_now_us (), 0, left_us);
        ecfs_http_wait (self, (int) (left_us / 1000 + 1));
        if (!ecfs_slot_check (self->slot, error))
            return false;
    }
}
