/*
 * The limit of what ecfs can reach over SFTP here: moves bytes to or from several servers at once and does nothing
 * else.
 *
 *     bare_mover [-f FILE] push|pull BYTES URL[,KEY=VALUE...] ...
 *
 * Each URL is a directory, with the options of an sftp:// endpoint; each gets one connection and one thread, which
 * moves BYTES from or to one buffer in the cache, through the file "bare-mover" there. Session, cipher and MAC are
 * those of ecfs (its SSH transport on libssh2); the SFTP requests are made here, and WINDOW of them are kept
 * outstanding. There is no codec, checksum, queue, catalog, file to read or write, fsync or rename: what ecfs takes
 * longer than this is ecfs. With -f, what is pushed is read from FILE, and what is pulled is written there, as whoever
 * stores or fetches a file has to.
 *
 * To move what a code moves, give BYTES = file / k for a push to n servers, and file / n for a pull, where any n
 * packets out of those stored are enough. Wall clock and CPU are for the caller to measure: connecting is part of both.
 */
#include "endpoint/endpoint.h"
#include "endpoint/sftp/sftp_protocol.h"
#include "endpoint/ssh/ssh_transport.h"
#include "util/io.h"
#include "util/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK        ((size_t) 128 * 1024) /* of one READ or WRITE, as in ecfs */
#define WINDOW       ((size_t) 1024 * 1024)
#define ANSWER_US    (60 * G_USEC_PER_SEC)
#define PACKET_BYTES (CHUNK + ECFS_SFTP_DATA_BYTES)

typedef struct Mover {
    const char *url; /* with options */
    bool push;
    int fd;          /* of the file; -1: none */
    uint64_t offset; /* there, of the first byte */
    uint64_t size;
    pthread_t thread;

    EcfsSshTransport *ssh;
    EcfsSftpHandle handle;
    EcfsSftpReply reply; /* the latest; of DATA and VERSION only the type */
    size_t packet_at, packet_end;
    uint64_t begun, done;          /* bytes asked for or sent, bytes that came or were acknowledged */
    uint8_t packet[PACKET_BYTES];  /* the latest reply */
    uint8_t payload[PACKET_BYTES]; /* of every WRITE */
} Mover;

static G_GNUC_PRINTF (2, 3) _Noreturn void fail (const Mover *self, const char *format, ...)
{
    va_list args;
    va_start (args, format);
    g_autofree char *text = g_strdup_vprintf (format, args);
    va_end (args);
    fprintf (stderr, "bare_mover: %s: %s\n", self->url, text);
    exit (1);
}

static void wait_for_more (Mover *self)
{
    g_autoptr (GError) error = NULL;
    EcfsSshWait wait = {.deadline_us = ecfs_now_us () + ANSWER_US, .fd = -1};
    short events;
    if (self->ssh->ops->flush (self->ssh) != 0)
        fail (self, "%s", self->ssh->ops->problem (self->ssh));
    int fd = self->ssh->ops->poll (self->ssh, &events);
    if (!ecfs_ssh_wait_fd (&wait, fd, events, &error))
        fail (self, "%s", error->message);
}

static void parse_reply (Mover *self)
{
    EcfsSftpReply *reply = &self->reply;
    bool text = reply->type != ECFS_SFTP_DATA && reply->type != ECFS_SFTP_VERSION;
    if (text && ecfs_sftp_parse_reply (self->packet, self->packet_end, reply) != 0)
        fail (self, "the server sends a reply that makes no sense");
    if (reply->type == ECFS_SFTP_STATUS && reply->status != ECFS_SFTP_OK)
        fail (self, "%.*s", (int) reply->text_bytes, reply->text);
    if (reply->type == ECFS_SFTP_DATA &&
        self->packet_end != MIN (CHUNK, self->size - self->done) + ECFS_SFTP_DATA_BYTES)
        fail (self, "the file is too short: push first");
}

