/*
 * Two ways to speak SFTP over libssh2: its own sftp layer, and the sftp:// endpoint. Prints a table of both. Then what
 * small files take as appends to a log, and as files of their own.
 *
 *     bench_sftp URL[,KEY=VALUE...] [MIB [PID]]
 *
 * The URL is an existing directory on a server that one may write to; identity_file has to be given (the libssh2 side
 * uses nothing else). Wall clock and CPU seconds of this process; of small files, also of all processes below it and
 * below PID, which is an sshd on this machine. For a far server put lab-proxy with a delay between. With MIB 0 there
 * are small files only.
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
#define N_RECORDS  1000
#define RECORD     ((size_t) 9 << 10)

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

static EcfsEndpoint *start (const EcfsEndpointSpec *spec)
{
    static const EcfsMarker any;
    g_autoptr (GError) error = NULL;
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, &any, &error);
    if (endpoint == NULL)
        g_error ("%s", error->message);
    ecfs_endpoint_start (endpoint);
    return endpoint;
}

static void bench_endpoint (const EcfsEndpointSpec *spec)
{
    g_autoptr (EcfsEndpoint) endpoint = start (spec);
    Work work = {0};
    ecfs_mutex_init (&work.lock);
    ecfs_cond_init (&work.cond);
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

/* Small files: appends, and files */

typedef struct Process {
    int pid, parent;
    double cpu_s;
} Process;

