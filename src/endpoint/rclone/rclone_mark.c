/*
 * The marker. Some remotes replace a file in place: who is killed meanwhile leaves a part of it, or nothing. So it ends
 * with a line that says that it is whole, and while it is replaced the new one is in a spare file, too:
 *
 *   writing: (to create it: is there one?) → POST of the spare → POST of the marker → HEAD → DELETE of the spare
 *   reading: GET of the marker → where it is not whole: GET of the spare, which counts where it is whole and the marker
 * is a part of it, or not there
 *
 * A marker that is no such part was written by another protocol, and counts.
 */
#include "endpoint/rclone/rclone_priv.h"

#include <string.h>

/* Writing */

typedef struct MarkOp {
    EcfsHttpOp op;
    GString *text;
    size_t sent;
} MarkOp;

static void clear_mark (EcfsHttpOp *op)
{
    g_string_free (((MarkOp *) op)->text, TRUE);
}

static void end (EcfsHttpOp *op)
{
    bool good = ecfs_http_good (op->call.status);
    ecfs_http_op_end (op, 0, good ? NULL : ecfs_http_refusal (op, op->call.name));
}

static void spare_removed (EcfsHttp *self, EcfsHttpOp *op)
{
    (void) self;
    ecfs_http_op_end (op, 0, NULL); /* one that is still there says the same */
}

static void marker_told (EcfsHttp *self, EcfsHttpOp *op)
{
    (void) self;
    const MarkOp *mark = (MarkOp *) op;
    if (ecfs_http_good (op->call.status) && op->call.length != (int64_t) mark->text->len) {
        ecfs_http_op_end (
            op, 0,
            ecfs_http_error (EIO, "%s: rclone says that it is stored, and it is not the same", ECFS_MARKER_NAME));
        return;
    }
    if (!ecfs_http_good (op->call.status)) {
        end (op);
        return;
    }
    EcfsHttpAsk ask = {.method = "DELETE", .name = ECFS_RCLONE_SPARE, .done = spare_removed};
    ecfs_http_ask (op, &ask);
}

static size_t supply (EcfsHttpOp *op, char *to, size_t size)
{
    MarkOp *mark = (MarkOp *) op;
    size_t n = MIN (size, mark->text->len - mark->sent);
    memcpy (to, mark->text->str + mark->sent, n);
    mark->sent += n;
    op->call.sent |= mark->sent == mark->text->len;
    return n;
}

static void rewind_text (EcfsHttpOp *op)
{
    ((MarkOp *) op)->sent = 0;
}

static void store (EcfsHttpOp *op, const char *name, void (*done) (EcfsHttp *, EcfsHttpOp *))
{
    MarkOp *mark = (MarkOp *) op;
    mark->sent = 0;
    EcfsHttpAsk ask = {.method = "POST",
                       .name = name,
                       .upload = true,
                       .upload_bytes = (int64_t) mark->text->len,
                       .supply = supply,
                       .rewind = rewind_text,
                       .done = done};
    ecfs_http_ask (op, &ask);
}

static void marker_stored (EcfsHttp *self, EcfsHttpOp *op)
{
    (void) self;
    if (!ecfs_http_good (op->call.status)) {
        end (op);
        return;
    }
    EcfsHttpAsk ask = {.method = "HEAD", .name = ECFS_MARKER_NAME, .awaited = true, .done = marker_told};
    ecfs_http_ask (op, &ask);
}

static void spare_stored (EcfsHttp *self, EcfsHttpOp *op)
{
    (void) self;
    if (ecfs_http_good (op->call.status))
        store (op, ECFS_MARKER_NAME, marker_stored);
    else
        end (op);
}

static void looked (EcfsHttp *self, EcfsHttpOp *op)
{
    EcfsStream *request = op->request;
    if (ecfs_rclone_is_absent (op, ECFS_MARKER_NAME)) {
        store (op, ECFS_RCLONE_SPARE, spare_stored);
    } else if (ecfs_http_good (op->call.status)) {
        ecfs_http_op_drop (op);
        ecfs_rclone_examine_begin (self, request); /* tells whose it is */
    } else {
        end (op);
    }
}

/* What is under way is done: a marker must not be left half made. */
static void cancel_nothing (EcfsHttp *self, EcfsHttpOp *op)
{
    (void) self, (void) op;
}

void ecfs_rclone_mark_begin (EcfsHttp *self, EcfsStream *request)
{
    MarkOp *mark = (MarkOp *) ecfs_http_op_new (self, request, sizeof *mark);
    mark->op.clear = clear_mark;
    mark->op.cancel = cancel_nothing;
    mark->text = g_string_new (request->text);
    g_string_append (mark->text, ECFS_RCLONE_WHOLE);
    if (!request->create) {
        store (&mark->op, ECFS_RCLONE_SPARE, spare_stored);
        return;
    }
    EcfsHttpAsk ask = {.method = "HEAD", .name = ECFS_MARKER_NAME, .done = looked};
    ecfs_http_ask (&mark->op, &ask);
}

