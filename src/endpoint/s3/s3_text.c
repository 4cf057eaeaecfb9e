/*
 * Documents of S3, read by libxml2 as a stream of events. The elements that count are told by their names and their
 * depth; names of other vendors' making, and name spaces, do not matter. A document type is refused, so there are no
 * entities but XML's own five, and nothing outside is ever looked at.
 */
#include "endpoint/s3/s3_text.h"

#include "endpoint/core/driver.h"
#include "endpoint/s3/s3_sign.h"
#include "util/text.h"

#include <libxml/parser.h>
#include <string.h>

#define MAX_DEPTH    16
#define MAX_TEXT     8192        /* of one value: a key has 1,024 bytes at most, each up to three when escaped */
#define MAX_DOCUMENT (64u << 20) /* a page has 1,000 keys */

#define DEPTH_VALUE 2 /* of elements right below the outermost one; … */
#define DEPTH_FIELD 3 /* … and of those below these */

struct EcfsS3Parser {
    xmlParserCtxtPtr context;
    const char *root; /* NULL: any */
    EcfsS3Each each;
    void *user;
    unsigned depth;
    bool in_entry; /* below a Contents or an Upload */
    GString *text; /* of the element that is open */
    char *key;     /* of the entry; as are the next two */
    char *upload_id;
    EcfsS3Entry entry;
    EcfsS3Values values;
    size_t n_bytes;
    bool complete; /* the outermost element has ended */
    const char *wrong;
};

void ecfs_s3_values_clear (EcfsS3Values *values)
{
    g_free (values->root);
    g_free (values->code);
    g_free (values->message);
    g_free (values->region);
    g_free (values->upload_id);
    g_free (values->next);
    g_free (values->next_key);
    g_free (values->next_upload);
    *values = (EcfsS3Values){.root = NULL};
}

static void stop (EcfsS3Parser *self, const char *wrong)
{
    if (self->wrong == NULL)
        self->wrong = wrong;
    xmlStopParser (self->context);
}

static void on_start (void *user, const xmlChar *name, const xmlChar *prefix, const xmlChar *uri, int n_namespaces,
                      const xmlChar **namespaces, int n_attributes, int n_defaulted, const xmlChar **attributes)
{
    EcfsS3Parser *self = user;
    const char *text = (const char *) name;
    (void) prefix, (void) uri, (void) n_namespaces, (void) namespaces, (void) n_attributes, (void) n_defaulted;
    (void) attributes;
    if (self->depth == MAX_DEPTH) {
        stop (self, "is nested too deeply");
        return;
    }
    self->depth++;
    g_string_truncate (self->text, 0);
    if (self->depth == 1) {
        self->values.root = g_strndup (text, MAX_TEXT);
        if (self->root != NULL && strcmp (text, self->root) != 0)
            stop (self, "is not the list that was asked for");
    }
    if (self->depth != DEPTH_VALUE)
        return;
    self->in_entry = strcmp (text, "Contents") == 0 || strcmp (text, "Upload") == 0;
    g_clear_pointer (&self->key, g_free);
    g_clear_pointer (&self->upload_id, g_free);
    self->entry = (EcfsS3Entry){.key = NULL};
}

static void on_characters (void *user, const xmlChar *text, int size)
{
    EcfsS3Parser *self = user;
    if (self->text->len + (size_t) size > MAX_TEXT)
        stop (self, "has a value that is too long");
    else
        g_string_append_len (self->text, (const char *) text, size);
}

/* What encoding-type=url made of a key. One that is no such is kept as it is: no name of ours. */
static char *decode (const char *text)
{
    g_autofree char *spaced = g_strdelimit (g_strdup (text), "+", ' ');
    char *decoded = g_uri_unescape_string (spaced, NULL);
    return decoded != NULL ? decoded : g_strdup (text);
}

static void set_text (char **to, char *value)
{
    g_free (*to);
    *to = value;
}

static void take_field (EcfsS3Parser *self, const char *name, const char *text)
{
    guint64 size;
    if (strcmp (name, "Key") == 0)
        set_text (&self->key, decode (text));
    else if (strcmp (name, "UploadId") == 0)
        set_text (&self->upload_id, g_strdup (text));
    else if (strcmp (name, "Size") == 0 && g_ascii_string_to_unsigned (text, 10, 0, G_MAXINT64, &size, NULL)) {
        self->entry.has_size = true;
        self->entry.size = size;
    } else if (strcmp (name, "LastModified") == 0 || strcmp (name, "Initiated") == 0) {
        g_autoptr (GDateTime) time = g_date_time_new_from_iso8601 (text, NULL);
        self->entry.mtime_s = time == NULL ? 0 : MAX (g_date_time_to_unix (time), 0);
    }
}

