/* The drivers dav://, davs://, http:// and https://: their event loop. http_priv.h tells what is where. */
#include "endpoint/http/http_priv.h"

#define MAX_ACTIVE    8 /* requests of one connection that do not wait for their source */
#define IDLE_CLOSE_US (60 * G_USEC_PER_SEC)
#define LOOK_MS       1000 /* at calls that make no progress while others do */

static void begin (EcfsHttp *self, EcfsStream *request)
{
    static void (*const begin_kind[]) (EcfsHttp *, EcfsStream *) = {
        [ECFS_REQUEST_READ] = ecfs_http_read_begin,   [ECFS_REQUEST_WRITE] = ecfs_http_write_begin,
        [ECFS_REQUEST_RMDIR] = ecfs_http_rmdir_begin, [ECFS_REQUEST_REMOVE] = ecfs_http_remove_begin,
        [ECFS_REQUEST_SIZE] = ecfs_http_size_begin,   [ECFS_REQUEST_SPACE] = ecfs_http_space_begin,
        [ECFS_REQUEST_LIST] = ecfs_http_list_begin,   [ECFS_REQUEST_EXAMINE] = ecfs_http_examine_begin,
        [ECFS_REQUEST_MARK] = ecfs_http_mark_begin,
    };
    begin_kind[request->kind](self, request);
}

/* False: there may be more for when calls have ended. */
static bool take_requests (EcfsHttp *self)
{
    EcfsStream *request = NULL;
    while (self->n_calls < MAX_ACTIVE && (request = ecfs_slot_take (self->slot)) != NULL)
        begin (self, request);
    return self->n_calls < MAX_ACTIVE;
}

/* Gives every op its turn. An op may end itself meanwhile, and add others behind. */
static void turn_all (EcfsHttp *self)
{
    for (GList *at = self->ops.head, *next; at != NULL; at = next) {
        next = at->next;
        EcfsHttpOp *op = at->data;
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
        if (call->easy != NULL && !call->paused && call->moved_us < late_us)
            ecfs_http_break (self, g_error_new (ECFS_ERROR, ETIMEDOUT, "%s makes no progress with %s",
                                                self->config->base, call->method));
    }
}

static EcfsOwes owes (const EcfsHttp *self)
{
    if (self->n_calls == 0)
        return ECFS_OWES_NOTHING;
    for (GList *at = self->ops.head; at != NULL; at = at->next) {
        const EcfsHttpCall *call = &((EcfsHttpOp *) at->data)->call;
        if (call->easy != NULL && call->sent)
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

static void wait_for_events (EcfsHttp *self)
{
    struct curl_waitfd waits = {.fd = ecfs_slot_fd (self->slot), .events = CURL_WAIT_POLLIN};
    int patience_ms = self->n_calls > 0 ? LOOK_MS : (int) (IDLE_CLOSE_US / 1000);
    /* Whatever it says, the loop looks at everything again. */
    (void) curl_multi_poll (self->multi, &waits, 1, patience_ms, NULL);
}

/* The core fails the requests. */
static void abandon (EcfsHttp *self)
{
    while (self->ops.head != NULL)
        ecfs_http_op_drop (self->ops.head->data);
}

static bool http_serve (EcfsSlot *slot, void *connection, GError **error)
{
    EcfsHttp *self = connection;
    EcfsOwes owed = ECFS_OWES_NOTHING;
    bool idle = false;
    int64_t busy_us = ecfs_now_us ();
    while (!idle && ecfs_slot_check (slot, error)) {
        bool took_all = take_requests (self);
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
        if (!idle && (took_all || self->n_calls >= MAX_ACTIVE))
            wait_for_events (self);
    }
    abandon (self);
    return idle;
}

static const char *const option_keys[] = {
    ECFS_COMMON_OPTION_KEYS, "auth",       "ca_file", "client_cert", "client_key", "http2",
    "password_file",         "token_file", NULL,
};

#define HTTP_DRIVER(NAME)                                                                                              \
    {                                                                                                                  \
        .scheme = NAME, .option_keys = option_keys, .default_connections = 2, .n_pipelined = MAX_ACTIVE,               \
        .new_config = ecfs_http_new_config, .free_config = ecfs_http_free_config, .connect = ecfs_http_connect,        \
        .serve = http_serve, .disconnect = ecfs_http_disconnect,                                                       \
    }

const EcfsDriver ecfs_driver_dav = HTTP_DRIVER ("dav");
const EcfsDriver ecfs_driver_davs = HTTP_DRIVER ("davs");
const EcfsDriver ecfs_driver_http = HTTP_DRIVER ("http");
const EcfsDriver ecfs_driver_https = HTTP_DRIVER ("https");
