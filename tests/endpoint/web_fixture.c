#include "web_fixture.h"

#include "server.h"

#include "util/lock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_US (60 * G_USEC_PER_SEC)

static void must_run (const char *const *argv)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *complaint = NULL;
    int status = 0;
    (void) g_spawn_sync (NULL, (char **) argv, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL, NULL, NULL, NULL,
                         &complaint, &status, &error);
    g_assert_no_error (error);
    if (!g_spawn_check_wait_status (status, &error))
        g_error ("%s: %s%s", argv[0], error->message, complaint);
}

static struct sockaddr_in local (unsigned port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_addr.s_addr = htonl (INADDR_LOOPBACK), .sin_port = htons ((uint16_t) port)};
}

static bool try_port (unsigned port, int (*how) (int, const struct sockaddr *, socklen_t))
{
    struct sockaddr_in address = local (port);
    int fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = how (fd, (struct sockaddr *) &address, sizeof address) == 0;
    close (fd);
    return good;
}

/* With the last test program, its servers go. Apache's children end with their parent. */
static void end_with_us (gpointer data)
{
    (void) data;
    if (prctl (PR_SET_PDEATHSIG, SIGTERM) != 0 || setpgid (0, 0) != 0)
        _exit (1);
}

static bool start (Web *self)
{
    g_autofree char *port = g_strdup_printf ("%u", self->port);
    g_auto (GStrv) features = g_strsplit (self->features, " ", -1);
    g_autoptr (GPtrArray) argv = g_ptr_array_new ();
    const char *first[] = {LAB_WEB_SERVER, self->kind, self->dir, port};
    for (size_t i = 0; i < G_N_ELEMENTS (first); i++)
        g_ptr_array_add (argv, (char *) first[i]);
    for (size_t i = 0; features[i] != NULL; i++)
        g_ptr_array_add (argv, features[i]);
    g_ptr_array_add (argv, NULL);
    g_autoptr (GError) error = NULL;
    (void) g_spawn_async (NULL, (char **) argv->pdata, NULL, G_SPAWN_DO_NOT_REAP_CHILD, end_with_us, NULL, &self->pid,
                          &error);
    g_assert_no_error (error);
    for (int64_t deadline_us = ecfs_now_us () + START_US; ecfs_now_us () < deadline_us; g_usleep (5000)) {
        if (try_port (self->port, connect))
            return true;
        if (waitpid (self->pid, NULL, WNOHANG) == self->pid)
            break; /* most likely somebody else took the port */
    }
    self->pid = 0;
    return false;
}

void web_start (Web *self)
{
    bool any_port = self->port == 0;
    for (unsigned i = 0; i < 5; i++) {
        while (any_port && !try_port (self->port = (unsigned) g_random_int_range (20000, 32000), bind))
            continue;
        if (start (self))
            return;
    }
    g_autofree char *log = g_build_filename (self->dir, "log", NULL);
    g_autofree char *words = NULL;
    (void) g_file_get_contents (log, &words, NULL, NULL);
    g_error ("%s does not start: %s", self->kind, words);
}

static void make_certificate (Web *self)
{
    g_autofree char *host = g_build_filename (self->dir, "host", NULL);
    self->ca = g_build_filename (self->dir, "ca.pem", NULL);
    const char *authority[] = {LAB_MAKE_CA, "new", self->dir, NULL};
    const char *certificate[] = {LAB_MAKE_CA, "host", self->dir, host, "localhost", "127.0.0.1", NULL};
    must_run (authority);
    must_run (certificate);
}

Web *web_new (const char *kind, const char *features, const char **why)
{
    bool nginx = g_str_equal (kind, "nginx");
    if (nginx && (access ("/usr/sbin/nginx", X_OK) != 0 ||
                  access ("/usr/lib/nginx/modules/ngx_http_dav_ext_module.so", R_OK) != 0)) {
        *why = "there is no nginx with PROPFIND: install nginx-light and libnginx-mod-http-dav-ext";
        return NULL;
    }
    if (!nginx && access ("/usr/sbin/apache2", X_OK) != 0) {
        *why = "there is no Apache httpd: install apache2-bin";
        return NULL;
    }
    Web *self = g_new0 (Web, 1);
    self->kind = g_strdup (kind);
    self->features = g_strdup (features);
    self->dir = g_dir_make_tmp ("ecfs-web-XXXXXX", NULL);
    g_assert_nonnull (self->dir);
    self->root = g_build_filename (self->dir, "root", NULL);
    if (strstr (features, "tls") != NULL)
        make_certificate (self);
    web_start (self);
    return self;
}

void web_kill (Web *self)
{
    if (self->pid == 0)
        return;
    server_kill (self->pid);
    self->pid = 0;
}

void web_free (Web *self)
{
    if (self == NULL)
        return;
    web_kill (self);
    const char *argv[] = {"rm", "-rf", self->dir, NULL};
    must_run (argv);
    g_free (self->kind);
    g_free (self->features);
    g_free (self->dir);
    g_free (self->root);
    g_free (self->ca);
    g_free (self);
}

char *web_url (const Web *self, unsigned port)
{
    return g_strdup_printf ("%s://127.0.0.1:%u", self->ca != NULL ? "davs" : "dav", port);
}
