/* How a connection of sftp:// comes to be: over which carrier, and what its server can. */
#include "endpoint/sftp/sftp_priv.h"

#include <string.h>

/* Of one READ and one WRITE. Much more saves no processor time; a little more than a power of two, so that packets of
 * stripes, which are that with tags, leave no crumbs. */
#define READ_BYTES   (132 * 1024)
#define WRITE_BYTES  (132 * 1024)
#define MIN_IO_BYTES (4 * 1024)  /* smaller limits of a server are not believed */
#define OLD_IO_BYTES (32 * 1024) /* what every server takes */
#define LONG_LINE_US (40 * 1000) /* above this round trip OpenSSH's window is the limit at 50 MB/s */
#define MAX_ECHOES   5           /* on a busy machine the first round trips are long, on any line */

void ecfs_sftp_disconnect (void *connection)
{
    EcfsSftp *self = connection;
    ecfs_sftp_files_clear (self);
    ecfs_ssh_transport_free (self->transport);
    ecfs_sftp_engine_clear (self);
    g_free (self);
}

static void on_limits (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    EcfsSftpLimits limits;
    if (reply->type != ECFS_SFTP_EXTENDED_REPLY || ecfs_sftp_parse_limits (reply, &limits) != 0)
        return;
    if (limits.read_bytes >= MIN_IO_BYTES)
        self->read_bytes = MIN (READ_BYTES, limits.read_bytes);
    if (limits.write_bytes >= MIN_IO_BYTES)
        self->write_bytes = MIN (WRITE_BYTES, limits.write_bytes);
}

static void on_root_made (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    self->root_refused = ecfs_sftp_status (self, reply) == ECFS_SFTP_PERMISSION_DENIED;
}

static void on_root (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
    if (reply->type == ECFS_SFTP_ATTRS)
        return;
    uint32_t status = ecfs_sftp_status (self, reply);
    if (status == ECFS_SFTP_NO_SUCH_FILE) {
        if (self->root_refused)
            ecfs_sftp_break (self, EACCES,
                             "%s: permission to make this directory is denied; make it on the server, or "
                             "give the user the right to",
                             self->config->root);
        else
            ecfs_sftp_break (self, ENOENT, "%s: no such directory on the server; make it, or correct the URL",
                             self->config->root);
        return;
    }
    g_autoptr (GError) error = ecfs_sftp_error (reply, ECFS_SFTP_ON_OTHER, self->config->root);
    ecfs_sftp_break (self, error->code, "%s", error->message);
}

static bool look_around (EcfsSftp *self, bool with_root, const EcfsSshWait *wait, GError **error)
{
    self->read_bytes = self->write_bytes = OLD_IO_BYTES;
    self->serial = (self->extensions & ECFS_SFTP_HAS_FSTATVFS) != 0; /* sftp_log.c says why */
    if ((self->extensions & ECFS_SFTP_HAS_LIMITS) != 0)
        ecfs_sftp_put_limits (self->out, ecfs_sftp_expect (self, NULL, on_limits, NULL));
    if (with_root)
        ecfs_sftp_put_mkdir (self->out, ecfs_sftp_expect (self, NULL, on_root_made, NULL), self->config->root,
                             self->config->directory_mode);
    ecfs_sftp_put_path (self->out, ECFS_SFTP_STAT, ecfs_sftp_expect (self, NULL, on_root, NULL), self->config->root);
    bool done = ecfs_sftp_drain (self, wait, error);
    if (done && self->broken != NULL)
        done = ecfs_fail (error, self->broken->code, "%s", self->broken->message);
    ecfs_sftp_window_start (self);
    return done;
}

static bool check_slot (void *slot, GError **error)
{
    return ecfs_slot_check (slot, error);
}

