#include "util/notify.h"

#include "util/io.h"

#include <glib/gstdio.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

/* A service manager: a datagram socket bound to @name, "@..." being an abstract address. */
static int listen_on (const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy (address.sun_path, name, strlen (name));
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    int fd = socket (AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = (socklen_t) (offsetof (struct sockaddr_un, sun_path) + strlen (name));
    g_assert_cmpint (bind (fd, (const struct sockaddr *) &address, size), ==, 0);
    return fd;
}

static void assert_hears (int fd, const char *expected)
{
    char text[256];
    ssize_t size = recv (fd, text, sizeof text - 1, 0);
    g_assert_cmpint (size, >=, 0);
    text[size] = '\0';
    g_assert_cmpstr (text, ==, expected);
}

static void assert_is_told (const char *name)
{
    ecfs_autofd fd = listen_on (name);
    g_setenv ("NOTIFY_SOCKET", name, TRUE);
    g_assert_true (ecfs_notify_wanted ());
    ecfs_notify ("READY=1");
    ecfs_notify ("STATUS=all is well\nSTOPPING=1");
    assert_hears (fd, "READY=1");
    assert_hears (fd, "STATUS=all is well\nSTOPPING=1");
    g_assert_cmpint (recv (fd, (char[1]){0}, 1, 0), ==, -1);
}

static void test_path (void)
{
    g_autofree char *directory = g_dir_make_tmp ("ecfs-notify-XXXXXX", NULL);
    g_autofree char *name = g_build_filename (directory, "socket", NULL);
    assert_is_told (name);
    g_assert_cmpint (g_unlink (name), ==, 0);
    ecfs_notify ("READY=1"); /* the manager is gone: no more than a message in the log */
    g_assert_cmpint (g_rmdir (directory), ==, 0);
}

static void test_abstract (void)
{
    g_autofree char *uuid = g_uuid_string_random ();
    g_autofree char *name = g_strconcat ("@ecfs-notify/", uuid, NULL);
    assert_is_told (name);
}

static void test_nobody (void)
{
    g_autofree char *too_long = g_strnfill (200, '/');
    const char *const names[] = {NULL, "", "socket", "vsock:2:1234", too_long};
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++) {
        if (names[i] == NULL)
            g_unsetenv ("NOTIFY_SOCKET");
        else
            g_setenv ("NOTIFY_SOCKET", names[i], TRUE);
        g_assert_false (ecfs_notify_wanted ());
        ecfs_notify ("READY=1");
    }
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/notify/tells-a-socket-in-the-file-system", test_path);
    g_test_add_func ("/notify/tells-an-abstract-socket", test_abstract);
    g_test_add_func ("/notify/does-nothing-where-nobody-listens", test_nobody);
    return g_test_run ();
}
