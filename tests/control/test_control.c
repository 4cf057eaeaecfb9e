#include "archive/common.h"
#include "control/control.h"
#include "ecfs/ecfs.h"
#include "fixture.h"
#include "program/program.h"
#include "staging/staged.h"
#include "util/io.h"
#include "util/lock.h"
#include "wire/wire.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

typedef struct Served {
    Fixture fixture;
    EcfsControl *control;
    bool unmounted;
} Served;

static bool umount_it (void *user, GError **error)
{
    Served *served = user;
    served->unmounted = true;
    return true;
}

static void set_up_served (Served *served, gconstpointer data)
{
    g_autoptr (GError) error = NULL;
    set_up (&served->fixture, "rs:4+2");
    g_assert_true (ecfs_staged_start (served->fixture.archive, &error));
    const EcfsControlOps ops = {.mountpoint = "/mnt", .umount = umount_it, .user = served};
    served->control = ecfs_control_start (served->fixture.archive, &ops, &error);
    g_assert_no_error (error);
}

static void tear_down_served (Served *served, gconstpointer data)
{
    unsigned n_left;
    ecfs_control_stop (served->control);
    ecfs_staged_stop (served->fixture.archive, ecfs_now_us () + G_USEC_PER_SEC, &n_left);
    tear_down (&served->fixture, NULL);
}

static int call (Served *served, const char *text, JsonNode **ret_reply)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (JsonNode) request = json_from_string (text, &error);
    g_assert_no_error (error);
    g_autoptr (JsonNode) reply = ecfs_control_call (served->fixture.directory, request, &error);
    g_assert_true ((reply == NULL) == (error != NULL));
    if (ret_reply != NULL)
        *ret_reply = g_steal_pointer (&reply);
    return ecfs_errno (error);
}

static void test_verbs (Served *served, gconstpointer data)
{
    g_assert_cmpint (call (served, "{\"verb\":\"wait\"}", NULL), ==, 0);
    g_assert_cmpint (call (served, "{\"verb\":\"wait\",\"quorum\":true,\"paths\":[\"/\"]}", NULL), ==, 0);
    g_assert_cmpint (call (served, "{\"verb\":\"wait\",\"paths\":[\"/absent\"]}", NULL), ==, ENOENT);
    g_autoptr (JsonNode) reply = NULL;
    g_assert_cmpint (call (served, "{\"verb\":\"status\"}", &reply), ==, 0);
    JsonObject *object = json_node_get_object (reply);
    g_assert_cmpint (json_object_get_int_member (object, "pid"), ==, getpid ());
    g_assert_true (json_object_has_member (object, "status"));
    g_assert_cmpint (call (served, "{\"verb\":\"umount\"}", NULL), ==, 0);
    g_assert_true (served->unmounted);
}

static void test_bad_requests (Served *served, gconstpointer data)
{
    g_assert_cmpint (call (served, "{}", NULL), ==, EINVAL);
    g_assert_cmpint (call (served, "{\"verb\":\"fly\"}", NULL), ==, EINVAL);
    g_assert_cmpint (call (served, "{\"verb\":[1]}", NULL), ==, EINVAL);
    g_assert_cmpint (call (served, "{\"verb\":\"wait\",\"paths\":[7]}", NULL), ==, EINVAL);
    g_assert_cmpint (call (served, "{\"verb\":\"wait\",\"paths\":[[]]}", NULL), ==, EINVAL);
    g_assert_cmpint (call (served, "[1]", NULL), ==, EPROTO);
    g_assert_cmpint (call (served, "{\"a\":[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}", NULL), ==, EPROTO);
    g_assert_cmpint (call (served, "{\"verb\":\"wait\"}", NULL), ==, 0); /* it still serves */
}

static void test_garbage (Served *served, gconstpointer data)
{
    static const char *const lines[] = {"\n", "x\n", "{\"verb\"\n", "{\"verb\":\"wait\",}\n", "\xff\xfe{}\n", ""};
    g_autofree char *path = g_build_filename (served->fixture.directory, ECFS_CONTROL_SOCKET, NULL);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    g_assert_cmpuint (strlen (path), <, sizeof address.sun_path);
    g_strlcpy (address.sun_path, path, sizeof address.sun_path);
    for (size_t i = 0; i < G_N_ELEMENTS (lines); i++) {
        char reply[4096];
        ecfs_autofd fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        g_assert_cmpint (connect (fd, (const struct sockaddr *) &address, sizeof address), ==, 0);
        g_assert_cmpint (ecfs_write_all (fd, lines[i], strlen (lines[i])), ==, 0);
        g_assert_cmpint (shutdown (fd, SHUT_WR), ==, 0);
        ssize_t got = read (fd, reply, sizeof reply - 1);
        g_assert_cmpint (got, >=, 0);
        reply[MAX (got, 0)] = '\0';
        g_assert_true (got == 0 || strstr (reply, "\"errno\":71") != NULL); /* EPROTO */
    }
    g_assert_cmpint (call (served, "{\"verb\":\"wait\"}", NULL), ==, 0);
}