/* A connection over @transport (taken; NULL: there is none, and *error tells). */
static EcfsSftp *speak (EcfsSlot *slot, EcfsSshTransport *transport, bool with_root, const EcfsSshWait *wait,
                        GError **error)
{
    if (transport == NULL)
        return NULL;
    EcfsSftp *self = g_new0 (EcfsSftp, 1);
    self->slot = slot;
    self->config = ecfs_slot_config (slot);
    self->transport = transport;
    ecfs_sftp_engine_init (self);
    if (ecfs_sftp_greet (self, wait, error) && look_around (self, with_root, wait, error))
        return self;
    ecfs_sftp_disconnect (self);
    return NULL;
}

static EcfsSftp *connect_libssh2 (EcfsSlot *slot, bool with_root, const EcfsSshWait *wait, GError **error)
{
    const EcfsSftpConfig *config = ecfs_slot_config (slot);
    g_autoptr (EcfsSshConfig) resolved = ecfs_ssh_config_resolve (&config->request, error);
    if (resolved == NULL)
        return NULL;
    return speak (slot, ecfs_ssh_libssh2_open (resolved, wait, error), with_root, wait, error);
}

static EcfsSftp *connect_openssh (EcfsSlot *slot, bool with_root, const EcfsSshWait *wait, GError **error)
{
    const EcfsSftpConfig *config = ecfs_slot_config (slot);
    EcfsSftp *self = speak (slot, ecfs_ssh_openssh_open (&config->request, error), with_root, wait, error);
    if (self != NULL)
        return self;
    g_prefix_error (error, "ssh to %s: ", config->request.host);
    /* "No ED25519 host key is known for HOST and you have requested strict checking." */
    if (error != NULL && strstr ((*error)->message, "host key is known for") != NULL) {
        g_autofree char *command = ecfs_ssh_ask_command (&config->request);
        GError *advised = g_error_new (ECFS_ERROR, (*error)->code,
                                       "%s To accept it, run this and compare the fingerprint with what the server's "
                                       "owner says: %s",
                                       (*error)->message, command);
        g_clear_error (error);
        g_propagate_error (error, advised);
    }
    return NULL;
}

static bool libssh2_is_better (EcfsSftpShared *shared)
{
    ecfs_mutex_lock (&shared->lock);
    bool better = shared->libssh2_is_better;
    ecfs_mutex_unlock (&shared->lock);
    return better;
}

static EcfsSftp *prefer_libssh2 (EcfsSftpShared *shared, EcfsSftp *connection)
{
    ecfs_mutex_lock (&shared->lock);
    shared->libssh2_is_better = true;
    ecfs_mutex_unlock (&shared->lock);
    return connection;
}

/* Whether the round trip stays long when it is measured again, until it is short once or twice the same. */
static bool is_long (EcfsSftp *self, const EcfsSshWait *wait)
{
    bool settled = false;
    for (unsigned i = 0; i < MAX_ECHOES && self->rtt_us > LONG_LINE_US && !settled; i++) {
        int64_t before_us = self->rtt_us, began_us = ecfs_now_us ();
        ecfs_sftp_put_path (self->out, ECFS_SFTP_STAT, ecfs_sftp_expect (self, NULL, ecfs_sftp_ignore, NULL),
                            self->config->root);
        if (!ecfs_sftp_drain (self, wait, NULL)) /* then libssh2 tells what is wrong */
            return true;
        settled = ecfs_now_us () - began_us < before_us + before_us / 8 && self->rtt_us > before_us - before_us / 8;
    }
    return self->rtt_us > LONG_LINE_US;
}

/* What ssh refused is refused: it knows more of what the user allows than libssh2 (revoked keys, certificates, lists of
 * algorithms). libssh2 only looks at the host key, where it says best what is wrong with it, and shows no key of ours.
 */
