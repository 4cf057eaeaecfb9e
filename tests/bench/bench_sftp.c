/*
 * Two ways to speak SFTP over libssh2: its own sftp layer, and the sftp:// endpoint. Prints a table of both.
 *
 *     bench_sftp URL[,KEY=VALUE...] [MIB]
 *
 * The URL is an existing directory on a server that one may write to; identity_file has to be given (the libssh2 side
 * uses nothing else). Wall clock and CPU seconds of this process. For a far server put lab-proxy with a delay between.
 */
#include "endpoint/endpoint.h"
#include "endpoint/ssh/ssh_config.h"
#include "util/lock.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <libssh2.h>
#include <libssh2_sftp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK      ((size_t) 1 << 20)
#define RANDOM     ((size_t) 64 << 10)
#define N_RANDOM   64
#define N_SMALL    16
#define SMALL_SIZE 20000

static size_t total;
static uint8_t *memory;

static double cpu_s (void)
{
    struct rusage usage;
    getrusage (RUSAGE_SELF, &usage);
    return (double) (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double) (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

typedef struct Clock {
    int64_t at_us;
    double cpu_s;
} Clock;

static Clock begin (void)
{
    return (Clock){.at_us = ecfs_now_us (), .cpu_s = cpu_s ()};
}

static void report (Clock clock, const char *who, const char *what, double bytes, double n_requests)
{
    double wall = (double) (ecfs_now_us () - clock.at_us) / 1e6;
    double cpu = cpu_s () - clock.cpu_s;
    if (n_requests > 0)
        printf ("%-9s %-22s %8.2f ms each\n", who, what, wall * 1e3 / n_requests);
    else
        printf ("%-9s %-22s %8.1f MB/s %8.2f CPU s/GiB\n", who, what, bytes / wall / 1e6, cpu / (bytes / 1073741824.0));
    fflush (stdout);
}

static uint64_t random_offset (unsigned i)
{
    return (uint64_t) (i * 2654435761u) % (total / RANDOM) * RANDOM;
}

static void check (bool ok, const char *what)
{
    if (!ok)
        g_error ("%s failed", what);
}

/* The endpoint */

typedef struct Work {
    EcfsMutex lock;
    EcfsCond cond;
    unsigned n_open;
    size_t at, size;
} Work;

static void finished (void *user, const GError *error)
{
    Work *work = user;
    if (error != NULL)
        g_error ("%s", error->message);
    ecfs_mutex_lock (&work->lock);
    work->n_open--;
    ecfs_cond_signal (&work->cond);
    ecfs_mutex_unlock (&work->lock);
}

static void wait_below (Work *work, unsigned n)
{
    ecfs_mutex_lock (&work->lock);
    while (work->n_open >= n)
        (void) ecfs_cond_wait_until (&work->cond, &work->lock, ecfs_now_us () + 1000000);
    work->n_open++;
    ecfs_mutex_unlock (&work->lock);
}

static void wait_all (Work *work)
{
    wait_below (work, 1);
    work->n_open = 0;
}

static EcfsPull pull (void *user, const uint8_t **ret_bytes, size_t *ret_size)
{
    Work *work = user;
    if (work->at == work->size)
        return ECFS_PULL_END;
    *ret_bytes = memory + work->at;
    *ret_size = MIN (CHUNK, work->size - work->at);
    work->at += *ret_size;
    return ECFS_PULL_BYTES;
}

static void release (void *user, const uint8_t *bytes, size_t size)
{
}

static void write_file (EcfsEndpoint *endpoint, Work *work, const char *name, size_t size)
{
    EcfsSource source = {.pull = pull, .release = release, .done = finished, .user = work};
    work->at = 0;
    work->size = size;
    wait_below (work, 1);
    ecfs_stream_unref (ecfs_endpoint_write (endpoint, name, &source));
    wait_all (work);
}

static void read_bulk (EcfsEndpoint *endpoint, Work *work, unsigned n_streams)
{
    EcfsSink sink = {.done = finished, .user = work};
    for (size_t at = 0; at < total; at += CHUNK) {
        EcfsRange range = {.offset = at, .size = CHUNK, .to = memory + at};
        wait_below (work, n_streams);
        ecfs_stream_unref (ecfs_endpoint_read (endpoint, "bench-ours", &range, 1, 0, &sink));
    }
    wait_all (work);
}

static void read_random (EcfsEndpoint *endpoint, Work *work, unsigned n_streams)
{
    EcfsSink sink = {.done = finished, .user = work};
    for (unsigned i = 0; i < N_RANDOM; i++) {
        EcfsRange range = {.offset = random_offset (i), .size = RANDOM, .to = memory + i * RANDOM};
        wait_below (work, n_streams);
        ecfs_stream_unref (ecfs_endpoint_read (endpoint, "bench-ours", &range, 1, 0, &sink));
    }
    wait_all (work);
}

static void bench_endpoint (const EcfsEndpointSpec *spec)
{
    static const EcfsMarker any;
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsEndpoint) endpoint = ecfs_endpoint_new (spec, &any, &error);
    if (endpoint == NULL)
        g_error ("%s", error->message);
    Work work = {0};
    ecfs_mutex_init (&work.lock);
    ecfs_cond_init (&work.cond);
    ecfs_endpoint_start (endpoint);
    (void) ecfs_endpoint_remove_wait (endpoint, "bench-ours", NULL); /* of a run that was stopped */
    Clock clock = begin ();
    write_file (endpoint, &work, "bench-ours", total);
    report (clock, "endpoint", "write", (double) total, 0);
    clock = begin ();
    read_bulk (endpoint, &work, 8);
    report (clock, "endpoint", "read", (double) total, 0);
    clock = begin ();
    read_random (endpoint, &work, 1);
    report (clock, "endpoint", "random 64 KiB", 0, N_RANDOM);
    clock = begin ();
    read_random (endpoint, &work, 8);
    report (clock, "endpoint", "random 64 KiB, 8 open", 0, N_RANDOM);
    clock = begin ();
    for (unsigned i = 0; i < N_SMALL; i++) {
        g_autofree char *name = g_strdup_printf ("bench-small-%u", i);
        write_file (endpoint, &work, name, SMALL_SIZE);
    }
    report (clock, "endpoint", "small file, committed", 0, N_SMALL);
    for (unsigned i = 0; i < N_SMALL; i++) {
        g_autofree char *name = g_strdup_printf ("bench-small-%u", i);
        check (ecfs_endpoint_remove_wait (endpoint, name, NULL), "remove");
    }
    check (ecfs_endpoint_remove_wait (endpoint, "bench-ours", NULL), "remove");
    ecfs_cond_clear (&work.cond);
    ecfs_mutex_clear (&work.lock);
}

/* libssh2's sftp layer, whose macros convert lengths */
#pragma GCC diagnostic ignored "-Wconversion"

static LIBSSH2_SESSION *connect_plain (const EcfsSshConfig *config)
{
    int fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons ((uint16_t) config->port)};
    check (inet_pton (AF_INET, config->hostname, &address.sin_addr) == 1, "a numeric host");
    check (connect (fd, (struct sockaddr *) &address, sizeof address) == 0, "connect");
    check (setsockopt (fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "setsockopt");
    LIBSSH2_SESSION *session = libssh2_session_init ();
    check (libssh2_session_method_pref (session, LIBSSH2_METHOD_CRYPT_CS, "aes128-ctr") == 0, "cipher");
    check (libssh2_session_method_pref (session, LIBSSH2_METHOD_CRYPT_SC, "aes128-ctr") == 0, "cipher");
    check (libssh2_session_method_pref (session, LIBSSH2_METHOD_MAC_CS, "hmac-sha2-256") == 0, "mac");
    check (libssh2_session_method_pref (session, LIBSSH2_METHOD_MAC_SC, "hmac-sha2-256") == 0, "mac");
    check (libssh2_session_handshake (session, fd) == 0, "handshake");
    check (libssh2_userauth_publickey_fromfile (session, config->user, NULL, config->identity_files[0], "") == 0,
           "authentication");
    return session;
}

static void pass (LIBSSH2_SFTP_HANDLE *file, bool write, uint8_t *at, size_t size)
{
    while (size > 0) {
        size_t step = MIN (size, CHUNK);
        ssize_t n = write ? libssh2_sftp_write (file, (char *) at, step) : libssh2_sftp_read (file, (char *) at, step);
        check (n > 0, write ? "sftp write" : "sftp read");
        at += n;
        size -= (size_t) n;
    }
}

static void bench_small (LIBSSH2_SFTP *sftp, const char *dir)
{
    Clock clock = begin ();
    for (unsigned i = 0; i < N_SMALL; i++) {
        g_autofree char *temporary = g_strdup_printf ("%s/bench-temporary-%u", dir, i);
        g_autofree char *final = g_strdup_printf ("%s/bench-small-%u", dir, i);
        LIBSSH2_SFTP_HANDLE *file =
            libssh2_sftp_open (sftp, temporary, LIBSSH2_FXF_WRITE | LIBSSH2_FXF_CREAT | LIBSSH2_FXF_EXCL, 0644);
        check (file != NULL, "sftp open");
        pass (file, true, memory, SMALL_SIZE);
        check (libssh2_sftp_fsync (file) == 0 && libssh2_sftp_close (file) == 0, "sftp fsync");
        check (libssh2_sftp_rename_ex (sftp, temporary, (unsigned) strlen (temporary), final, (unsigned) strlen (final),
                                       0) == 0,
               "sftp rename");
    }
    report (clock, "libssh2", "small file, committed", 0, N_SMALL);
    for (unsigned i = 0; i < N_SMALL; i++) {
        g_autofree char *final = g_strdup_printf ("%s/bench-small-%u", dir, i);
        check (libssh2_sftp_unlink (sftp, final) == 0, "sftp unlink");
    }
}

static void bench_libssh2 (const EcfsSshConfig *config, const char *dir)
{
    g_autofree char *path = g_build_filename (dir, "bench-libssh2", NULL);
    LIBSSH2_SESSION *session = connect_plain (config);
    LIBSSH2_SFTP *sftp = libssh2_sftp_init (session);
    check (sftp != NULL, "sftp init");
    Clock clock = begin ();
    LIBSSH2_SFTP_HANDLE *file =
        libssh2_sftp_open (sftp, path, LIBSSH2_FXF_WRITE | LIBSSH2_FXF_CREAT | LIBSSH2_FXF_TRUNC, 0644);
    check (file != NULL, "sftp open");
    pass (file, true, memory, total);
    check (libssh2_sftp_fsync (file) == 0 && libssh2_sftp_close (file) == 0, "sftp fsync");
    report (clock, "libssh2", "write", (double) total, 0);
    file = libssh2_sftp_open (sftp, path, LIBSSH2_FXF_READ, 0);
    clock = begin ();
    pass (file, false, memory, total);
    report (clock, "libssh2", "read", (double) total, 0);
    clock = begin ();
    for (unsigned i = 0; i < N_RANDOM; i++) {
        libssh2_sftp_seek64 (file, random_offset (i));
        pass (file, false, memory, RANDOM);
    }
    report (clock, "libssh2", "random 64 KiB", 0, N_RANDOM);
    libssh2_sftp_close (file);
    bench_small (sftp, dir);
    libssh2_sftp_unlink (sftp, path);
    libssh2_sftp_shutdown (sftp);
    libssh2_session_disconnect (session, "done");
    libssh2_session_free (session);
}

int main (int argc, char **argv)
{
    if (argc < 2) {
        fprintf (stderr, "usage: bench_sftp URL[,KEY=VALUE...] [MIB]\n");
        return 2;
    }
    g_autoptr (GError) error = NULL;
    total = (size_t) (argc > 2 ? atoi (argv[2]) : 256) << 20;
    memory = g_malloc (total);
    memset (memory, 'x', total);
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (argv[1], &error);
    if (spec == NULL)
        g_error ("%s", error->message);
    g_autoptr (GUri) uri = g_uri_parse (spec->url, G_URI_FLAGS_NONE, &error);
    check (uri != NULL, "the URL");
    EcfsSshRequest request = {.host = g_uri_get_host (uri),
                              .port = (unsigned) MAX (g_uri_get_port (uri), 0),
                              .user = g_uri_get_user (uri),
                              .identity_file = g_hash_table_lookup (spec->options, "identity_file")};
    g_autoptr (EcfsSshConfig) config = ecfs_ssh_config_resolve (&request, &error);
    if (config == NULL)
        g_error ("%s", error->message);
    bench_endpoint (spec);
    bench_libssh2 (config, g_uri_get_path (uri));
    g_free (memory);
    return 0;
}