/* Takes what has come. True: that makes a reply whole. */
static bool take_some (Mover *self)
{
    if (self->packet_at == self->packet_end) {
        self->packet_at = 0;
        self->packet_end = ECFS_SFTP_HEADER_BYTES;
    }
    while (self->packet_at < self->packet_end) {
        ssize_t n =
            self->ssh->ops->read (self->ssh, self->packet + self->packet_at, self->packet_end - self->packet_at);
        if (n == -EAGAIN)
            return false;
        if (n <= 0)
            fail (self, "%s", self->ssh->ops->problem (self->ssh));
        bool in_header = self->packet_at < ECFS_SFTP_HEADER_BYTES;
        self->packet_at += (size_t) n;
        if (in_header && self->packet_at == ECFS_SFTP_HEADER_BYTES &&
            (ecfs_sftp_parse_header (self->packet, &self->reply.type, &self->reply.id, &self->packet_end) != 0 ||
             self->packet_end > sizeof self->packet))
            fail (self, "the server does not speak SFTP");
    }
    parse_reply (self);
    return true;
}

static void take_reply (Mover *self)
{
    while (!take_some (self))
        wait_for_more (self);
}

static void note_answer (Mover *self)
{
    size_t size = MIN (CHUNK, self->size - self->done);
    if (!self->push && self->fd >= 0 &&
        ecfs_pwrite_all (self->fd, self->packet + ECFS_SFTP_DATA_BYTES, size, self->offset + self->done) != 0)
        fail (self, "the file cannot be written");
    self->done += size;
}

static void fill_payload (Mover *self, size_t size)
{
    struct stat status;
    if (self->fd < 0)
        return;
    /* What all servers get is more than the file has. */
    if (fstat (self->fd, &status) != 0 || status.st_size < (off_t) size ||
        pread (self->fd, self->payload, size,
               (off_t) ((self->offset + self->begun) % ((uint64_t) status.st_size - size + 1))) != (ssize_t) size)
        fail (self, "the file cannot be read");
}

/* What comes while there is no room are answers to chunks. */
static void send_bytes (Mover *self, const uint8_t *from, size_t size)
{
    while (size > 0) {
        ssize_t n = self->ssh->ops->write (self->ssh, from, size);
        if (n >= 0) {
            from += n;
            size -= (size_t) n;
        } else if (n != -EAGAIN)
            fail (self, "%s", self->ssh->ops->problem (self->ssh));
        else if (take_some (self))
            note_answer (self);
        else
            wait_for_more (self);
    }
}

static void begin_chunk (Mover *self)
{
    g_autoptr (GByteArray) request = g_byte_array_new ();
    size_t size = MIN (CHUNK, self->size - self->begun);
    if (self->push)
        ecfs_sftp_put_write (request, 1, &self->handle, self->begun, (uint32_t) size);
    else
        ecfs_sftp_put_read (request, 1, &self->handle, self->begun, (uint32_t) size);
    send_bytes (self, request->data, request->len);
    if (self->push) {
        fill_payload (self, size);
        send_bytes (self, self->payload, size);
    }
    self->begun += size;
}

static void move (Mover *self)
{
    while (self->done < self->size) {
        if (self->begun < self->size && self->begun - self->done + CHUNK <= WINDOW)
            begin_chunk (self);
        else {
            take_reply (self);
            note_answer (self);
        }
    }
}

static void greet (Mover *self)
{
    g_autoptr (GByteArray) request = g_byte_array_new ();
    ecfs_sftp_put_init (request);
    send_bytes (self, request->data, request->len);
    take_reply (self);
    if (self->reply.type != ECFS_SFTP_VERSION)
        fail (self, "the server does not speak SFTP");
}

