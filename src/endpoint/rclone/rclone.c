/* The driver rclone://. rclone_priv.h tells what is where. */
#include "endpoint/rclone/rclone_priv.h"

#include <string.h>

/* What is sent to a remote waits in buffers of its library and of the kernel, of which nothing is seen from here. */
#define STALL_TIMEOUT_US (120 * G_USEC_PER_SEC)

/* rclone stores data/abcdef as data/ab/abcdef, as restic wants it. */
static bool is_rewritten (const char *name)
{
    const char *slash = name == NULL ? NULL : strrchr (name, '/');
    return slash != NULL && slash - name >= 4 && strncmp (slash - 4, "data", 4) == 0 &&
           (slash - name == 4 || slash[-5] == '/');
}

static void begin (EcfsHttp *self, EcfsStream *request)
{
    static void (*const begin_kind[]) (EcfsHttp *, EcfsStream *) = {
        [ECFS_REQUEST_READ] = ecfs_http_read_begin,     [ECFS_REQUEST_WRITE] = ecfs_rclone_write_begin,
        [ECFS_REQUEST_RMDIR] = ecfs_rclone_rmdir_begin, [ECFS_REQUEST_REMOVE] = ecfs_rclone_remove_begin,
        [ECFS_REQUEST_SIZE] = ecfs_rclone_size_begin,   [ECFS_REQUEST_SPACE] = ecfs_rclone_space_begin,
        [ECFS_REQUEST_LIST] = ecfs_rclone_list_begin,   [ECFS_REQUEST_EXAMINE] = ecfs_rclone_examine_begin,
        [ECFS_REQUEST_MARK] = ecfs_rclone_mark_begin,
    };
    bool of_file = request->kind == ECFS_REQUEST_READ || request->kind == ECFS_REQUEST_WRITE ||
                   request->kind == ECFS_REQUEST_REMOVE || request->kind == ECFS_REQUEST_SIZE;
    if (of_file && is_rewritten (request->name))
        ecfs_request_fail (request, EINVAL, "%s: rclone stores what is in a directory data elsewhere", request->name);
    else if (of_file)
        ecfs_rclone_begin_mended (self, request, begin_kind[request->kind]);
    else
        begin_kind[request->kind](self, request);
}

static struct curl_slist *make_headers (EcfsHttpOp *op, const EcfsHttpAsk *ask, GError **error)
{
    (void) op, (void) error;
    return ask->upload ? ecfs_http_add_header (NULL, "Content-Type: application/octet-stream") : NULL;
}

/* The log knows more of a call that broke off, and where the process has ended, its last words are worth more than that
 * the socket is closed. */
static GError *explain (const EcfsHttp *http, const EcfsHttpCall *call)
{
    EcfsRclone *self = ecfs_rclone (http);
    if (call->result == CURLE_HTTP2_STREAM || call->result == CURLE_PARTIAL_FILE) {
        const char *message = call->name == NULL ? NULL : ecfs_rclone_told (&self->child, call->name);
        return message == NULL ? NULL : ecfs_rclone_error (self, call->name, message);
    }
    return ecfs_rclone_has_ended (&self->child) ? ecfs_rclone_ended (self->config, &self->child) : NULL;
}

const EcfsHttpDialect ecfs_rclone_dialect = {.begin = begin,
                                             .headers = make_headers,
                                             .refusal = ecfs_rclone_refusal,
                                             .again_us = ecfs_rclone_again_us,
                                             .watch = ecfs_rclone_watch,
                                             .look = ecfs_rclone_look,
                                             .explain = explain};

static const char *const option_keys[] = {ECFS_COMMON_OPTION_KEYS, "config", "rclone", NULL};

const EcfsDriver ecfs_driver_rclone = {
    .scheme = "rclone",
    .option_keys = option_keys,
    .default_connections = 1, /* each is a process, which serves all at once */
    .stall_timeout_us = STALL_TIMEOUT_US,
    .n_pipelined = ECFS_HTTP_MAX_ACTIVE,
    .counts_sent = true,
    .own_login = true,
    .costly = true,
    .new_config = ecfs_rclone_new_config,
    .free_config = ecfs_rclone_free_config,
    .connect = ecfs_rclone_connect,
    .serve = ecfs_http_serve,
    .disconnect = ecfs_rclone_disconnect,
};