static void take_value (EcfsS3Parser *self, const char *name, const char *text)
{
    EcfsS3Values *values = &self->values;
    if (strcmp (name, "Code") == 0)
        set_text (&values->code, ecfs_text_clean (text, ECFS_WORDS_MAX));
    else if (strcmp (name, "Message") == 0)
        set_text (&values->message, ecfs_text_clean (text, ECFS_WORDS_MAX));
    else if (strcmp (name, "Region") == 0)
        set_text (&values->region, ecfs_text_clean (text, ECFS_WORDS_MAX));
    else if (strcmp (name, "UploadId") == 0)
        set_text (&values->upload_id, g_strdup (text));
    else if (strcmp (name, "NextContinuationToken") == 0)
        set_text (&values->next, g_strdup (text));
    else if (strcmp (name, "NextKeyMarker") == 0)
        set_text (&values->next_key, decode (text));
    else if (strcmp (name, "NextUploadIdMarker") == 0)
        set_text (&values->next_upload, g_strdup (text));
    else if (strcmp (name, "IsTruncated") == 0)
        values->goes_on = strcmp (text, "true") == 0;
}

static void end_entry (EcfsS3Parser *self)
{
    self->in_entry = false;
    if (self->key == NULL || self->each == NULL)
        return;
    self->entry.key = self->key;
    self->entry.upload_id = self->upload_id;
    self->each (self->user, &self->entry);
}

static void on_end (void *user, const xmlChar *name, const xmlChar *prefix, const xmlChar *uri)
{
    EcfsS3Parser *self = user;
    (void) prefix, (void) uri;
    if (self->depth == 0)
        return;
    char *text = g_strstrip (self->text->str);
    if (self->depth == DEPTH_FIELD && self->in_entry)
        take_field (self, (const char *) name, text);
    else if (self->depth == DEPTH_VALUE && self->in_entry)
        end_entry (self);
    else if (self->depth == DEPTH_VALUE)
        take_value (self, (const char *) name, text);
    g_string_truncate (self->text, 0);
    self->complete = --self->depth == 0;
}

static void on_document_type (void *user, const xmlChar *name, const xmlChar *external, const xmlChar *system)
{
    (void) name, (void) external, (void) system;
    stop (user, "has a document type");
}

/* Errors are told by what feed and end return. */
static void on_problem (void *user, const xmlError *problem)
{
    (void) user, (void) problem;
}

EcfsS3Parser *ecfs_s3_parser_new (const char *root, EcfsS3Each each, void *user)
{
    static const xmlSAXHandler handler = {
        .initialized = XML_SAX2_MAGIC,
        .internalSubset = on_document_type,
        .startElementNs = on_start,
        .endElementNs = on_end,
        .characters = on_characters,
        .cdataBlock = on_characters,
        .serror = (xmlStructuredErrorFunc) on_problem,
    };
    EcfsS3Parser *self = g_new0 (EcfsS3Parser, 1);
    xmlSAXHandler copy = handler; /* libxml2 copies it again */
    self->root = root;
    self->each = each;
    self->user = user;
    self->text = g_string_new (NULL);
    self->context = xmlCreatePushParserCtxt (&copy, self, NULL, 0, NULL);
    if (self->context == NULL)
        g_error ("out of memory");
    (void) xmlCtxtUseOptions (self->context, XML_PARSE_NONET);
    return self;
}

static bool feed (EcfsS3Parser *self, const void *bytes, size_t size, bool last, GError **error)
{
    self->n_bytes += size;
    if (self->n_bytes > MAX_DOCUMENT)
        return ecfs_fail (error, EPROTO, "the server's answer is too long");
    (void) xmlParseChunk (self->context, bytes, (int) size, last);
    if (self->wrong != NULL)
        return ecfs_fail (error, EPROTO, "the server's answer %s", self->wrong);
    if (!self->context->wellFormed || (last && !self->complete))
        return ecfs_fail (error, EPROTO, "the server's answer is not a complete XML document");
    return true;
}

bool ecfs_s3_parser_feed (EcfsS3Parser *self, const void *bytes, size_t size, GError **error)
{
    return feed (self, bytes, size, false, error);
}

bool ecfs_s3_parser_end (EcfsS3Parser *self, GError **error)
{
    return feed (self, NULL, 0, true, error);
}

const EcfsS3Values *ecfs_s3_parser_values (const EcfsS3Parser *self)
{
    return &self->values;
}

void ecfs_s3_parser_free (EcfsS3Parser *self)
{
    if (self == NULL)
        return;
    xmlFreeParserCtxt (self->context);
    g_string_free (self->text, TRUE);
    g_free (self->key);
    g_free (self->upload_id);
    ecfs_s3_values_clear (&self->values);
    g_free (self);
}

char *ecfs_s3_unfinished_name (const char *name, const char *upload_id)
{
    g_autofree char *prefix = ecfs_incoming_prefix (name);
    char hash[ECFS_S3_HASH_SIZE];
    ecfs_s3_hash (upload_id, strlen (upload_id), hash);
    return g_strdup_printf ("%s%.*s", prefix, ECFS_INCOMING_RANDOM, hash);
}