static void open_file (Mover *self, const char *directory)
{
    g_autoptr (GByteArray) request = g_byte_array_new ();
    g_autofree char *path = g_build_filename (directory, "bare-mover", NULL);
    uint32_t flags =
        self->push ? ECFS_SFTP_OPEN_WRITE | ECFS_SFTP_OPEN_CREATE | ECFS_SFTP_OPEN_TRUNCATE : ECFS_SFTP_OPEN_READ;
    ecfs_sftp_put_open (request, 1, path, flags);
    send_bytes (self, request->data, request->len);
    take_reply (self);
    if (self->reply.type != ECFS_SFTP_HANDLE)
        fail (self, "no answer to the opening of a file");
    self->handle = self->reply.handle;
}

static EcfsSshTransport *open_transport (const EcfsSshRequest *request, bool openssh, GError **error)
{
    if (openssh)
        return ecfs_ssh_openssh_open (request, error);
    EcfsSshWait wait = {.deadline_us = ecfs_now_us () + ANSWER_US, .fd = -1};
    g_autoptr (EcfsSshConfig) config = ecfs_ssh_config_parse (request, NULL, g_get_home_dir (), NULL, error);
    return config == NULL ? NULL : ecfs_ssh_libssh2_open (config, &wait, error);
}

static void connect_server (Mover *self)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (self->url, &error);
    if (spec == NULL)
        fail (self, "%s", error->message);
    g_autoptr (GUri) uri = g_uri_parse (spec->url, G_URI_FLAGS_NONE, &error);
    if (uri == NULL)
        fail (self, "%s", error->message);
    EcfsSshRequest request = {.host = g_uri_get_host (uri),
                              .port = (unsigned) MAX (g_uri_get_port (uri), 0),
                              .user = g_uri_get_user (uri),
                              .identity_file = g_hash_table_lookup (spec->options, "identity_file"),
                              .known_hosts = g_hash_table_lookup (spec->options, "known_hosts")};
    bool openssh = g_strcmp0 (g_hash_table_lookup (spec->options, "transport"), "openssh") == 0;
    self->ssh = open_transport (&request, openssh, &error);
    if (self->ssh == NULL)
        fail (self, "%s", error->message);
    greet (self);
    open_file (self, g_uri_get_path (uri));
}

static void *run (void *data)
{
    Mover *self = data;
    connect_server (self);
    move (self);
    ecfs_ssh_transport_free (self->ssh);
    return NULL;
}

static int open_file_of (int *argc, char ***argv)
{
    if (*argc < 3 || strcmp ((*argv)[1], "-f") != 0)
        return -1;
    bool push = *argc > 3 && strcmp ((*argv)[3], "push") == 0;
    int fd = open ((*argv)[2], (push ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC) | O_CLOEXEC, 0600);
    if (fd < 0) {
        fprintf (stderr, "bare_mover: %s: %s\n", (*argv)[2], g_strerror (errno));
        exit (1);
    }
    *argc -= 2;
    *argv += 2;
    return fd;
}

int main (int argc, char **argv)
{
    int fd = open_file_of (&argc, &argv);
    if (argc < 4 || (strcmp (argv[1], "push") != 0 && strcmp (argv[1], "pull") != 0)) {
        fprintf (stderr, "usage: bare_mover [-f FILE] push|pull BYTES URL[,KEY=VALUE...] ...\n");
        return 2;
    }
    size_t n = (size_t) argc - 3;
    g_autofree Mover *movers = g_new0 (Mover, n);
    for (size_t i = 0; i < n; i++) {
        movers[i].url = argv[i + 3];
        movers[i].push = strcmp (argv[1], "push") == 0;
        movers[i].size = strtoull (argv[2], NULL, 10);
        movers[i].fd = fd;
        movers[i].offset = i * movers[i].size;
        if (pthread_create (&movers[i].thread, NULL, run, &movers[i]) != 0)
            fail (&movers[i], "no thread");
    }
    for (size_t i = 0; i < n; i++)
        (void) pthread_join (movers[i].thread, NULL); /* cannot fail for a thread just made */
    return 0;
}
