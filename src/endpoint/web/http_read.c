/*
 * Ranged GET. One range is asked for after the other; what comes is taken for the range only when the server says that
 * it is: 206 with a Content-Range that begins where we asked, or 200, the whole file, where we want it from its start.
 * Some say 200 and a Content-Range, and send that: rclone's server of S3.
 */
#include "endpoint/web/http.h"
#include "endpoint/web/http_range.h"

#include <inttypes.h>
#include <string.h>

#define REPORT_BYTES (48 * 1024) /* what comes in smaller pieces is told together; at most 64 KiB */
#define MAX_PIECE    (16 * 1024)

typedef struct ReadOp {
    EcfsHttpOp op;
    size_t range_index;
    size_t filled;   /* of the range */
    size_t reported; /* to the core */
    bool begun;      /* the answer's head was looked at */
    GError *error;
} ReadOp;

static void clear (EcfsHttpOp *op)
{
    g_clear_error (&((ReadOp *) op)->error);
}

static void report (ReadOp *read)
{
    if (read->filled > read->reported)
        ecfs_request_filled (read->op.request, read->range_index, read->filled);
    read->reported = read->filled;
}

static const EcfsRange *current (const ReadOp *read)
{
    return &read->op.request->ranges[read->range_index];
}

/* Whether the answer is the file from its start, whatever was asked for. */
static bool is_whole (const ReadOp *read)
{
    return read->op.call.status == 200 && read->op.call.content_range == NULL;
}

/* Whether the bytes that follow are those of the range. */
static bool check_head (ReadOp *read)
{
    const EcfsHttpCall *call = &read->op.call;
    const EcfsRange *range = current (read);
    const char *name = read->op.request->name;
    EcfsHttpRange told;
    read->begun = true;
    if (call->encoded)
        return ecfs_fail (&read->error, EPROTO, "%s: the server sends it compressed, although nobody asked for that",
                          name);
    if (is_whole (read))
        return range->offset == 0 ||
               ecfs_fail (&read->error, EPROTO,
                          "%s: the server sends whole files where parts are asked for (it ignores Range)", name);
    if (call->content_range == NULL || !ecfs_http_parse_range (call->content_range, &told))
        return ecfs_fail (&read->error, EPROTO, "%s: the server does not say which range it sends", name);
    if (told.first != range->offset || told.last - told.first >= range->size)
        return ecfs_fail (&read->error, EPROTO,
                          "%s: the server sends bytes %" PRIu64 " to %" PRIu64 ", not the %zu from %" PRIu64, name,
                          told.first, told.last, range->size, range->offset);
    return true;
}

static bool take (EcfsHttpOp *op, const uint8_t *bytes, size_t size)
{
    ReadOp *read = (ReadOp *) op;
    if (op->call.status != 206 && op->call.status != 200)
        return true; /* words about an error */
    if (ecfs_request_cancelled (op->request) || (!read->begun && !check_head (read)))
        return false;
    const EcfsRange *range = current (read);
    size_t used = MIN (size, range->size - read->filled);
    memcpy (range->to + read->filled, bytes, used);
    if (read->filled + used - read->reported > REPORT_BYTES + MAX_PIECE)
        report (read);
    read->filled += used;
    if (read->filled - read->reported >= REPORT_BYTES || read->filled == range->size)
        report (read);
    bool would_go_on = used < size || (read->filled == range->size && is_whole (read));
    return !would_go_on; /* false ends the call: we have what we want */
}

static void done (EcfsHttp *self, EcfsHttpOp *op);

static void ask (ReadOp *read)
{
    const EcfsRange *range = current (read);
    g_autofree char *text =
        g_strdup_printf ("%" PRIu64 "-%" PRIu64, range->offset, range->offset + (uint64_t) range->size - 1);
    read->filled = read->reported = 0;
    read->begun = false;
    EcfsHttpAsk get = {.method = "GET", .name = read->op.request->name, .range = text, .take = take, .done = done};
    ecfs_http_ask (&read->op, &get);
}

/* Whether the answer tells a size of the file that ends before the range, however it puts that: as 416, or as rclone
 * does where a remote refuses the range. */
static bool ends_before (const ReadOp *read)
{
    const char *told = read->op.call.content_range;
    const char *slash = told == NULL ? NULL : strrchr (told, '/');
    guint64 total;
    return slash != NULL && g_ascii_string_to_unsigned (slash + 1, 10, 0, G_MAXUINT64, &total, NULL) &&
           total <= current (read)->offset;
}

/* What is wrong with an answer that has ended, or NULL. */
static GError *verdict (ReadOp *read)
{
    EcfsHttpOp *op = &read->op;
    const char *name = op->request->name;
    if (ecfs_request_cancelled (op->request))
        return g_error_new (ECFS_ERROR, ECANCELED, "%s: cancelled", name);
    if (read->error != NULL)
        return g_steal_pointer (&read->error);
    bool ends = ends_before (read);
    if (!ends && op->call.status != 206 && op->call.status != 200)
        return ecfs_http_refusal (op, name);
    if (read->filled == current (read)->size)
        return NULL;
    if (!ends && op->call.result != CURLE_OK)
        return ecfs_http_problem (op->http, &op->call);
    return g_error_new (ECFS_ERROR, EBADMSG, "%s: ends before the range that was asked for", name);
}

static void done (EcfsHttp *self, EcfsHttpOp *op)
{
    ReadOp *read = (ReadOp *) op;
    (void) self;
    report (read);
    GError *error = verdict (read);
    if (error == NULL && ++read->range_index < op->request->n_ranges)
        ask (read);
    else
        ecfs_http_op_end (op, 0, error);
}

static void turn (EcfsHttp *self, EcfsHttpOp *op)
{
    (void) self;
    report ((ReadOp *) op);
}

static void cancel (EcfsHttp *self, EcfsHttpOp *op)
{
    (void) self;
    ecfs_http_op_end (op, 0, g_error_new (ECFS_ERROR, ECANCELED, "%s: cancelled", op->request->name));
}

void ecfs_http_read_begin (EcfsHttp *self, EcfsStream *request)
{
    ReadOp *read = (ReadOp *) ecfs_http_op_new (self, request, sizeof *read);
    read->op.clear = clear;
    read->op.turn = turn;
    read->op.cancel = cancel;
    ask (read);
}