/* Sends lines to the conversation of put, which the last may end, and returns what was answered. */
static char *converse (Served *served, const char *const *lines)
{
    g_autofree char *path = g_build_filename (served->fixture.directory, ECFS_CONTROL_SOCKET, NULL);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    g_strlcpy (address.sun_path, path, sizeof address.sun_path);
    ecfs_autofd fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    g_assert_cmpint (connect (fd, (const struct sockaddr *) &address, sizeof address), ==, 0);
    g_autoptr (GString) sent = g_string_new ("{\"verb\":\"put\"}\n"), answers = g_string_new (NULL);
    for (; *lines != NULL; lines++)
        g_string_append_printf (sent, "%s\n", *lines);
    g_assert_cmpint (ecfs_write_all (fd, sent->str, sent->len), ==, 0);
    g_assert_cmpint (shutdown (fd, SHUT_WR), ==, 0);
    char part[4096];
    ssize_t got;
    while ((got = read (fd, part, sizeof part)) > 0)
        g_string_append_len (answers, part, got);
    return g_string_free (g_steal_pointer (&answers), FALSE);
}

static void test_bad_steps (Served *served, gconstpointer data)
{
    static const struct {
        const char *line, *answer; /* after the first, which is that put begins */
    } cases[] = {
        {"x", NULL},
        {"{\"step\":\"fly\"}", "\"errno\":22"},
        {"{}", "\"errno\":22"},
        {"{\"step\":\"resolve\"}", "\"errno\":22"},
        {"{\"step\":\"resolve\",\"path\":\"%zz\"}", "\"errno\":22"},
        {"{\"step\":\"resolve\",\"path\":\"/a/../b\"}", "\"errno\":22"},
        {"{\"step\":\"directory\",\"parent\":77,\"name\":\"a\",\"mode\":16832}", "\"errno\":2"},
        {"{\"step\":\"directory\",\"parent\":-1,\"name\":\"a/b\",\"mode\":16832}", "\"errno\":22"},
        {"{\"step\":\"special\",\"parent\":1,\"name\":\"a\",\"mode\":33188}", "\"errno\":22"},
        {"{\"step\":\"special\",\"parent\":1,\"name\":\"a\",\"mode\":41471}", "\"errno\":22"},
        {"{\"step\":\"link\",\"ino\":77,\"parent\":1,\"name\":\"a\"}", "\"errno\":2"},
        {"{\"step\":\"dress\",\"ino\":1}", "\"errno\":22"},
        {"{\"step\":\"file\",\"id\":5,\"parent\":1,\"name\":\"a\",\"mode\":33188,\"size\":1}", "\"file\":5"},
        {"{\"step\":\"fill\",\"id\":5,\"ino\":77}", "\"file\":5"},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        const char *const lines[] = {cases[i].line, NULL};
        g_autofree char *answers = converse (served, lines);
        g_assert_true (g_str_has_prefix (answers, "{\"ok\":true}\n"));
        const char *second = strchr (answers, '\n') + 1;
        g_test_message ("%s: %s", cases[i].line, second);
        g_assert_true (cases[i].answer == NULL ? *second == '\0' : strstr (second, cases[i].answer) != NULL);
        g_assert_true (cases[i].answer == NULL || strstr (second, "\"errno\":") != NULL);
    }
    EcfsTotals totals;
    g_assert_true (ecfs_catalog_totals (ecfs_archive_catalog (served->fixture.archive), &totals, NULL));
    g_assert_cmpuint (totals.n_inodes, ==, 1);
}

/* put, as another process does it */

typedef struct Progress {
    Fixture *fixture;
    bool comes_back; /* the hidden endpoint, when the first file is stored */
    EcfsProgress last;
} Progress;