/* Reading */

typedef struct ExamineOp {
    EcfsHttpOp op;
    GString *text;  /* of the file that is read now */
    GString *first; /* of the marker, where it is not whole */
    GError *error;  /* of the marker */
} ExamineOp;

static void clear_examine (EcfsHttpOp *op)
{
    ExamineOp *examine = (ExamineOp *) op;
    g_string_free (examine->text, TRUE);
    g_string_free (examine->first, TRUE);
    g_clear_error (&examine->error);
}

static bool take (EcfsHttpOp *op, const uint8_t *bytes, size_t size)
{
    GString *text = ((ExamineOp *) op)->text;
    /* One byte more than a marker may have shows that it is none. */
    size_t room = ECFS_MARKER_MAX_SIZE + strlen (ECFS_RCLONE_WHOLE) + 1 - text->len;
    g_string_append_len (text, (const char *) bytes, (gssize) MIN (size, room));
    return size < room;
}

/* Without the line that says that it is whole. */
static bool strip_whole (GString *text)
{
    bool whole = g_str_has_suffix (text->str, ECFS_RCLONE_WHOLE);
    if (whole)
        g_string_truncate (text, text->len - strlen (ECFS_RCLONE_WHOLE));
    return whole;
}

static void finish (ExamineOp *examine, GString **text)
{
    EcfsStream *request = examine->op.request;
    g_autofree char *found = g_strndup ((*text)->str, (*text)->len);
    size_t size = (*text)->len;
    ecfs_http_op_drop (&examine->op);
    if (request->kind == ECFS_REQUEST_MARK)
        ecfs_request_fail_marked (request, found, size);
    else
        ecfs_request_finish_marker (request, found, size);
}

static void spare_examined (EcfsHttp *self, EcfsHttpOp *op)
{
    ExamineOp *examine = (ExamineOp *) op;
    if (op->call.result != CURLE_OK && op->call.result != CURLE_WRITE_ERROR) { /* our own stop is no failure */
        ecfs_http_op_end (op, 0, ecfs_http_problem (self, &op->call));
        return;
    }
    bool is_part = examine->error != NULL || g_str_has_prefix (examine->text->str, examine->first->str);
    if (ecfs_http_good (op->call.status) && is_part && strip_whole (examine->text))
        finish (examine, &examine->text);
    else if (!ecfs_http_good (op->call.status) && !ecfs_rclone_is_absent (op, ECFS_RCLONE_SPARE))
        ecfs_http_op_end (op, 0, ecfs_http_refusal (op, ECFS_RCLONE_SPARE));
    else if (examine->error != NULL)
        ecfs_http_op_end (op, 0, g_steal_pointer (&examine->error));
    else
        finish (examine, &examine->first);
}

static void examined (EcfsHttp *self, EcfsHttpOp *op)
{
    ExamineOp *examine = (ExamineOp *) op;
    if (op->call.result != CURLE_OK && op->call.result != CURLE_WRITE_ERROR) { /* our own stop is no failure */
        ecfs_http_op_end (op, 0, ecfs_http_problem (self, &op->call));
        return;
    }
    bool absent = ecfs_rclone_is_absent (op, ECFS_MARKER_NAME);
    if (ecfs_http_good (op->call.status) && strip_whole (examine->text)) {
        finish (examine, &examine->text);
        return;
    }
    if (!ecfs_http_good (op->call.status) && !absent) {
        ecfs_http_op_end (op, 0, ecfs_http_refusal (op, ECFS_MARKER_NAME));
        return;
    }
    if (absent)
        examine->error =
            ecfs_http_error (ENOENT, "%s/%s: %s", self->config->plain, ECFS_MARKER_NAME, g_strerror (ENOENT));
    g_string_append_len (examine->first, examine->text->str, (gssize) examine->text->len);
    g_string_truncate (examine->text, 0);
    EcfsHttpAsk ask = {.method = "GET", .name = ECFS_RCLONE_SPARE, .take = take, .done = spare_examined};
    ecfs_http_ask (op, &ask);
}

void ecfs_rclone_examine_begin (EcfsHttp *self, EcfsStream *request)
{
    ExamineOp *examine = (ExamineOp *) ecfs_http_op_new (self, request, sizeof *examine);
    examine->op.clear = clear_examine;
    examine->op.cancel = ecfs_http_cancel;
    examine->text = g_string_new (NULL);
    examine->first = g_string_new (NULL);
    EcfsHttpAsk ask = {.method = "GET", .name = ECFS_MARKER_NAME, .take = take, .done = examined};
    ecfs_http_ask (&examine->op, &ask);
}
