/* Signatures, documents and options of S3; and what its driver does with servers that are busy, old or wrong. */
#include "s3_fixture.h"
#include "transfer.h"

#include "endpoint/s3/s3_sign.h"
#include "endpoint/s3/s3_text.h"
#include "program/program.h"

#include <glib/gstdio.h>
#include <stdio.h>
#include <string.h>

#define MIB ((size_t) 1 << 20)

/* The examples of AWS's own pages about signatures in headers. */
static void test_signatures (void)
{
    EcfsS3Key key = {.access = (char *) "AKIAIOSFODNN7EXAMPLE",
                     .secret = (char *) "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
    const char *const headers[] = {
        "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "x-amz-date: 20130524T000000Z", "Content-Type: is/not-signed", NULL};
    char hash[ECFS_S3_HASH_SIZE], stamp[ECFS_S3_STAMP_SIZE];
    ecfs_s3_hash ("", 0, hash);
    ecfs_s3_stamp (1369353600, stamp);
    g_autofree char *list = ecfs_s3_query ("prefix", "J", "delimiter", NULL, "max-keys", "2", NULL);
    g_autofree char *lifecycle = ecfs_s3_query ("lifecycle", "", NULL);
    EcfsS3Signing what = {.key = &key,
                          .region = "us-east-1",
                          .stamp = stamp,
                          .method = "GET",
                          .host = "examplebucket.s3.amazonaws.com",
                          .path = "/",
                          .query = list,
                          .headers = headers,
                          .content = hash};
    g_autofree char *one = ecfs_s3_sign (&what);
    g_assert_cmpstr (one, ==,
                     "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
                     "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
                     "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    what.query = lifecycle;
    g_autofree char *other = ecfs_s3_sign (&what);
    g_assert_true (g_str_has_suffix (other, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
}

static void on_entry (void *user, const EcfsS3Entry *entry)
{
    g_string_append_printf (user, "%s|%s|%d|%" G_GUINT64_FORMAT "|%" G_GINT64_FORMAT "\n", entry->key,
                            entry->upload_id != NULL ? entry->upload_id : "", entry->has_size, entry->size,
                            entry->mtime_s);
}

/* In pieces of every size. */
static void test_documents (void)
{
    static const char text[] =
        "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://any\"><Name>b</Name><IsTruncated>true</IsTruncated>"
        "<Contents><Key>a/b%20c%2Bd+e</Key><Size>17</Size><LastModified>2026-11-27T01:00:00.000Z</LastModified>"
        "<Owner><ID>x</ID><Key>no</Key></Owner></Contents><Contents><Key>&amp;</Key><Size>-1</Size></Contents>"
        "<Upload><Key>u</Key><UploadId>7</UploadId></Upload><NextContinuationToken>1/==</NextContinuationToken>"
        "</ListBucketResult>";
    for (size_t piece = 1; piece < sizeof text; piece++) {
        g_autoptr (GError) error = NULL;
        g_autoptr (GString) found = g_string_new (NULL);
        g_autoptr (EcfsS3Parser) parser = ecfs_s3_parser_new (ECFS_S3_OBJECTS, on_entry, found);
        for (size_t at = 0; at < sizeof text - 1; at += piece)
            g_assert_true (ecfs_s3_parser_feed (parser, text + at, MIN (piece, sizeof text - 1 - at), &error));
        g_assert_true (ecfs_s3_parser_end (parser, &error));
        g_assert_cmpstr (found->str, ==, "a/b c+d e||1|17|1795741200\n&||0|0|0\nu|7|0|0|0\n");
        const EcfsS3Values *values = ecfs_s3_parser_values (parser);
        g_assert_true (values->goes_on);
        g_assert_cmpstr (values->next, ==, "1/==");
        g_assert_cmpstr (values->root, ==, "ListBucketResult");
    }
}

static void test_hostile_documents (void)
{
    g_autofree char *long_key = g_strnfill (10000, 'k');
    g_autofree char *too_long = g_strdup_printf ("<a><Contents><Key>%s</Key></Contents></a>", long_key);
    g_autoptr (GString) deep = g_string_new (NULL);
    for (unsigned i = 0; i < 40; i++)
        g_string_append (deep, "<a>");
    const char *const hostile[] = {"",
                                   "garbage",
                                   "<a><b></a>",
                                   "<a>",
                                   "<!DOCTYPE a [<!ENTITY e SYSTEM \"file:///etc/passwd\">]><a>&e;</a>",
                                   too_long,
                                   deep->str,
                                   "<a/><a/>",
                                   "<Error><Code>AccessDenied</Code></Error>"};
    for (size_t i = 0; i < G_N_ELEMENTS (hostile); i++) {
        g_autoptr (GError) error = NULL;
        const char *root = g_str_has_prefix (hostile[i], "<Error") ? ECFS_S3_UPLOADS : NULL;
        g_autoptr (EcfsS3Parser) parser = ecfs_s3_parser_new (root, NULL, NULL);
        bool good = ecfs_s3_parser_feed (parser, hostile[i], strlen (hostile[i]), &error) &&
                    ecfs_s3_parser_end (parser, &error);
        g_assert_false (good);
        g_assert_error (error, ECFS_ERROR, EPROTO);
    }
}

static void test_options (void)
{
    static const struct {
        const char *text;
        const char *word; /* of the error; NULL: it is fine */
    } cases[] = {
        {"s3://bucket", NULL},
        {"s3://bucket/a/b/", NULL},
        {"s3://my.bucket/a,region=eu-north-1,style=host,storage_class=STANDARD_IA,part_size=5M", NULL},
        {"s3://bucket,endpoint_url=https://s3.example.org:8443,delete=after 30d,object_lock=governance 30d", NULL},
        {"s3://user:secret@bucket", "endpoint_url"},
        {"s3://b", "bucket"},
        {"s3://bucket/../up", "part"},
        {"s3://bucket/a//b", "empty"},
        {"s3://bucket/a?b", "%3F"},
        {"s3://bucket,endpoint_url=s3.example.org", "http"},
        {"s3://bucket,endpoint_url=https://s3.example.org/bucket", "endpoint_url"},
        {"s3://bucket,endpoint_url=https://me:secret@s3.example.org", "password"},
        {"s3://bucket,part_size=1M", "part_size"},
        {"s3://bucket,style=dns", "style"},
        {"s3://bucket,region=example.org/", "region"},
        {"s3://bucket,object_lock=governance 30d", "delete"},
        {"s3://bucket,delete=never,object_lock=for-ever", "object_lock"},
        {"s3://bucket,delete=never,object_lock=governance 36500d", NULL},
        {"s3://bucket,delete=never,object_lock=governance 36501d", "36500d"},
        {"s3://bucket,secret=x", "unknown option"},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        static const EcfsMarker nothing;
        g_autoptr (GError) error = NULL;
        g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (cases[i].text, &error);
        g_assert_no_error (error);
        g_autoptr (EcfsEndpoint) endpoint = ecfs_endpoint_new (spec, &nothing, &error);
        g_assert_true ((endpoint != NULL) == (cases[i].word == NULL));
        if (error == NULL)
            continue;
        g_assert_error (error, ECFS_ERROR, EINVAL);
        g_assert_nonnull (strstr (error->message, cases[i].word));
        g_assert_null (strstr (error->message, "secret@"));
    }
}

/* A server, and an endpoint there that has a marker. */
typedef struct Fixture {
    S3 *store;
    EcfsMarker marker;
    EcfsEndpoint *endpoint;
} Fixture;

static EcfsEndpoint *start (const Fixture *self, const char *more)
{
    static const EcfsMarker nothing;
    bool marked = !ecfs_uuid_is_nil (&self->marker.archive);
    g_autofree char *options = s3_options (self->store, self->store->port);
    g_autofree char *text = g_strdup_printf ("x=s3://bucket,%s%s", options, more);
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
    g_assert_no_error (error);
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, marked ? &self->marker : &nothing, &error);
    g_assert_no_error (error);
    ecfs_endpoint_start (endpoint);
    return endpoint;
}

static void restart (Fixture *self, const char *more)
{
    ecfs_endpoint_free (self->endpoint);
    self->endpoint = start (self, more);
}

static void set_up (Fixture *self, gconstpointer features)
{
    const char *why = "";
    self->store = s3_new (features, &why);
    if (self->store == NULL) {
        g_test_skip (why);
        return;
    }
    g_autoptr (EcfsEndpoint) maker = start (self, "");
    g_autoptr (GError) error = NULL;
    self->marker = (EcfsMarker){.archive = ecfs_uuid_new (), .endpoint = ecfs_uuid_new ()};
    ecfs_endpoint_mark_wait (maker, &self->marker, true, &error);
    g_assert_no_error (error);
    self->endpoint = start (self, "");
}

static void tear_down (Fixture *self, gconstpointer features)
{
    (void) features;
    ecfs_endpoint_free (self->endpoint);
    s3_free (self->store);
}

static int try_store (Fixture *self, const char *name, const uint8_t *bytes, size_t size)
{
    g_autoptr (GError) error = NULL;
    (void) !ecfs_endpoint_write_wait (self->endpoint, name, bytes, size, &error);
    if (error != NULL)
        g_test_message ("%s", error->message);
    return ecfs_errno (error);
}

static void holds (Fixture *self, const char *name, const uint8_t *bytes, size_t size)
{
    g_autofree uint8_t *back = g_malloc0 (size);
    g_autoptr (GError) error = NULL;
    EcfsRange range = {.offset = 0, .size = size, .to = back};
    ecfs_endpoint_read_wait (self->endpoint, name, &range, 1, &error);
    g_assert_no_error (error);
    g_assert_true (memcmp (back, bytes, size) == 0);
}

static void test_requests (Fixture *self, gconstpointer features)
{
    if (self->store == NULL)
        return;
    g_autofree uint8_t *bytes = test_bytes (17 * MIB, 1);
    g_assert_cmpint (try_store (self, "first", bytes, 1), ==, 0); /* finds out what the store does, … */
    g_assert_cmpint (try_store (self, "first-in-parts", bytes, 9 * MIB), ==, 0); /* … and what with parts */
    unsigned parts = s3_count (self->store, "part"), before = s3_count (self->store, NULL);
    g_assert_cmpint (try_store (self, "stripes/small", bytes, 300000), ==, 0);
    g_assert_cmpuint (s3_count (self->store, NULL), ==, before + 1);
    g_assert_cmpint (try_store (self, "stripes/eight", bytes, 8 * MIB), ==, 0);
    g_assert_cmpuint (s3_count (self->store, NULL), ==, before + 2);
    g_assert_cmpint (try_store (self, "stripes/large", bytes, 17 * MIB), ==, 0);
    g_assert_cmpuint (s3_count (self->store, NULL), ==, before + 2 + 3 + 2); /* three parts, create and complete */
    g_assert_cmpuint (s3_count (self->store, "part"), ==, parts + 3);
    holds (self, "stripes/large", bytes, 17 * MIB);
    g_assert_cmpuint (s3_count (self->store, NULL), ==, before + 8);
    g_assert_cmpint (try_store (self, "stripes/large", bytes, 17 * MIB), ==, EEXIST);
    holds (self, "stripes/large", bytes, 17 * MIB);
}

/* The failed ones are given up in the background. */
static void await_no_uploads (const Fixture *self)
{
    g_autofree char *path = g_build_filename (self->store->dir, "uploads", NULL);
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    for (;;) {
        g_autoptr (GDir) left = g_dir_open (path, 0, NULL);
        if (g_dir_read_name (left) == NULL)
            break;
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (10000);
    }
}

/* Whatever the store does with conditions, and however often it says that it cannot: nothing is replaced or doubled. */
static void test_stores_once (Fixture *self, gconstpointer features)
{
    if (self->store == NULL)
        return;
    g_autofree uint8_t *bytes = test_bytes (17 * MIB, 2);
    for (unsigned i = 0; i < 15; i++) {
        g_autofree char *name = g_strdup_printf ("stripes/%u", i);
        size_t size = i % 5 == 4 ? 9 * MIB + i : 1000 + i;
        g_assert_cmpint (try_store (self, name, bytes + i, size), ==, 0);
        g_assert_cmpint (try_store (self, name, bytes, size), ==, EEXIST);
        holds (self, name, bytes + i, size);
    }
    await_no_uploads (self);
    if (g_str_has_prefix (features, "part-"))
        g_assert_cmpuint (s3_count (self->store, "complete"), ==, 1 + 3); /* it is found out once */
}

/* Four parts are with the server before it answers one, the last one first: the object has them in their order. */
static void test_parts_at_once (Fixture *self, gconstpointer features)
{
    (void) features;
    if (self->store == NULL)
        return;
    g_autofree uint8_t *bytes = test_bytes (40 * MIB, 7);
    restart (self, ",part_size=5M,stall_timeout=20s"); /* the server is silent for a while */
    int64_t began_us = ecfs_now_us ();
    g_assert_cmpint (try_store (self, "stripes/large", bytes, 40 * MIB), ==, 0);
    g_assert_cmpint (ecfs_now_us () - began_us, <, 6 * 2 * G_USEC_PER_SEC); /* what waiting for the others takes */
    holds (self, "stripes/large", bytes, 40 * MIB);
    await_no_uploads (self);
}

typedef struct Writer {
    EcfsEndpoint *endpoint;
    const uint8_t *bytes;
    GThread *thread;
    int status;
} Writer;

static gpointer write_two_parts (gpointer data)
{
    Writer *self = data;
    g_autoptr (GError) error = NULL;
    g_autofree char *name = g_strdup_printf ("stripes/%p", (void *) self);
    (void) !ecfs_endpoint_write_wait (self->endpoint, name, self->bytes, 16 * MIB, &error);
    self->status = ecfs_errno (error);
    return NULL;
}

/* Stripes of one file go to eleven stores, each over a line of its own that does not rest between two parts. */
static void test_second_parts (Fixture *self, gconstpointer features)
{
    (void) features;
    if (self->store == NULL)
        return;
    g_autofree uint8_t *bytes = test_bytes (16 * MIB, 10);
    Writer writers[11];
    for (size_t i = 0; i < G_N_ELEMENTS (writers); i++) {
        writers[i] = (Writer){.endpoint = start (self, ",part_size=8M,stall_timeout=60s"), .bytes = bytes};
        writers[i].thread = g_thread_new ("writer", write_two_parts, &writers[i]);
    }
    for (size_t i = 0; i < G_N_ELEMENTS (writers); i++)
        (void) g_thread_join (writers[i].thread);
    for (size_t i = 0; i < G_N_ELEMENTS (writers); i++) {
        g_assert_cmpint (writers[i].status, ==, 0);
        ecfs_endpoint_free (writers[i].endpoint);
    }
    await_no_uploads (self);
}

/* The server still has to store two parts when the third fails: the upload is given up after that. */
static void test_part_fails (Fixture *self, gconstpointer features)
{
    (void) features;
    if (self->store == NULL)
        return;
    g_autofree uint8_t *bytes = test_bytes (40 * MIB, 8);
    restart (self, ",part_size=5M,stall_timeout=20s"); /* the server is silent for a while */
    g_assert_cmpint (try_store (self, "stripes/large", bytes, 40 * MIB), ==, EDQUOT);
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    while (s3_count (self->store, "abort") == 0 || s3_count (self->store, "part") < 3) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (10000);
    }
    await_no_uploads (self);
    g_assert_cmpuint (s3_count (self->store, "abort"), ==, 1);
}

/* A range is what the server says that it is, whatever the status. */
static void test_odd_ranges (Fixture *self, gconstpointer features)
{
    (void) features;
    if (self->store == NULL)
        return;
    g_autofree uint8_t *bytes = test_bytes (300000, 9), *got = g_malloc (300000);
    g_assert_cmpint (try_store (self, "stripes/one", bytes, 300000), ==, 0);
    const EcfsRange ranges[] = {{.offset = 0, .size = 1000, .to = got},
                                {.offset = 5000, .size = 100000, .to = got + 5000},
                                {.offset = 299000, .size = 1000, .to = got + 299000}};
    unsigned before = s3_count (self->store, NULL);
    g_autoptr (GError) error = NULL;
    ecfs_endpoint_read_wait (self->endpoint, "stripes/one", ranges, G_N_ELEMENTS (ranges), &error);
    g_assert_no_error (error);
    for (size_t i = 0; i < G_N_ELEMENTS (ranges); i++)
        g_assert_true (memcmp (bytes + ranges[i].offset, ranges[i].to, ranges[i].size) == 0);
    g_assert_cmpuint (s3_count (self->store, NULL), ==, before + G_N_ELEMENTS (ranges));
}

/* A server that puts parts together may take its time, if it shows that it is at it. */
static void test_slow_commit (Fixture *self, gconstpointer features)
{
    (void) features;
    if (self->store == NULL)
        return;
    g_autofree uint8_t *bytes = test_bytes (9 * MIB, 6);
    restart (self, ",stall_timeout=2s");
    g_assert_cmpint (try_store (self, "stripes/large", bytes, 9 * MIB), ==, 0);
    holds (self, "stripes/large", bytes, 9 * MIB);
}

/* A success is what S3 says for one: an answer 200 that is an error, or the page of a gateway, is none. */
static void test_false_successes (Fixture *self, gconstpointer features)
{
    if (self->store == NULL)
        return;
    static const char *const answers[] = {"rosy", "maintenance", "unmarked"};
    g_autofree uint8_t *bytes = test_bytes (9 * MIB, 5);
    g_assert_cmpint (try_store (self, "stripes/old", bytes, 1000), ==, 0);
    for (size_t i = 0; i < G_N_ELEMENTS (answers); i++) {
        s3_set (self->store, answers[i], true);
        g_assert_cmpint (try_store (self, "stripes/new", bytes, 1000), ==, EPROTO);
        g_assert_cmpint (try_store (self, "stripes/new", bytes, 9 * MIB), ==, EPROTO);
        g_autoptr (GError) error = NULL;
        bool removed = ecfs_endpoint_remove_wait (self->endpoint, "stripes/old", &error);
        s3_set (self->store, answers[i], false);
        g_assert_true (removed == (i == 2));
        if (removed)
            break;
        g_assert_error (error, ECFS_ERROR, EPROTO);
        holds (self, "stripes/old", bytes, 1000);
    }
    g_assert_cmpint (try_store (self, "stripes/new", bytes, 1000), ==, 0);
    holds (self, "stripes/new", bytes, 1000);
}

/* Fails with @code and these words, and without @secret. */
static void refuses_without (Fixture *self, const char *secret, const char *more, int code, const char *const *words)
{
    g_autoptr (GError) error = NULL;
    EcfsMarker found;
    restart (self, more);
    g_assert_false (ecfs_endpoint_examine_wait (self->endpoint, &found, &error));
    g_test_message ("%s", error->message);
    g_assert_cmpint (error->code, ==, code);
    for (size_t i = 0; words[i] != NULL; i++)
        g_assert_nonnull (strstr (error->message, words[i]));
    g_assert_null (strstr (error->message, secret));
}

static void refuses (Fixture *self, const char *more, int code, const char *const *words)
{
    refuses_without (self, "secret/of", more, code, words); /* the lab's */
}

static void on_listed (void *user, const EcfsListed *listed)
{
    (void) listed;
    ++*(unsigned *) user;
}

/* An account is empty when its list says so, and no other answer does. */
static void test_false_lists (Fixture *self, gconstpointer features)
{
    if (self->store == NULL)
        return;
    static const char *const answers[] = {"rosy", "maintenance"};
    unsigned n = 0;
    uint8_t byte = 7;
    g_assert_cmpint (try_store (self, "stripes/one", &byte, 1), ==, 0);
    for (size_t i = 0; i < G_N_ELEMENTS (answers); i++) {
        g_autoptr (GError) error = NULL;
        s3_set (self->store, answers[i], true);
        g_assert_false (ecfs_endpoint_list_wait (self->endpoint, "stripes", on_listed, &n, &error));
        g_assert_error (error, ECFS_ERROR, EPROTO);
        g_clear_error (&error);
        g_assert_false (ecfs_endpoint_remove_directory_wait (self->endpoint, "stripes/none", &error));
        g_assert_error (error, ECFS_ERROR, EPROTO);
        refuses (self, "", ENOTCONN, (const char *const[]){"is not the list that was asked for", NULL});
        s3_set (self->store, answers[i], false);
        restart (self, "");
        holds (self, "stripes/one", &byte, 1);
    }
    g_autoptr (GError) error = NULL;
    g_assert_true (ecfs_endpoint_list_wait (self->endpoint, "stripes", on_listed, &n, &error));
    g_assert_cmpuint (n, ==, 1);
    s3_set (self->store, "endless", true);
    g_assert_false (ecfs_endpoint_list_wait (self->endpoint, "stripes", on_listed, &n, &error));
    g_assert_error (error, ECFS_ERROR, EPROTO);
}

/* What an upload of a process that died leaves is seen, and can be removed by the name of its file alone. */
static void test_unfinished (Fixture *self, gconstpointer features)
{
    if (self->store == NULL)
        return;
    static const char *const names[] = {"stripes/half"};
    g_autofree uint8_t *bytes = test_bytes (18 * MIB, 3);
    g_autofree char *uploads = g_build_filename (self->store->dir, "uploads", NULL);
    Transfer transfers[3];
    for (unsigned i = 0; i < G_N_ELEMENTS (transfers); i++) {
        transfer_init (&transfers[i], self->endpoint);
        transfers[i].hold = true; /* after what fills a part */
        transfers[i].chunk = 8 * MIB;
        transfer_write (&transfers[i], i == 0 ? "stripes/other" : names[0], bytes, 18 * MIB);
    }
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    while (s3_count (self->store, "part") < G_N_ELEMENTS (transfers)) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (10000);
    }
    ecfs_endpoint_stop (self->endpoint); /* which leaves them, as a machine that loses its power does */
    for (unsigned i = 0; i < G_N_ELEMENTS (transfers); i++)
        g_assert_cmpint (transfer_finish (&transfers[i]), ==, ECANCELED);
    restart (self, "");
    g_autoptr (GError) error = NULL;
    ecfs_endpoint_remove_unfinished_wait (self->endpoint, names, 1, &error);
    g_assert_no_error (error);
    g_autoptr (GDir) left = g_dir_open (uploads, 0, NULL);
    g_assert_nonnull (g_dir_read_name (left));
    g_assert_null (g_dir_read_name (left)); /* the other one's is not ours to remove */
}

/* Amazon's names of servers; a proxy that is not there keeps it from asking them. */
static void test_places (void)
{
    static const struct {
        const char *url;
        const char *place;
    } cases[] = {
        {"s3://bucket,region=eu-north-1", "https://bucket.s3.eu-north-1.amazonaws.com:"},
        {"s3://bucket/prefix,region=cn-north-1", "https://bucket.s3.cn-north-1.amazonaws.com.cn:"},
        {"s3://dotted.bucket,region=eu-north-1", "https://s3.eu-north-1.amazonaws.com:"},
        {"s3://bucket,region=eu-north-1,style=path", "https://s3.eu-north-1.amazonaws.com:"},
        {"s3://dotted.bucket,region=eu-north-1,style=host", "https://dotted.bucket.s3.eu-north-1.amazonaws.com:"},
    };
    static const EcfsMarker nothing;
    g_autofree char *key_file = NULL;
    int fd = g_file_open_tmp ("ecfs-s3-XXXXXX", &key_file, NULL);
    g_assert_true (g_close (fd, NULL));
    const char *key = "[default]\naws_access_key_id=a\naws_secret_access_key=b\n";
    g_assert_true (g_file_set_contents_full (key_file, key, -1, G_FILE_SET_CONTENTS_NONE, 0600, NULL));
    g_setenv ("https_proxy", "http://127.0.0.1:1", true);
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        g_autoptr (GError) error = NULL;
        EcfsMarker found;
        g_autofree char *text = g_strconcat ("x=", cases[i].url, ",key_file=", key_file, NULL);
        g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
        g_autoptr (EcfsEndpoint) endpoint = ecfs_endpoint_new (spec, &nothing, &error);
        g_assert_no_error (error);
        ecfs_endpoint_start (endpoint);
        g_assert_false (ecfs_endpoint_examine_wait (endpoint, &found, &error));
        g_test_message ("%s", error->message);
        g_assert_error (error, ECFS_ERROR, ENOTCONN);
        g_assert_nonnull (strstr (error->message, cases[i].place));
    }
    g_unsetenv ("https_proxy");
    g_assert_cmpint (g_unlink (key_file), ==, 0);
}

static void test_region (Fixture *self, gconstpointer features)
{
    if (self->store == NULL)
        return;
    uint8_t byte = 7;
    s3_set (self->store, "elsewhere", true);
    restart (self, "");
    g_assert_cmpint (try_store (self, "followed", &byte, 1), ==, 0);
    g_autofree char *told = ecfs_endpoint_description (self->endpoint);
    g_assert_nonnull (strstr (told, "eu-north-1"));
    refuses (self, ",region=us-west-2", ENOTCONN,
             (const char *const[]){"bucket bucket", "eu-north-1", "us-west-2", "set region", NULL});
}

/* Keys that somebody renews beside us are taken up, also where nothing is asked but sizes. */
static void test_renewed_keys (Fixture *self, gconstpointer features)
{
    (void) features;
    if (self->store == NULL)
        return;
    uint8_t byte = 7;
    uint64_t size;
    g_autofree char *credentials = g_build_filename (self->store->dir, "credentials", NULL);
    g_autofree char *text = NULL;
    g_assert_true (g_file_get_contents (credentials, &text, NULL, NULL));
    g_assert_cmpint (try_store (self, "stripes/one", &byte, 1), ==, 0);
    g_autofree char *fresh = g_strconcat (text, "aws_session_token = fresh\n", NULL);
    g_assert_true (g_file_set_contents_full (credentials, fresh, -1, G_FILE_SET_CONTENTS_NONE, 0600, NULL));
    s3_set (self->store, "expired", true);
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    while (!ecfs_endpoint_size_wait (self->endpoint, "stripes/one", &size, NULL)) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (10000);
    }
    g_assert_cmpuint (size, ==, 1);
}

