/* Requests that all protocols ask alike, and pieces of others. */
#include "endpoint/web/http.h"

void ecfs_http_cancel (EcfsHttp *self, EcfsHttpOp *op)
{
    (void) self;
    ecfs_http_op_end (op, 0, ecfs_http_error (ECANCELED, "cancelled"));
}

void ecfs_http_size_told (EcfsHttp *self, EcfsHttpOp *op)
{
    const char *name = op->request->name;
    (void) self;
    GError *error = NULL;
    if (!ecfs_http_good (op->call.status))
        error = ecfs_http_refusal (op, name);
    else if (op->call.length < 0)
        error = ecfs_http_error (EPROTO, "%s: the server does not report its size", name);
    ecfs_http_op_end (op, error != NULL ? 0 : (uint64_t) op->call.length, error);
}

typedef struct ExamineOp {
    EcfsHttpOp op;
    char *name;
    GString *text;
} ExamineOp;

static void clear (EcfsHttpOp *op)
{
    ExamineOp *examine = (ExamineOp *) op;
    g_free (examine->name);
    if (examine->text != NULL)
        g_string_free (examine->text, TRUE);
}

/* One byte more than a marker may have shows that it is none. */
static bool take_marker (EcfsHttpOp *op, const uint8_t *bytes, size_t size)
{
    GString *text = ((ExamineOp *) op)->text;
    g_string_append_len (text, (const char *) bytes, (gssize) MIN (size, ECFS_MARKER_MAX_SIZE + 1 - text->len));
    return text->len <= ECFS_MARKER_MAX_SIZE;
}

static void examined (EcfsHttp *self, EcfsHttpOp *op)
{
    ExamineOp *examine = (ExamineOp *) op;
    (void) self;
    if (!ecfs_http_good (op->call.status)) {
        ecfs_http_op_end (op, 0, ecfs_http_refusal (op, examine->name));
        return;
    }
    EcfsStream *request = op->request;
    size_t size = examine->text->len;
    g_autofree char *text = g_string_free (g_steal_pointer (&examine->text), FALSE);
    ecfs_http_op_drop (op);
    if (request->kind == ECFS_REQUEST_MARK)
        ecfs_request_fail_marked (request, text, size);
    else
        ecfs_request_finish_marker (request, text, size);
}

void ecfs_http_examine_begin (EcfsHttp *self, EcfsStream *request, char *name)
{
    ExamineOp *examine = (ExamineOp *) ecfs_http_op_new (self, request, sizeof *examine);
    examine->op.clear = clear;
    examine->op.cancel = ecfs_http_cancel;
    examine->name = name;
    examine->text = g_string_new (NULL);
    EcfsHttpAsk ask = {.method = "GET", .name = ECFS_MARKER_NAME, .take = take_marker, .done = examined};
    ecfs_http_ask (&examine->op, &ask);
}
