#include "archive/control.h"
#include "archive/staged.h"
#include "fixture.h"
#include "util/io.h"
#include "util/lock.h"
#include "util/log.h"

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
    ADD ("verbs-are-answered", test_verbs);
    ADD ("bad-requests-are-refused", test_bad_requests);
    ADD ("garbage-is-refused", test_garbage);
    ADD ("no-mount-is-told", test_not_mounted);
    return g_test_run ();
}
