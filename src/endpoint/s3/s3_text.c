/*
 * Documents of S3. The elements that count are told by their names and their depth; names of other vendors' making, and
 * name spaces, do not matter.
 */
#include "endpoint/s3/s3_text.h"

#include "endpoint/core/driver.h"
#include "endpoint/s3/s3_sign.h"
#include "endpoint/web/xml.h"
#include "util/text.h"

#include <string.h>

#define MAX_DEPTH    16
#define MAX_TEXT     8192        /* of one value: a key has 1,024 bytes at most, each up to three when escaped */
#define MAX_DOCUMENT (64u << 20) /* a page has 1,000 keys */

#define DEPTH_VALUE 2 /* of elements right below the outermost one; … */
#define DEPTH_FIELD 3 /* … and of those below these */

struct EcfsS3Parser {
    EcfsXml *xml;
    const char *root; /* NULL: any */
    EcfsS3Each each;
    void *user;
    bool in_entry; /* below a Contents or an Upload */
    char *key;     /* of the entry; as are the next two */
    char *upload_id;
    EcfsS3Entry entry;
    EcfsS3Values values;
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

static bool on_start (void *user, unsigned depth, const char *space, const char *name)
{
    EcfsS3Parser *self = user;
    (void) space;
    if (depth == 1) {
        self->values.root = g_strndup (name, MAX_TEXT);
        if (self->root != NULL && strcmp (name, self->root) != 0)
            ecfs_xml_refuse (self->xml, "is not the list that was asked for");
    }
    if (depth != DEPTH_VALUE)
        return true;
    self->in_entry = strcmp (name, "Contents") == 0 || strcmp (name, "Upload") == 0;
    g_clear_pointer (&self->key, g_free);
    g_clear_pointer (&self->upload_id, g_free);
    self->entry = (EcfsS3Entry){.key = NULL};
    return true;
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

static void on_end (void *user, unsigned depth, const char *name, const char *text)
{
    EcfsS3Parser *self = user;
    if (depth == DEPTH_FIELD && self->in_entry)
        take_field (self, name, text);
    else if (depth == DEPTH_VALUE && self->in_entry)
        end_entry (self);
    else if (depth == DEPTH_VALUE)
        take_value (self, name, text);
}

EcfsS3Parser *ecfs_s3_parser_new (const char *root, EcfsS3Each each, void *user)
{
    static const EcfsXmlReader reader = {
        .what = "the server's answer",
        .too_long = "has a value that is too long",
        .max_depth = MAX_DEPTH,
        .max_text = MAX_TEXT,
        .max_document = MAX_DOCUMENT,
        .start = on_start,
        .end = on_end,
    };
    EcfsS3Parser *self = g_new0 (EcfsS3Parser, 1);
    self->root = root;
    self->each = each;
    self->user = user;
    self->xml = ecfs_xml_new (&reader, self);
    return self;
}

bool ecfs_s3_parser_feed (EcfsS3Parser *self, const void *bytes, size_t size, GError **error)
{
    return ecfs_xml_feed (self->xml, bytes, size, error);
}

bool ecfs_s3_parser_end (EcfsS3Parser *self, GError **error)
{
    return ecfs_xml_end (self->xml, error);
}

const EcfsS3Values *ecfs_s3_parser_values (const EcfsS3Parser *self)
{
    return &self->values;
}

void ecfs_s3_parser_free (EcfsS3Parser *self)
{
    if (self == NULL)
        return;
    ecfs_xml_free (self->xml);
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
