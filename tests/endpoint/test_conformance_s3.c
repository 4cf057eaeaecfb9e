/*
 * The conformance suite over s3://, against tests/lab/s3-server: with a bucket for its root and below a prefix, by
 * stores that keep to conditions and that ignore them, in clear and over TLS, and on a line that comes and goes.
 *
 * ECFS_WEB=all runs everything for every row.
 */
#include "conformance.h"
#include "s3_fixture.h"

#include <sys/stat.h>

static const struct {
    const char *name;
    const char *features; /* of the server */
    const char *bucket;   /* that roots are prefixes in; NULL: they are buckets */
    const char *behind;   /* instead: a proxy in front of the server of this row */
    bool gateway;         /* instead: it is versitygw */
    bool brief;
} servers[] = {
    {.name = "s3", .features = ""},
    {.name = "s3-prefix", .features = "paged locks-all", .bucket = "bucket", .brief = true},
    {.name = "s3-ignorant", .features = "ignorant", .brief = true},
    {.name = "s3-tls", .features = "tls", .brief = true},
    {.name = "s3-versity", .gateway = true},
    {.name = "s3-unsteady", .behind = "s3", .brief = true},
    {.name = "s3-tls-unsteady", .behind = "s3-tls", .brief = true},
};

#define N_SERVERS G_N_ELEMENTS (servers)

static const S3 *find (S3 *const *stores, const char *name)
{
    for (size_t i = 0; i < N_SERVERS; i++)
        if (g_str_equal (servers[i].name, name))
            return stores[i];
    return NULL;
}

static void add_row (size_t i, const S3 *store, bool everything)
{
    const char *bucket = servers[i].bucket;
    LabProxy *proxy = servers[i].behind == NULL ? NULL : lab_proxy_new (store->port);
    char *path = bucket == NULL ? g_strdup (store->root) : g_build_filename (store->root, bucket, NULL);
    if (bucket != NULL)
        g_assert_cmpint (mkdir (path, 0700), ==, 0);
    conformance_add ((ConformanceRow){.name = g_strdup (servers[i].name),
                                      .url = bucket == NULL ? g_strdup ("s3:/") : g_strconcat ("s3://", bucket, NULL),
                                      .options = s3_options (store, proxy == NULL ? store->port : proxy->port),
                                      .path = path,
                                      .brief = servers[i].brief && !everything,
                                      .vanishes = servers[i].gateway,
                                      .proxy = proxy});
}

int main (int argc, char **argv)
{
    conformance_init (&argc, &argv);
    bool everything = g_strcmp0 (g_getenv ("ECFS_WEB"), "all") == 0;
    S3 *stores[N_SERVERS] = {NULL};
    for (size_t i = 0; i < N_SERVERS; i++) {
        const char *why = "it has no server";
        if (servers[i].gateway)
            stores[i] = s3_new_gateway (&why);
        else if (servers[i].behind == NULL)
            stores[i] = s3_new (servers[i].features, &why);
        const S3 *store = servers[i].behind == NULL ? stores[i] : find (stores, servers[i].behind);
        if (store == NULL)
            conformance_lacks (servers[i].name, why);
        else
            add_row (i, store, everything);
    }
    int result = conformance_run ("there is no S3 server: see above");
    for (size_t i = 0; i < N_SERVERS; i++)
        s3_free (stores[i]);
    return result;
}