static void test_refusals (Fixture *self, gconstpointer features)
{
    if (self->store == NULL)
        return;
    g_autofree char *bad = g_build_filename (self->store->dir, "bad", NULL);
    static const struct {
        const char *content; /* each with a secret */
        const char *words[3];
    } files[] = {
        {"[default]\naws_access_key_id=AKIANOBODY\naws_secret_access_key=hush/1\n", {"AKIANOBODY", "endpoint_url"}},
        {"[default]\naws_access_key_id=AKIALABLABLABLABLAB0\naws_secret_access_key=hush/2\n",
         {"AKIALABLABLABLABLAB0", "secret"}},
        {"[other]\naws_access_key_id=a\naws_secret_access_key=hush/3\n", {"[default]", "aws_secret_access_key"}},
        {"aws_secret_access_key=hush/4\n", {"KEY = VALUE", "key_file"}},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (files); i++) {
        g_assert_true (g_file_set_contents_full (bad, files[i].content, -1, G_FILE_SET_CONTENTS_NONE, 0600, NULL));
        g_autofree char *credentials = g_build_filename (self->store->dir, "credentials", NULL);
        g_autofree char *good = NULL;
        g_assert_true (g_file_get_contents (credentials, &good, NULL, NULL));
        g_assert_cmpint (rename (bad, credentials), ==, 0);
        refuses_without (self, "hush", "", ENOTCONN, files[i].words);
        g_assert_true (g_file_set_contents_full (credentials, good, -1, G_FILE_SET_CONTENTS_NONE, 0600, NULL));
    }
    s3_set (self->store, "skewed", true);
    refuses (self, "", ENOTCONN, (const char *const[]){"clock", "s slow: set it", NULL});
    s3_set (self->store, "skewed", false);
    uint8_t byte = 7;
    s3_set (self->store, "full", true);
    restart (self, "");
    g_assert_cmpint (try_store (self, "stripes/one", &byte, 1), ==, EDQUOT);
}

