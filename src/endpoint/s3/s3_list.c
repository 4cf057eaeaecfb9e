/*
 * Listing, page after page: objects, and then uploads in parts that have not ended, each as a file in "incoming/".
 * Removing such a file looks for it in that list, and gives the upload up.
 */
#include "endpoint/s3/s3_priv.h"

#include <string.h>

#define PAGE_NAMES  "1000"
#define LEAST_NAMES 20   /* of pages on average, … */
#define THIN_PAGES  1000 /* … but for so many: what was deleted makes pages empty where a bucket has versions */

typedef struct ListOp {
    EcfsHttpOp op;
    bool removes; /* what is called as the request says, and is an upload */
    bool uploads; /* that is what is listed now */
    EcfsS3Parser *parser;
    char *next;        /* where the next page begins: of objects, … */
    char *next_key;    /* … and of uploads; NULL: with the first */
    char *next_upload; /* likewise */
    char *found_name;  /* removes: of its object, … */
    char *found_id;    /* … and the upload's */
    size_t n_names;
    size_t n_pages;
    GError *error;
} ListOp;

static void clear (EcfsHttpOp *op)
{
    ListOp *list = (ListOp *) op;
    ecfs_s3_parser_free (list->parser);
    g_free (list->next);
    g_free (list->next_key);
    g_free (list->next_upload);
    g_free (list->found_name);
    g_free (list->found_id);
    g_clear_error (&list->error);
}

static void on_upload (ListOp *list, const char *name, const EcfsS3Entry *entry)
{
    EcfsStream *request = list->op.request;
    g_autofree char *shown = ecfs_s3_unfinished_name (name, entry->upload_id);
    if (!list->removes)
        ecfs_request_listed (request, shown, 0, entry->mtime_s);
    else if (strcmp (shown, request->name) == 0 && list->found_id == NULL) {
        list->found_name = g_strdup (name);
        list->found_id = g_strdup (entry->upload_id);
    }
}

static void on_entry (void *user, const EcfsS3Entry *entry)
{
    ListOp *list = user;
    const char *prefix = ecfs_s3 (list->op.http)->config->prefix;
    list->n_names++;
    if (!g_str_has_prefix (entry->key, prefix))
        return;
    const char *name = entry->key + strlen (prefix);
    if (list->uploads && entry->upload_id != NULL && ecfs_stored_name_valid (name))
        on_upload (list, name, entry);
    else if (!list->uploads && entry->has_size && ecfs_stored_name_valid (name))
        ecfs_request_listed (list->op.request, name, entry->size, entry->mtime_s);
}

static bool take (EcfsHttpOp *op, const uint8_t *bytes, size_t size)
{
    ListOp *list = (ListOp *) op;
    if (ecfs_request_cancelled (op->request) || !ecfs_s3_parser_feed (list->parser, bytes, size, &list->error))
        return false;
    return list->n_names <= ECFS_LIST_MAX_NAMES ||
           ecfs_fail (&list->error, EPROTO, "the server lists more names than are possible: its list has no end");
}

static void done (EcfsHttp *self, EcfsHttpOp *op);

static void ask (ListOp *list)
{
    EcfsS3 *self = ecfs_s3 (list->op.http);
    const char *root = self->config->prefix, *name = list->op.request->name;
    bool all = list->uploads || *name == '\0';
    g_autofree char *prefix = g_strconcat (root, all ? "" : name, all ? "" : "/", NULL);
    const char *told = *prefix == '\0' ? NULL : prefix;
    g_autofree char *query =
        list->uploads ? ecfs_s3_query ("uploads", "", "encoding-type", "url", "max-uploads", PAGE_NAMES, "prefix", told,
                                       "key-marker", list->next_key, "upload-id-marker", list->next_upload, NULL)
                      : ecfs_s3_query ("list-type", "2", "encoding-type", "url", "max-keys", PAGE_NAMES, "prefix", told,
                                       "continuation-token", list->next, NULL);
    ecfs_s3_parser_free (list->parser);
    list->parser = ecfs_s3_parser_new (list->uploads ? ECFS_S3_UPLOADS : ECFS_S3_OBJECTS, on_entry, list);
    EcfsHttpAsk get = {.method = "GET", .path = self->bucket_path, .query = query, .take = take, .done = done};
    ecfs_http_ask (&list->op, &get);
}

