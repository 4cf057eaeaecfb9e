/*
 * Digests of stored files, made by a hash tool on the server: a second SSH session, of the ssh program, with a shell
 * instead of SFTP. What an account can that is restricted to SFTP is found out by asking.
 */
#include "endpoint/core/hash_text.h"
#include "endpoint/sftp/sftp_priv.h"

#include <poll.h>
#include <string.h>

#define TICK_US      (200 * 1000)
#define FILE_US      (60 * G_USEC_PER_SEC) /* for one, … */
#define BYTES_PER_US 2                     /* … and its bytes: slower disks count as stuck */
#define AHEAD        16                    /* files that the other side is told of before it answers the first */
#define GREETING_MAX 8192

struct EcfsHasher {
    EcfsSshTransport *line;
    EcfsHasherTerms terms;
    const char *kind;
    char in[ECFS_HASH_LINE_MAX + 1];
    size_t filled;
    size_t taken; /* of in: lines that were read */
};

void ecfs_hasher_free (EcfsHasher *self)
{
    if (self == NULL)
        return;
    ecfs_ssh_transport_free (self->line);
    g_free (self);
}

static bool fail_line (EcfsHasher *self, GError **error)
{
    return ecfs_fail (error, ENOTCONN, "the connection to the hash tool is gone: %s",
                      self->line->ops->problem (self->line));
}

/* Until something may have come, or there may be room; goes on to be asked after a while. */
static bool wait_a_little (EcfsHasher *self, int64_t deadline_us, GError **error)
{
    short events;
    struct pollfd fd = {.fd = self->line->ops->poll (self->line, &events)};
    fd.events = events;
    if (!self->terms.goes_on (self->terms.user))
        return ecfs_fail (error, ECANCELED, "cancelled");
    int64_t left_us = deadline_us - ecfs_now_us ();
    if (left_us <= 0)
        return ecfs_fail (error, ETIMEDOUT, "the hash tool on the server says nothing");
    (void) poll (&fd, 1, events == 0 ? 0 : (int) (MIN (left_us, TICK_US) / 1000 + 1)); /* it is looked at again */
    return true;
}

static bool say (EcfsHasher *self, const char *text, int64_t deadline_us, GError **error)
{
    for (size_t left = strlen (text); left > 0;) {
        ssize_t n = self->line->ops->write (self->line, text, left);
        if (n < 0 && n != -EAGAIN)
            return fail_line (self, error);
        if (n > 0) {
            text += n;
            left -= (size_t) n;
        } else if (!wait_a_little (self, deadline_us, error)) {
            return false;
        }
    }
    return true;
}

/* The next line without its end; valid until the next call. NULL with an error. */
static const char *hear (EcfsHasher *self, int64_t deadline_us, GError **error)
{
    for (;;) {
        char *from = self->in + self->taken, *end = memchr (from, '\n', self->filled - self->taken);
        if (end != NULL) {
            *end = '\0';
            self->taken = (size_t) (end + 1 - self->in);
            return from;
        }
        memmove (self->in, from, self->filled - self->taken);
        self->filled -= self->taken;
        self->taken = 0;
        if (self->filled == ECFS_HASH_LINE_MAX)
            return (void) !ecfs_fail (error, EPROTO, "the hash tool on the server says too much"), NULL;
        ssize_t n = self->line->ops->read (self->line, self->in + self->filled, ECFS_HASH_LINE_MAX - self->filled);
        if (n > 0)
            self->filled += (size_t) n;
        else if (n != -EAGAIN)
            return (void) !fail_line (self, error), NULL;
        else if (!wait_a_little (self, deadline_us, error))
            return NULL;
    }
}

/* Whether the shell is where our files are: an account may see other directories by SFTP. */
static bool check_marker (EcfsHasher *self, int64_t deadline_us, GError **error)
{
    EcfsMarker marker;
    g_autoptr (GString) text = g_string_new (NULL);
    const char *line;
    while ((line = hear (self, deadline_us, error)) != NULL && strcmp (line, ECFS_HASH_MARKER_END) != 0 &&
           text->len < GREETING_MAX)
        g_string_append_printf (text, "%s\n", line);
    if (line == NULL)
        return false;
    bool ours = ecfs_marker_parse (text->str, text->len, &marker, NULL) &&
                ecfs_uuid_equal (&marker.archive, &self->terms.expected.archive) &&
                ecfs_uuid_equal (&marker.endpoint, &self->terms.expected.endpoint);
    return ours || ecfs_fail (error, ENOTSUP, "a shell there does not see the directory that SFTP does");
}

static bool greet (EcfsHasher *self, const char *root, GError **error)
{
    int64_t deadline_us = ecfs_now_us () + self->terms.connect_timeout_us;
    g_autofree char *words = g_strconcat (root, "\n", NULL);
    g_autoptr (GError) why = NULL;
    const char *line = say (self, words, deadline_us, &why) ? hear (self, deadline_us, &why) : NULL;
    if (line == NULL && why->code == ECANCELED) {
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    if (line == NULL)
        return ecfs_fail (error, ENOTSUP, "it runs no hash tool for this account (%s)", why->message);
    if (strcmp (line, "ecfs-hash none") == 0)
        return ecfs_fail (error, ENOTSUP, "it has none of xxhsum, b2sum and sha256sum");
    self->kind = ecfs_hash_parse_greeting (line, strlen (line));
    if (self->kind == NULL)
        return ecfs_fail (error, ENOTSUP, "it runs no hash tool for this account");
    return check_marker (self, deadline_us, error);
}

EcfsHasher *ecfs_sftp_hasher (const void *data, const EcfsHasherTerms *terms, GError **error)
{
    const EcfsSftpConfig *config = data;
    if (config->password_file != NULL || config->carrier == ECFS_SFTP_OVER_LIBSSH2 ||
        !ecfs_hash_root_valid (config->root)) {
        (void) !ecfs_fail (error, ENOTSUP,
                           "that needs the ssh program: a key instead of password_file, and "
                           "transport auto or openssh");
        return NULL;
    }
    g_autofree char *remote = g_strconcat ("exec /bin/sh -c '", ecfs_hash_script, "'", NULL);
    EcfsSshTransport *line = ecfs_ssh_openssh_run (&config->request, remote, error);
    if (line == NULL)
        return NULL;
    EcfsHasher *self = g_new0 (EcfsHasher, 1);
    self->line = line;
    self->terms = *terms;
    if (greet (self, config->root, error))
        return self;
    ecfs_hasher_free (self);
    return NULL;
}

bool ecfs_hasher_ask (EcfsHasher *self, EcfsHashed *files, size_t n, GError **error)
{
    size_t n_said = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t deadline_us = ecfs_now_us () + FILE_US + (int64_t) (files[i].size / BYTES_PER_US);
        for (; n_said < MIN (n, i + AHEAD); n_said++) {
            g_autofree char *words = g_strconcat (files[n_said].name, "\n", NULL);
            if (!say (self, words, deadline_us, error))
                return false;
        }
        const char *line = hear (self, deadline_us, error);
        if (line == NULL)
            return false;
        if (!ecfs_hash_parse_answer (self->kind, files[i].name, line, strlen (line), &files[i].digest))
            return ecfs_fail (error, EPROTO,
                              "the hash tool on the server answers with something that is not a digest of %s",
                              files[i].name);
    }
    return true;
}