/* A refusal of the probe that is of something else is told, and conditions count once it has passed. */
static void test_probe (Fixture *self, gconstpointer features)
{
    if (self->store == NULL)
        return;
    uint8_t byte = 7;
    s3_set (self->store, "choosy", true);
    restart (self, "");
    g_assert_cmpint (try_store (self, "stripes/one", &byte, 1), ==, EPROTO);
    s3_set (self->store, "choosy", false);
    g_assert_cmpint (try_store (self, "stripes/one", &byte, 1), ==, 0);
    unsigned before = s3_count (self->store, NULL);
    g_assert_cmpint (try_store (self, "stripes/two", &byte, 1), ==, 0);
    g_assert_cmpuint (s3_count (self->store, NULL), ==, before + 1);
}

static void test_retained (Fixture *self, gconstpointer features)
{
    if (self->store == NULL)
        return;
    uint8_t byte = 7;
    g_autoptr (GError) error = NULL;
    restart (self, ",delete=after 1s,object_lock=compliance 30d,storage_class=STANDARD_IA");
    g_assert_cmpint (try_store (self, "stripes/locked", &byte, 1), ==, 0);
    g_autofree uint8_t *bytes = test_bytes (9 * MIB, 4);
    g_assert_cmpint (try_store (self, "stripes/in-parts", bytes, 9 * MIB), ==, 0);
    g_assert_cmpint (try_store (self, "journal/locked", &byte, 1), ==, 0);
    g_assert_false (ecfs_endpoint_remove_wait (self->endpoint, "stripes/locked", &error));
    g_assert_error (error, ECFS_ERROR, EPERM); /* without asking */
    g_clear_error (&error);
    s3_set (self->store, "no-delete", true);
    const char *name = "stripes/locked";
    GError *why = NULL;
    ecfs_endpoint_remove_all_wait (self->endpoint, &name, 1, &why);
    g_assert_error (why, ECFS_ERROR, EPERM);
    g_assert_nonnull (strstr (why->message, "retained"));
    g_error_free (why);

    g_autofree char *path = g_build_filename (self->store->dir, "stored", NULL);
    g_autofree char *text = NULL;
    g_assert_true (g_file_get_contents (path, &text, NULL, NULL));
    g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
    unsigned n_locked = 0;
    for (size_t i = 0; lines[i] != NULL; i++) {
        bool cheap = strstr (lines[i], "STANDARD_IA") != NULL;
        g_assert_true (cheap == (strstr (lines[i], "\"stripes/") != NULL));
        n_locked += strstr (lines[i], "\"x-amz-object-lock-mode\": \"COMPLIANCE\"") != NULL &&
                            strstr (lines[i], "x-amz-object-lock-retain-until-date") != NULL
                        ? 1
                        : 0;
    }
    g_assert_cmpuint (n_locked, ==, 3);
}