static Process read_process (const char *pid)
{
    g_autofree char *path = g_strdup_printf ("/proc/%s/stat", pid), *text = NULL;
    Process process = {.pid = atoi (pid)};
    unsigned long user = 0, system = 0;
    if (!g_file_get_contents (path, &text, NULL, NULL))
        return process;
    const char *behind = strrchr (text, ')'); /* the name may hold anything */
    if (behind != NULL &&
        sscanf (behind, ") %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &process.parent, &user, &system) == 3)
        process.cpu_s = (double) (user + system) / (double) sysconf (_SC_CLK_TCK);
    return process;
}

/* Whether @pid is @root or below it, as @processes tell. */
static bool is_below (const GArray *processes, int pid, int root)
{
    while (pid != root && pid > 1) {
        int parent = 0;
        for (guint i = 0; i < processes->len; i++)
            if (g_array_index (processes, Process, i).pid == pid)
                parent = g_array_index (processes, Process, i).parent;
        pid = parent;
    }
    return pid == root;
}

/* Of @root and all below it. */
static double tree_cpu_s (int root)
{
    g_autoptr (GArray) processes = g_array_new (FALSE, FALSE, sizeof (Process));
    g_autoptr (GDir) proc = g_dir_open ("/proc", 0, NULL);
    const char *name;
    double sum = 0;
    while (proc != NULL && (name = g_dir_read_name (proc)) != NULL) {
        Process process = g_ascii_isdigit (name[0]) ? read_process (name) : (Process){0};
        if (process.parent != 0)
            g_array_append_val (processes, process);
    }
    for (guint i = 0; i < processes->len; i++)
        if (is_below (processes, g_array_index (processes, Process, i).pid, root))
            sum += g_array_index (processes, Process, i).cpu_s;
    return sum;
}

static int server_pid;

/* This process, its ssh, and the server. */
static double all_cpu_s (void)
{
    return tree_cpu_s ((int) getpid ()) + (server_pid != 0 ? tree_cpu_s (server_pid) : 0);
}

typedef struct Records {
    EcfsMutex lock;
    EcfsCond cond;
    /* guarded by lock */
    unsigned n_given, n_pulled, n_durable;
    bool ended, done;
} Records;

static EcfsPull pull_record (void *user, const uint8_t **ret_bytes, size_t *ret_size)
{
    Records *records = user;
    ecfs_mutex_lock (&records->lock);
    bool more = records->n_pulled < records->n_given;
    EcfsPull answer = more ? ECFS_PULL_BYTES : records->ended ? ECFS_PULL_END : ECFS_PULL_LATER;
    records->n_pulled += more;
    ecfs_mutex_unlock (&records->lock);
    *ret_bytes = memory;
    *ret_size = RECORD;
    return answer;
}

static void record_durable (void *user, uint64_t durable)
{
    Records *records = user;
    ecfs_mutex_lock (&records->lock);
    records->n_durable = (unsigned) (durable / RECORD);
    ecfs_cond_signal (&records->cond);
    ecfs_mutex_unlock (&records->lock);
}

static void records_done (void *user, const GError *error)
{
    Records *records = user;
    if (error != NULL)
        g_error ("%s", error->message);
    ecfs_mutex_lock (&records->lock);
    records->done = true;
    ecfs_cond_signal (&records->cond);
    ecfs_mutex_unlock (&records->lock);
}

/* Gives one more as soon as fewer than @n_open are not durable; at the end, nothing but the end. */
static void append (Records *records, EcfsStream *stream, unsigned n_open, bool ends)
{
    ecfs_mutex_lock (&records->lock);
    records->ended = ends;
    records->n_given += !ends;
    ecfs_stream_wake (stream);
    while (ends ? !records->done : records->n_given - records->n_durable >= n_open)
        (void) ecfs_cond_wait_until (&records->cond, &records->lock, ecfs_now_us () + 1000000);
    ecfs_mutex_unlock (&records->lock);
}

static void append_records (EcfsEndpoint *endpoint, unsigned n_open)
{
    Records records = {0};
    EcfsSource source = {
        .pull = pull_record, .release = release, .progress = record_durable, .done = records_done, .user = &records};
    ecfs_mutex_init (&records.lock);
    ecfs_cond_init (&records.cond);
    EcfsStream *stream = ecfs_endpoint_log (endpoint, "bench-log", &source);
    for (unsigned i = 0; i < N_RECORDS; i++)
        append (&records, stream, n_open, false);
    append (&records, stream, n_open, true);
    ecfs_stream_unref (stream);
    ecfs_cond_clear (&records.cond);
    ecfs_mutex_clear (&records.lock);
}

static void store_records (EcfsEndpoint *endpoint, unsigned n_open)
{
    Work work = {0};
    ecfs_mutex_init (&work.lock);
    ecfs_cond_init (&work.cond);
    for (unsigned i = 0; i < N_RECORDS; i++) {
        g_autofree char *name = g_strdup_printf ("bench-records/%u", i);
        wait_below (&work, n_open);
        ecfs_stream_unref (ecfs_endpoint_write_bytes (endpoint, name, memory, RECORD, finished, &work));
    }
    wait_all (&work);
    ecfs_cond_clear (&work.cond);
    ecfs_mutex_clear (&work.lock);
}

static void remove_records (EcfsEndpoint *endpoint)
{
    (void) ecfs_endpoint_remove_wait (endpoint, "bench-log", NULL); /* there may be none of them */
    for (unsigned i = 0; i < N_RECORDS; i++) {
        g_autofree char *name = g_strdup_printf ("bench-records/%u", i);
        (void) ecfs_endpoint_remove_wait (endpoint, name, NULL);
    }
}

static void bench_records (EcfsEndpoint *endpoint, const char *what, void (*run) (EcfsEndpoint *, unsigned),
                           unsigned n_open)
{
    double own_s = tree_cpu_s ((int) getpid ()), all_s = all_cpu_s ();
    int64_t at_us = ecfs_now_us ();
    run (endpoint, n_open);
    double wall_s = (double) (ecfs_now_us () - at_us) / 1e6;
    own_s = tree_cpu_s ((int) getpid ()) - own_s;
    all_s = all_cpu_s () - all_s;
    printf ("%-9s %s, %u open %8.2f s %8.3f ms each, CPU %.3f ms each here, %.3f in all\n", "endpoint", what, n_open,
            wall_s, wall_s * 1e3 / N_RECORDS, own_s * 1e3 / N_RECORDS, all_s * 1e3 / N_RECORDS);
    fflush (stdout);
    remove_records (endpoint);
}

static void bench_small_files (const EcfsEndpointSpec *spec)
{
    g_autoptr (EcfsEndpoint) endpoint = start (spec);
    remove_records (endpoint); /* of a run that was stopped */
    for (unsigned n_open = 1; n_open <= 8; n_open += 7) {
        bench_records (endpoint, "9 KiB appended", append_records, n_open);
        bench_records (endpoint, "9 KiB files   ", store_records, n_open);
    }
    (void) ecfs_endpoint_remove_directory_wait (endpoint, "bench-records", NULL); /* it may not be empty */
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
        fprintf (stderr, "usage: bench_sftp URL[,KEY=VALUE...] [MIB [PID]]\n");
        return 2;
    }
    g_autoptr (GError) error = NULL;
    total = (size_t) (argc > 2 ? atoi (argv[2]) : 256) << 20;
    server_pid = argc > 3 ? atoi (argv[3]) : 0;
    memory = g_malloc (MAX (total, CHUNK));
    memset (memory, 'x', MAX (total, CHUNK));
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
    if (total > 0) {
        bench_endpoint (spec);
        bench_libssh2 (config, g_uri_get_path (uri));
    }
    bench_small_files (spec);
    g_free (memory);
    return 0;
}