/* What is wrong with an answer, or NULL. */
static GError *verdict (ListOp *list)
{
    EcfsHttpOp *op = &list->op;
    if (ecfs_request_cancelled (op->request))
        return g_error_new (ECFS_ERROR, ECANCELED, "%s: cancelled", op->request->name);
    if (list->error == NULL && op->call.status == 200)
        (void) !ecfs_s3_parser_end (list->parser, &list->error);
    if (list->error != NULL)
        return g_steal_pointer (&list->error);
    return op->call.status == 200 ? NULL : ecfs_http_refusal (op, list->uploads ? "uploads in parts" : "the list");
}

/* Whether there is a page behind this one. */
static bool next_page (ListOp *list)
{
    const EcfsS3Values *values = ecfs_s3_parser_values (list->parser);
    const char *next = list->uploads ? values->next_key : values->next;
    if (!values->goes_on)
        return false;
    bool same = list->uploads
                    ? g_strcmp0 (next, list->next_key) == 0 && g_strcmp0 (values->next_upload, list->next_upload) == 0
                    : g_strcmp0 (next, list->next) == 0;
    if (next == NULL || same)
        return ecfs_fail (&list->error, EPROTO, "the server lists a page, and does not say where the next one begins");
    if (++list->n_pages > THIN_PAGES + list->n_names / LEAST_NAMES)
        return ecfs_fail (&list->error, EPROTO,
                          "the server lists %zu names on %zu pages, and says that there are more: its list has no end",
                          list->n_names, list->n_pages);
    g_free (list->next);
    g_free (list->next_key);
    g_free (list->next_upload);
    list->next = g_strdup (values->next);
    list->next_key = g_strdup (values->next_key);
    list->next_upload = g_strdup (values->next_upload);
    return true;
}

static void given_up (EcfsHttp *self, EcfsHttpOp *op)
{
    (void) self;
    bool good = ecfs_s3_did (&op->call) || op->call.status == 404;
    ecfs_http_op_end (op, 0, good ? NULL : ecfs_http_refusal (op, op->request->name));
}

static void finish (ListOp *list)
{
    EcfsHttpOp *op = &list->op;
    if (list->found_id != NULL) {
        g_autofree char *query = ecfs_s3_query ("uploadId", list->found_id, NULL);
        EcfsHttpAsk give_up = {.method = "DELETE", .name = list->found_name, .query = query, .done = given_up};
        ecfs_http_ask (op, &give_up);
    } else if (list->removes) {
        ecfs_http_op_end (op, 0, g_error_new (ECFS_ERROR, ENOENT, "%s: %s", op->request->name, g_strerror (ENOENT)));
    } else {
        ecfs_http_op_end (op, 0, NULL);
    }
}

/* Of all, or of where they are shown. */
static bool wants_uploads (const EcfsStream *request)
{
    return *request->name == '\0' || strcmp (request->name, ECFS_INCOMING) == 0;
}

static void done (EcfsHttp *self, EcfsHttpOp *op)
{
    ListOp *list = (ListOp *) op;
    (void) self;
    /* A server that has no uploads in parts lists none; one that does not tell says so where that matters. */
    bool none = list->uploads && (op->call.status == 501 || op->call.status == 405 ||
                                  (op->call.status == 403 && *op->request->name == '\0'));
    GError *error = none && !ecfs_request_cancelled (op->request) ? NULL : verdict (list);
    bool again = error == NULL && !none && list->found_id == NULL && next_page (list);
    if (error == NULL)
        error = g_steal_pointer (&list->error);
    if (error != NULL) {
        ecfs_http_op_end (op, 0, error);
    } else if (again) {
        ask (list);
    } else if (!list->uploads && wants_uploads (op->request)) {
        list->uploads = true;
        ask (list);
    } else {
        finish (list);
    }
}

static void begin (EcfsHttp *self, EcfsStream *request, bool removes)
{
    ListOp *list = (ListOp *) ecfs_http_op_new (self, request, sizeof *list);
    list->op.clear = clear;
    list->op.cancel = ecfs_http_cancel;
    list->removes = list->uploads = removes;
    ask (list);
}

void ecfs_s3_list_begin (EcfsHttp *self, EcfsStream *request)
{
    begin (self, request, false);
}

void ecfs_s3_remove_unfinished_begin (EcfsHttp *self, EcfsStream *request)
{
    begin (self, request, true);
}