/* Asks until it is time to. */
static void await_renewal (Fixture *self, const char *name)
{
    const int64_t end_us = g_get_monotonic_time () + 20 * G_USEC_PER_SEC;
    for (bool was_renewed = false; !was_renewed;) {
        g_autoptr (GError) error = NULL;
        bool good = ecfs_endpoint_renew_wait (self->endpoint, name, &was_renewed, &error);
        g_assert_no_error (error);
        g_assert_true (good);
        g_assert_cmpint (g_get_monotonic_time (), <, end_us);
        g_usleep (20000);
    }
}

/* "MODE UNTIL" of an object, as the server has it; g_free () */
static char *lock_of (Fixture *self, const char *name)
{
    g_autofree char *path = g_build_filename (self->store->dir, "locks.json", NULL), *text = NULL;
    g_assert_true (g_file_get_contents (path, &text, NULL, NULL));
    const char *at = strstr (text, name);
    char mode[32], until[32];
    g_assert_nonnull (at);
    g_assert_cmpint (sscanf (at + strlen (name), "\": [\"%31[^\"]\", \"%31[^\"]\"", mode, until), ==, 2);
    return g_strdup_printf ("%s %s", mode, until);
}

static void test_renewed (Fixture *self, gconstpointer features)
{
    if (self->store == NULL)
        return;
    uint8_t byte = 7;
    bool was_renewed = true;
    g_autoptr (GError) error = NULL;
    restart (self, ",delete=never");
    g_assert_false (ecfs_endpoint_renew_wait (self->endpoint, "stripes/unlocked", &was_renewed, &error));
    g_assert_error (error, ECFS_ERROR, ENOTSUP);
    g_clear_error (&error);
    g_assert_cmpint (ecfs_endpoint_lock_us (self->endpoint), ==, 0);
    g_assert_cmpint (try_store (self, "stripes/unlocked", &byte, 1), ==, 0);
    restart (self, ",delete=never,object_lock=compliance 30d");
    g_assert_cmpint (try_store (self, "stripes/long", &byte, 1), ==, 0);
    restart (self, ",delete=after 1s,object_lock=compliance 3s");
    g_assert_cmpint (try_store (self, "stripes/strict", &byte, 1), ==, 0);
    g_autofree char *length = lock_of (self, "stripes/long"), *strict = lock_of (self, "stripes/strict");

    /* Before its time, a longer one, and one of the stricter kind: none gets less. */
    restart (self, ",delete=after 1s,object_lock=governance 3s");
    g_assert_cmpint (ecfs_endpoint_lock_us (self->endpoint), ==, 3 * G_USEC_PER_SEC);
    g_assert_cmpint (try_store (self, "stripes/short", &byte, 1), ==, 0);
    g_autofree char *before = lock_of (self, "stripes/short");
    g_assert_true (ecfs_endpoint_renew_wait (self->endpoint, "stripes/long", &was_renewed, &error));
    g_assert_false (was_renewed);
    await_renewal (self, "stripes/short");
    await_renewal (self, "stripes/strict");
    await_renewal (self, "stripes/unlocked");
    g_autofree char *length_now = lock_of (self, "stripes/long"), *strict_now = lock_of (self, "stripes/strict"),
                    *now = lock_of (self, "stripes/short"), *locked = lock_of (self, "stripes/unlocked");
    g_assert_cmpstr (length_now, ==, length);
    g_assert_cmpstr (strict_now, >, strict);
    g_assert_true (g_str_has_prefix (strict_now, "COMPLIANCE "));
    g_assert_cmpstr (now, >, before);
    g_assert_true (g_str_has_prefix (locked, "GOVERNANCE "));
    const char *name = "stripes/short";
    ecfs_endpoint_remove_all_wait (self->endpoint, &name, 1, &error);
    g_assert_error (error, ECFS_ERROR, EPERM);
    g_clear_error (&error);

    /* Refused. And where locks are not seen, the server still shortens none. */
    s3_set (self->store, "no-renew", true);
    s3_set (self->store, "unseen", true);
    g_assert_false (ecfs_endpoint_renew_wait (self->endpoint, "stripes/short", &was_renewed, &error));
    g_assert_error (error, ECFS_ERROR, EACCES);
    g_assert_nonnull (strstr (error->message, "s3:PutObjectRetention"));
    g_clear_error (&error);
    s3_set (self->store, "no-renew", false);
    g_assert_false (ecfs_endpoint_renew_wait (self->endpoint, "stripes/long", &was_renewed, &error));
    g_assert_error (error, ECFS_ERROR, EACCES);
    g_clear_error (&error);
    g_assert_false (ecfs_endpoint_renew_wait (self->endpoint, "stripes/nowhere", &was_renewed, &error));
    g_assert_error (error, ECFS_ERROR, ENOENT);
}