static void explain (EcfsSlot *slot, const EcfsSshWait *wait, GError **error)
{
    const EcfsSftpConfig *config = ecfs_slot_config (slot);
    g_autoptr (GError) found = NULL;
    g_autoptr (EcfsSshConfig) resolved = ecfs_ssh_config_resolve (&config->request, &found);
    if (resolved != NULL && ecfs_ssh_libssh2_look (resolved, wait, &found))
        return;
    bool is_key = resolved != NULL && ecfs_errno (found) == EACCES;
    if (is_key && strstr ((*error)->message, "verification failed") == NULL)
        return; /* what ssh said is not about it */
    if (is_key || ecfs_errno (found) == ENOTCONN || resolved == NULL) {
        g_clear_error (error);
        g_propagate_error (error, g_steal_pointer (&found));
    }
}

/* What ssh says of a login that failed is for the user to mend. */
static void advise (GError **error)
{
    if (strstr ((*error)->message, "Permission denied (") == NULL)
        return;
    GError *denied = g_error_new (ECFS_ERROR, EACCES,
                                  "%s: add one of your public keys to authorized_keys there, or set identity_file or "
                                  "password_file",
                                  (*error)->message);
    g_clear_error (error);
    *error = denied;
}

static bool has_ssh (void)
{
    g_autofree char *program = g_find_program_in_path ("ssh");
    return program != NULL;
}

/* The ssh program where there is one, for it takes half the processor time or less, and does what the user's
 * configuration says; libssh2 where there is none, where a password is to be given, and where one connection that ssh
 * let through has to fill a line that is long for the window of ssh. Several fill it with ssh. */
static EcfsSftp *connect_either (EcfsSlot *slot, bool with_root, const EcfsSshWait *wait, GError **error)
{
    const EcfsSftpConfig *config = ecfs_slot_config (slot);
    if (config->password_file != NULL || libssh2_is_better (config->shared) || !has_ssh ())
        return connect_libssh2 (slot, with_root, wait, error);
    g_autoptr (GError) problem = NULL;
    EcfsSftp *self = connect_openssh (slot, with_root, wait, &problem);
    if (self != NULL && (ecfs_slot_may_have_others (slot) || !is_long (self, wait)))
        return self;
    if (self == NULL) {
        if (problem->code == ENOTCONN)
            advise (&problem);
        if (problem->code == ENOTCONN)
            explain (slot, wait, &problem);
        g_propagate_error (error, g_steal_pointer (&problem));
        return NULL;
    }
    EcfsSftp *other = connect_libssh2 (slot, with_root, wait, NULL);
    if (other == NULL)
        return self;
    ecfs_sftp_disconnect (self);
    return prefer_libssh2 (config->shared, other);
}

void *ecfs_sftp_connect (EcfsSlot *slot, bool with_root, GError **error)
{
    static EcfsSftp *(*const ways[]) (EcfsSlot *, bool, const EcfsSshWait *, GError **) = {
        [ECFS_SFTP_OVER_EITHER] = connect_either,
        [ECFS_SFTP_OVER_OPENSSH] = connect_openssh,
        [ECFS_SFTP_OVER_LIBSSH2] = connect_libssh2,
    };
    const EcfsSftpConfig *config = ecfs_slot_config (slot);
    EcfsSshWait wait = {.deadline_us = ecfs_now_us () + ecfs_slot_connect_timeout_us (slot),
                        .fd = ecfs_slot_fd (slot),
                        .check = check_slot,
                        .user = slot};
    EcfsSftp *self = ways[config->carrier](slot, with_root, &wait, error);
    if (self == NULL)
        return NULL;
    bool fsync = (self->extensions & ECFS_SFTP_HAS_FSYNC) != 0;
    bool space = (self->extensions & ECFS_SFTP_HAS_STATVFS) != 0;
    ecfs_slot_capabilities (slot, ECFS_CAN_POSITION | ECFS_CAN_RENAME | ECFS_CAN_LIST |
                                      (fsync ? ECFS_CAN_FSYNC | ECFS_CAN_LOG : 0) | (space ? ECFS_CAN_SPACE : 0));
    return self;
}