static bool on_progress (void *user, const EcfsProgress *progress)
{
    Progress *self = user;
    if (self->comes_back && progress->n_done > 0)
        hide_endpoint (self->fixture, 3, false);
    self->comes_back = self->comes_back && progress->n_done == 0;
    self->last = *progress;
    return true;
}

static void test_put (Served *served, gconstpointer data)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *tree = g_build_filename (served->fixture.base, "tree", NULL);
    g_assert_cmpint (mkdir (tree, 0750), ==, 0);
    g_autofree uint8_t *bytes = random_bytes (100000);
    for (unsigned i = 0; i < 20; i++) {
        g_autofree char *path = g_strdup_printf ("%s/%u", tree, i);
        g_assert_true (g_file_set_contents (path, (const char *) bytes + i, 90000, NULL));
    }
    g_autoptr (Ecfs) ecfs = ecfs_open (served->fixture.directory, ECFS_OPEN_WRITE, &error);
    g_assert_no_error (error);
    Progress progress = {.fixture = &served->fixture};
    const EcfsTransferOptions transfer = {.progress = on_progress, .user = &progress};
    const char *const sources[] = {tree, NULL};
    g_assert_true (ecfs_put (ecfs, sources, "/", &transfer, &error));
    g_assert_cmpuint (progress.last.n_done, ==, 20);
    g_assert_cmpuint (progress.last.n_not_full, ==, 0);
    EcfsAttr attr;
    EcfsCatalog *catalog = ecfs_archive_catalog (served->fixture.archive);
    g_assert_true (ecfs_catalog_resolve (catalog, "/tree", &attr, &error));
    g_assert_cmpuint (attr.mode, ==, S_IFDIR | 0750);
    g_assert_true (ecfs_catalog_resolve (catalog, "/tree/7", &attr, &error));
    assert_content (&served->fixture, attr.ino, bytes + 7, 90000);
}

/* An endpoint that is away for the first files and back before the last is done has all of them in the end. */
static void test_put_fills_up (Served *served, gconstpointer data)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *first = g_build_filename (served->fixture.base, "first", NULL);
    g_autofree char *second = g_build_filename (served->fixture.base, "second", NULL);
    g_autofree uint8_t *bytes = random_bytes (100000);
    g_assert_true (g_file_set_contents (first, (const char *) bytes, 100000, NULL));
    g_assert_true (g_file_set_contents (second, (const char *) bytes, 90000, NULL));
    g_autoptr (Ecfs) ecfs = ecfs_open (served->fixture.directory, ECFS_OPEN_WRITE, &error);
    g_assert_no_error (error);
    Progress progress = {.fixture = &served->fixture, .comes_back = true};
    const EcfsTransferOptions transfer = {.progress = on_progress, .user = &progress};
    const char *const sources[] = {first, second, NULL};
    hide_endpoint (&served->fixture, 3, true);
    g_assert_true (ecfs_put (ecfs, sources, "/", &transfer, &error));
    g_assert_false (progress.comes_back);
    g_assert_cmpuint (progress.last.n_not_full, ==, 0);
    EcfsTotals totals;
    g_assert_true (ecfs_catalog_totals (ecfs_archive_catalog (served->fixture.archive), &totals, NULL));
    g_assert_cmpuint (totals.n_not_full, ==, 0);
    g_assert_cmpuint (totals.n_files, ==, 2);
}

static void test_not_mounted (Served *served, gconstpointer data)
{
    struct stat st;
    g_autofree char *path = g_build_filename (served->fixture.directory, ECFS_CONTROL_SOCKET, NULL);
    g_assert_cmpint (stat (path, &st), ==, 0);
    g_assert_cmpint (st.st_mode & 07777, ==, 0600);
    ecfs_control_stop (g_steal_pointer (&served->control));
    g_assert_cmpint (call (served, "{\"verb\":\"wait\"}", NULL), ==, ENOTCONN);
}

#define ADD(name, function) g_test_add ("/control/" name, Served, NULL, set_up_served, function, tear_down_served)

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* notices are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    ADD ("verbs-are-answered", test_verbs);
    ADD ("bad-requests-are-refused", test_bad_requests);
    ADD ("garbage-is-refused", test_garbage);
    ADD ("bad-steps-of-put-are-refused", test_bad_steps);
    ADD ("put-goes-through-the-mount", test_put);
    ADD ("put-fills-up-what-an-endpoint-missed", test_put_fills_up);
    ADD ("no-mount-is-told", test_not_mounted);
    return g_test_run ();
}