static void add (const char *path, const char *features, void (*test) (Fixture *, gconstpointer))
{
    g_test_add (path, Fixture, features, set_up, test, tear_down);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    g_unsetenv ("http_proxy");
    g_unsetenv ("no_proxy");
    g_unsetenv ("NO_PROXY");
    g_test_add_func ("/s3/signs-as-the-examples-do", test_signatures);
    g_test_add_func ("/s3/reads-documents-in-pieces", test_documents);
    g_test_add_func ("/s3/refuses-hostile-documents", test_hostile_documents);
    g_test_add_func ("/s3/checks-url-and-options", test_options);
    g_test_add_func ("/s3/finds-amazon's-servers", test_places);
    add ("/s3/asks-no-more-than-it-must", "", test_requests);
    add ("/s3/stores-once-where-conditions-are-ignored", "ignorant", test_stores_once);
    add ("/s3/stores-once-where-conditions-are-refused", "ancient", test_stores_once);
    add ("/s3/stores-once-where-conditions-are-not-known", "antique", test_stores_once);
    add ("/s3/asks-no-more-than-it-must-where-the-bucket-locks", "locks-all", test_requests);
    add ("/s3/takes-no-refusal-for-a-lack-of-conditions", "", test_probe);
    add ("/s3/stores-once-where-conditions-are-inverted", "inverted", test_stores_once);
    add ("/s3/stores-once-where-conditions-are-for-put-only", "put-only", test_stores_once);
    add ("/s3/stores-once-where-conditions-are-refused-with-parts", "part-ancient", test_stores_once);
    add ("/s3/stores-once-where-conditions-are-wrong-with-parts", "part-antique", test_stores_once);
    add ("/s3/stores-once-where-the-server-is-busy", "slow-down", test_stores_once);
    add ("/s3/stores-once-where-answers-get-lost", "forgetful half-hearted", test_stores_once);
    add ("/s3/stores-once-where-answers-do-not-come", "abrupt", test_stores_once);
    add ("/s3/stores-once-where-answers-are-empty", "terse", test_stores_once);
    add ("/s3/sends-parts-at-once", "backwards", test_parts_at_once);
    add ("/s3/sends-a-second-part-of-each-of-eleven", "crowd", test_second_parts);
    add ("/s3/gives-up-what-the-server-has", "backwards third-full", test_part_fails);
    add ("/s3/takes-ranges-that-are-told", "no-206", test_odd_ranges);
    add ("/s3/waits-while-the-server-is-at-it", "dawdling", test_slow_commit);
    add ("/s3/waits-for-what-was-answered-too-early", "late", test_slow_commit);
    add ("/s3/believes-no-success-that-is-none", "", test_false_successes);
    add ("/s3/believes-no-list-that-is-none", "", test_false_lists);
    add ("/s3/removes-what-unfinished-uploads-left", "paged", test_unfinished);
    add ("/s3/goes-to-the-region-of-the-bucket", "", test_region);
    add ("/s3/takes-renewed-keys-up", "", test_renewed_keys);
    add ("/s3/says-what-is-wrong", "", test_refusals);
    add ("/s3/locks-what-it-stores", "lock", test_retained);
    add ("/s3/renews-locks-and-shortens-none", "lock", test_renewed);
    return g_test_run ();
}
