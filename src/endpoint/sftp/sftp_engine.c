/* Packets of an SFTP connection in and out, and which reply belongs to whom. */
#include "endpoint/sftp/sftp_priv.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define READ_WINDOW_MIN (256 * 1024)
#define WRITE_WINDOW_MIN                                                                                               \
    (1024 * 1024) /* less makes busy machines idle, more costs servers a third more processor time */
#define WINDOW_MAX       (8 * 1024 * 1024)
#define SLACK_BYTES      (132 * 1024) /* of a READ or WRITE that would have found room */
#define TURN_US          5000         /* both programs need their turns on a processor: part of every round trip */
#define FIRST_RATE       20e6         /* bytes per second, before it is known */
#define WINDOW_PERIOD_US 20000
#define UNKNOWN_RTT_US   (60 * G_USEC_PER_SEC)
#define READS_PER_TURN   16
#define STATUS_WORDS_MAX 200 /* bytes of what a server says of a failure */
#define DISCARD_BYTES    16384
#define RECEIVE_BYTES    (64 * 1024) /* the face promises to tell of data at least so often */
#define OVERSLEPT_LOOKS  3

typedef struct EcfsSftpPending {
    EcfsSftpOp *op; /* may be NULL */
    EcfsSftpReplyFunc func;
    void *data;
    EcfsSftpPart *part; /* of a READ */
    int64_t asked_us;
    int64_t overtaken_us; /* since when what was asked later is answered; 0: nothing was, when looked last */
} EcfsSftpPending;

void ecfs_sftp_engine_init (EcfsSftp *self)
{
    self->pending = g_hash_table_new_full (NULL, NULL, NULL, g_free);
    self->out = g_byte_array_new ();
    self->behind = g_byte_array_new ();
    self->packet = g_byte_array_new ();
    self->rtt_us = UNKNOWN_RTT_US;
    self->next_id = 1;
    g_queue_init (&self->ops);
    g_queue_init (&self->reads);
    g_queue_init (&self->writes);
    g_queue_init (&self->logs);
    g_queue_init (&self->files);
}

void ecfs_sftp_engine_clear (EcfsSftp *self)
{
    g_hash_table_unref (self->pending);
    g_byte_array_unref (self->out);
    g_byte_array_unref (self->behind);
    g_byte_array_unref (self->packet);
    g_clear_error (&self->broken);
}

void ecfs_sftp_break (EcfsSftp *self, int code, const char *format, ...)
{
    if (self->broken != NULL)
        return;
    va_list args;
    va_start (args, format);
    self->broken = g_error_new_valist (ECFS_ERROR, code, format, args);
    va_end (args);
}

/* Requests */

static uint32_t expect (EcfsSftp *self, EcfsSftpPending pending)
{
    uint32_t id;
    do
        id = self->next_id++;
    while (id == 0 || g_hash_table_contains (self->pending, GUINT_TO_POINTER (id)));
    if (g_hash_table_size (self->pending) == 0) {
        self->rtt_id = id;
        self->rtt_sent_us = ecfs_now_us ();
    }
    pending.asked_us = ecfs_now_us ();
    if (pending.op != NULL)
        pending.op->n_pending++;
    g_hash_table_insert (self->pending, GUINT_TO_POINTER (id), g_memdup2 (&pending, sizeof pending));
    return id;
}

uint32_t ecfs_sftp_expect (EcfsSftp *self, EcfsSftpOp *op, EcfsSftpReplyFunc func, void *data)
{
    return expect (self, (EcfsSftpPending){.op = op, .func = func, .data = data});
}

uint32_t ecfs_sftp_expect_data (EcfsSftp *self, EcfsSftpOp *op, EcfsSftpReplyFunc func, EcfsSftpPart *part)
{
    return expect (self, (EcfsSftpPending){.op = op, .func = func, .data = part, .part = part});
}

void ecfs_sftp_redirect (EcfsSftp *self, uint32_t id, EcfsSftpOp *op, EcfsSftpReplyFunc func, void *data)
{
    EcfsSftpPending *pending = g_hash_table_lookup (self->pending, GUINT_TO_POINTER (id));
    g_assert (pending->op == NULL);
    pending->op = op;
    pending->func = func;
    pending->data = data;
    op->n_pending++;
}

void ecfs_sftp_ignore (EcfsSftp *self, void *data, const EcfsSftpReply *reply)
{
}

/* Output */

GByteArray *ecfs_sftp_out (EcfsSftp *self)
{
    return self->payload != NULL ? self->behind : self->out;
}

bool ecfs_sftp_payload_free (const EcfsSftp *self)
{
    return self->payload == NULL && self->out_at == self->out->len;
}

void ecfs_sftp_payload (EcfsSftp *self, EcfsSftpOp *op, uint32_t id, const uint8_t *bytes, size_t size)
{
    g_assert (self->payload == NULL);
    self->payload = bytes;
    self->payload_id = id;
    self->payload_left = size;
    self->payload_op = op;
}

/* Sends from @from on. Returns the bytes taken, 0 for none now; breaks the connection on errors. */
static size_t send_some (EcfsSftp *self, const uint8_t *from, size_t size)
{
    ssize_t n = self->transport->ops->write (self->transport, from, size);
    if (n >= 0)
        return (size_t) n;
    if (n != -EAGAIN)
        ecfs_sftp_break (self, n == -EPROTO ? EPROTO : ENOTCONN, "%s", self->transport->ops->problem (self->transport));
    return 0;
}

static void end_payload (EcfsSftp *self)
{
    GByteArray *sent = self->out;
    self->out = self->behind;
    self->behind = sent;
    g_byte_array_set_size (self->behind, 0);
    self->out_at = 0;
    self->payload = NULL;
    self->payload_op = NULL;
}

bool ecfs_sftp_output (EcfsSftp *self)
{
    while (self->broken == NULL) {
        size_t n;
        if (self->out_at < self->out->len) {
            n = send_some (self, self->out->data + self->out_at, self->out->len - self->out_at);
            self->out_at += n;
        } else if (self->payload_left > 0) {
            n = send_some (self, self->payload, self->payload_left);
            self->payload += n;
            self->payload_left -= n;
        } else if (self->payload != NULL) {
            EcfsSftpOp *op = self->payload_op;
            end_payload (self);
            ecfs_sftp_op_settle (self, op);
            continue;
        } else {
            g_byte_array_set_size (self->out, 0);
            self->out_at = 0;
            break;
        }
        if (n == 0)
            break;
    }
    return self->broken == NULL;
}

bool ecfs_sftp_output_some (EcfsSftp *self)
{
    while (self->payload == NULL && self->out_at < self->out->len) {
        ssize_t n = self->transport->ops->write (self->transport, self->out->data + self->out_at,
                                                 self->out->len - self->out_at);
        if (n <= 0)
            return false; /* what is wrong is told to the slot's thread, too */
        self->out_at += (size_t) n;
    }
    return self->payload == NULL;
}

/* Input */

static void note_round_trip (EcfsSftp *self, uint32_t id)
{
    if (id != self->rtt_id)
        return;
    self->rtt_id = 0;
    self->rtt_us = MAX (MIN (self->rtt_us, ecfs_now_us () - self->rtt_sent_us), 1);
}

/* The operation that waited for a reply goes on, and ends when that was the last thing. */
static void deliver (EcfsSftp *self, uint32_t id, const EcfsSftpReply *reply)
{
    EcfsSftpPending *pending = g_hash_table_lookup (self->pending, GUINT_TO_POINTER (id));
    EcfsSftpPending copy = *pending;
    self->answered_us = MAX (self->answered_us, copy.asked_us);
    g_hash_table_remove (self->pending, GUINT_TO_POINTER (id));
    if (copy.op != NULL)
        copy.op->n_pending--;
    copy.func (self, copy.data, reply);
    if (copy.op != NULL)
        ecfs_sftp_op_settle (self, copy.op);
}

static bool begin_data (EcfsSftp *self, EcfsSftpPending *pending)
{
    uint32_t size;
    memcpy (&size, self->head + ECFS_SFTP_HEADER_BYTES, sizeof size);
    size = GUINT32_FROM_BE (size);
    if (pending->part == NULL || size == 0 || size > pending->part->size - pending->part->got ||
        (size_t) size + ECFS_SFTP_DATA_BYTES != self->packet_bytes) {
        ecfs_sftp_break (self, EPROTO, "the server sends %u bytes that were not asked for", size);
        return false;
    }
    self->data = pending;
    self->data_left = size;
    return true;
}

/* The first bytes of a reply are in head: it is data for somebody, or goes to packet. */
static bool begin_packet (EcfsSftp *self)
{
    uint8_t type;
    uint32_t id;
    if (ecfs_sftp_parse_header (self->head, &type, &id, &self->packet_bytes) != 0 ||
        (type == ECFS_SFTP_DATA && self->packet_bytes < ECFS_SFTP_DATA_BYTES)) {
        ecfs_sftp_break (self, EPROTO, "the server does not speak SFTP (does its login shell print something?)");
        return false;
    }
    EcfsSftpPending *pending = g_hash_table_lookup (self->pending, GUINT_TO_POINTER (id));
    if (pending == NULL) {
        ecfs_sftp_break (self, EPROTO, "the server answers what was not asked (id %" PRIu32 ", type %u)", id, type);
        return false;
    }
    if (self->payload_left > 0 && id == self->payload_id) {
        ecfs_sftp_break (self, EPROTO, "the server acknowledges bytes that were not sent yet");
        return false;
    }
    note_round_trip (self, id);
    if (type == ECFS_SFTP_DATA)
        return begin_data (self, pending);
    size_t n = MIN (self->n_head, self->packet_bytes);
    g_byte_array_set_size (self->packet, 0);
    g_byte_array_append (self->packet, self->head, (guint) n);
    return true;
}

static uint32_t head_id (const EcfsSftp *self)
{
    uint32_t id;
    memcpy (&id, self->head + 5, sizeof id);
    return GUINT32_FROM_BE (id);
}

static void end_packet (EcfsSftp *self)
{
    EcfsSftpReply reply;
    self->n_head = 0;
    self->arrived = true;
    if (ecfs_sftp_parse_reply (self->packet->data, self->packet->len, &reply) != 0)
        ecfs_sftp_break (self, EPROTO, "the server sends a reply that makes no sense");
    else
        deliver (self, reply.id, &reply);
}

static void end_data (EcfsSftp *self)
{
    EcfsSftpReply reply = {.type = ECFS_SFTP_DATA, .id = head_id (self)};
    self->n_head = 0;
    self->data = NULL;
    self->arrived = true;
    deliver (self, reply.id, &reply);
}

/* Reads up to @size bytes. 0: none now, or broken. */
static size_t receive (EcfsSftp *self, void *to, size_t size)
{
    ssize_t n = self->transport->ops->read (self->transport, to, size);
    if (n > 0) {
        self->moved_bytes += (size_t) n;
        if (self->moved_bytes >= ECFS_PROGRESS_BYTES) {
            self->moved_bytes = 0;
            self->arrived = true;
        }
        return (size_t) n;
    }
    if (n != -EAGAIN)
        ecfs_sftp_break (self, n == -EPROTO ? EPROTO : ENOTCONN, "%s", self->transport->ops->problem (self->transport));
    return 0;
}

static size_t receive_data (EcfsSftp *self)
{
    uint8_t discarded[DISCARD_BYTES];
    EcfsSftpPart *part = self->data->part;
    bool wanted = part->to != NULL;
    size_t n = wanted ? receive (self, part->to + part->got, MIN (self->data_left, RECEIVE_BYTES))
                      : receive (self, discarded, MIN (self->data_left, sizeof discarded));
    part->got += n;
    self->data_left -= n;
    ecfs_sftp_window_take (&self->read_window, n, n, self->rtt_us);
    if (n > 0 && wanted && part->filled != NULL)
        part->filled (self, part);
    if (n > 0 && self->data_left == 0)
        end_data (self);
    return n;
}

static size_t receive_packet (EcfsSftp *self)
{
    guint have = self->packet->len;
    g_byte_array_set_size (self->packet, (guint) self->packet_bytes);
    size_t n = receive (self, self->packet->data + have, self->packet_bytes - have);
    g_byte_array_set_size (self->packet, have + (guint) n);
    if (n > 0 && self->packet->len == self->packet_bytes)
        end_packet (self);
    return n;
}

/* One read of whatever comes next; 0: nothing now, or broken. The shortest reply has ECFS_SFTP_DATA_BYTES or more, but
 * for an empty EXTENDED_REPLY, which none of ours has. */
static size_t receive_next (EcfsSftp *self)
{
    if (self->data != NULL)
        return receive_data (self);
    if (self->n_head == sizeof self->head)
        return receive_packet (self);
    size_t n = receive (self, self->head + self->n_head, sizeof self->head - self->n_head);
    self->n_head += n;
    if (self->n_head < sizeof self->head || !begin_packet (self))
        return n;
    if (self->data == NULL && self->packet_bytes < sizeof self->head) {
        ecfs_sftp_break (self, EPROTO, "the server sends a reply that is too short");
        return 0;
    }
    if (self->data == NULL && self->packet_bytes == sizeof self->head)
        end_packet (self);
    return n;
}

bool ecfs_sftp_input (EcfsSftp *self, bool *ret_any)
{
    *ret_any = false;
    for (unsigned i = 0; i < READS_PER_TURN && self->broken == NULL; i++) {
        if (receive_next (self) == 0)
            break;
        *ret_any = true;
    }
    return self->broken == NULL;
}

void ecfs_sftp_check_overtaken (EcfsSftp *self)
{
    GHashTableIter iter;
    gpointer value;
    int64_t now_us = ecfs_now_us (), patience_us = ecfs_slot_stall_timeout_us (self->slot);
    int64_t since_us = now_us - self->looked_us;
    if (since_us < MIN (ECFS_SFTP_LOOK_US, patience_us))
        return;
    bool overslept =
        since_us > OVERSLEPT_LOOKS * ECFS_SFTP_LOOK_US; /* what it waits for may be here, and not read yet */
    self->looked_us = now_us;
    g_hash_table_iter_init (&iter, self->pending);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        EcfsSftpPending *pending = value;
        if (pending->asked_us >= self->answered_us)
            continue;
        if (pending->overtaken_us == 0 || overslept)
            pending->overtaken_us = now_us;
        else if (now_us - pending->overtaken_us > patience_us)
            ecfs_sftp_break (self, ETIMEDOUT, "leaves a request unanswered, and answers others");
    }
}

/* Blocking, while connecting */

static bool wait_for_more (EcfsSftp *self, const EcfsSshWait *wait, GError **error)
{
    short events;
    if (self->transport->ops->flush (self->transport) != 0)
        return ecfs_fail (error, ENOTCONN, "%s", self->transport->ops->problem (self->transport));
    int fd = self->transport->ops->poll (self->transport, &events);
    return ecfs_ssh_wait_fd (wait, fd, events, error);
}

static bool fail_broken (EcfsSftp *self, GError **error)
{
    return ecfs_fail (error, self->broken->code, "%s", self->broken->message);
}

bool ecfs_sftp_drain (EcfsSftp *self, const EcfsSshWait *wait, GError **error)
{
    while (g_hash_table_size (self->pending) > 0) {
        bool any;
        if (!ecfs_sftp_output (self) || !ecfs_sftp_input (self, &any))
            return fail_broken (self, error);
        if (!any && !wait_for_more (self, wait, error))
            return false;
    }
    return true;
}

/* The whole VERSION packet into packet: it is the only reply without an id. */
static bool receive_version (EcfsSftp *self, const EcfsSshWait *wait, GError **error)
{
    size_t want = 4;
    while (self->packet->len < want) {
        guint have = self->packet->len;
        g_byte_array_set_size (self->packet, (guint) want);
        size_t n = receive (self, self->packet->data + have, want - have);
        g_byte_array_set_size (self->packet, have + (guint) n);
        if (self->broken != NULL)
            return fail_broken (self, error);
        if (n == 0 && !wait_for_more (self, wait, error))
            return false;
        if (want == 4 && self->packet->len == 4) {
            uint32_t size;
            memcpy (&size, self->packet->data, sizeof size);
            want += GUINT32_FROM_BE (size);
            if (want > ECFS_SFTP_MAX_PACKET)
                break;
        }
    }
    return true;
}

bool ecfs_sftp_greet (EcfsSftp *self, const EcfsSshWait *wait, GError **error)
{
    ecfs_sftp_put_init (self->out);
    if (!ecfs_sftp_output (self))
        return fail_broken (self, error);
    if (!receive_version (self, wait, error))
        return false;
    if (ecfs_sftp_parse_version (self->packet->data, self->packet->len, &self->extensions) != 0)
        return ecfs_fail (error, EPROTO, "the server does not speak SFTP 3 (does its login shell print something?)");
    return true;
}

/* Windows */

static size_t window_for (double rate, int64_t rtt_us, size_t least)
{
    return (size_t) CLAMP (1.5 * rate * (double) (rtt_us + TURN_US) / 1e6, (double) least, WINDOW_MAX);
}

void ecfs_sftp_window_start (EcfsSftp *self)
{
    self->read_window.least = READ_WINDOW_MIN;
    self->write_window.least = WRITE_WINDOW_MIN;
    self->read_window.limit = window_for (FIRST_RATE, self->rtt_us, READ_WINDOW_MIN);
    self->write_window.limit = window_for (FIRST_RATE, self->rtt_us, WRITE_WINDOW_MIN);
}

bool ecfs_sftp_window_room (EcfsSftpWindow *window, size_t size)
{
    if (window->outstanding == 0 || window->outstanding + size <= window->limit)
        return true;
    window->full = true;
    return false;
}

void ecfs_sftp_window_add (EcfsSftpWindow *window, size_t size)
{
    int64_t now_us = ecfs_now_us ();
    /* A pause begins a new measurement, but not the moment in which all has come and the next is being asked for. */
    if (window->outstanding == 0 && now_us - window->empty_us > TURN_US) {
        window->since_us = now_us;
        window->moved = 0;
        window->full = window->slack = false;
    }
    window->outstanding += size;
}

void ecfs_sftp_window_take (EcfsSftpWindow *window, size_t size, size_t moved, int64_t rtt_us)
{
    window->slack = window->slack || window->outstanding + SLACK_BYTES <= window->limit;
    window->outstanding -= size;
    window->moved += moved;
    if (moved == 0)
        return;
    int64_t now_us = ecfs_now_us ();
    if (window->outstanding == 0)
        window->empty_us = now_us;
    int64_t period_us = now_us - window->since_us;
    if (period_us < MAX (2 * rtt_us, WINDOW_PERIOD_US))
        return;
    size_t wanted = window_for ((double) window->moved * 1e6 / (double) period_us, rtt_us, window->least);
    /* Time in which there was nothing to ask for does not make a line slow: where several connections share the pieces
     * of a long line, each would else end up with too little for any. */
    if (window->full && (!window->slack || wanted > window->limit))
        window->limit = wanted;
    window->since_us = now_us;
    window->moved = 0;
    window->full = window->slack = false;
}

/* For operations */

char *ecfs_sftp_path (const EcfsSftp *self, const char *name)
{
    const char *root = self->config->root;
    if (name[0] == '\0')
        return g_strdup (root);
    return g_strconcat (root, g_str_has_suffix (root, "/") ? "" : "/", name, NULL);
}

uint32_t ecfs_sftp_status (EcfsSftp *self, const EcfsSftpReply *reply)
{
    if (reply->type == ECFS_SFTP_STATUS)
        return reply->status;
    ecfs_sftp_break (self, EPROTO, "the server answers with a packet of the wrong type %u", reply->type);
    return ECFS_SFTP_FAILURE;
}

GError *ecfs_sftp_error (const EcfsSftpReply *reply, EcfsSftpOperation operation, const char *name)
{
    bool says_failure = reply->type != ECFS_SFTP_STATUS || reply->status == ECFS_SFTP_OK;
    int code = says_failure ? EPROTO : ecfs_sftp_errno (reply->status, operation);
    if (code == EBADMSG)
        return g_error_new (ECFS_ERROR, code, "%s: ends before the range that was asked for", name);
    if (reply->type != ECFS_SFTP_STATUS || reply->text == NULL || reply->text_bytes == 0)
        return g_error_new (ECFS_ERROR, code, "%s: %s", name, g_strerror (code));
    g_autofree char *text = g_strndup (reply->text, reply->text_bytes);
    g_autofree char *words = ecfs_text_clean (text, STATUS_WORDS_MAX);
    const char *remedy = code == EACCES ? "; check the owner and mode of it there" : "";
    return g_error_new (ECFS_ERROR, code, "%s: %s (the server says: %s)%s", name, g_strerror (code), words, remedy);
}

void ecfs_sftp_op_begin (EcfsSftp *self, EcfsSftpOp *op, EcfsStream *request)
{
    op->request = request;
    op->link.data = op;
    request->driver_data = op;
    g_queue_push_tail_link (&self->ops, &op->link);
}

void ecfs_sftp_op_finish (EcfsSftp *self, EcfsSftpOp *op, uint64_t value, GError *error)
{
    EcfsStream *request = g_steal_pointer (&op->request);
    if (request == NULL) {
        g_clear_error (&error);
        return;
    }
    request->driver_data = NULL;
    ecfs_request_finish (request, value, error);
}

void ecfs_sftp_op_settle (EcfsSftp *self, EcfsSftpOp *op)
{
    if (op->n_pending == 0 && self->payload_op != op && op->request != NULL && op->idle != NULL)
        op->idle (self, op);
    if (op->request != NULL || op->stays || op->n_pending > 0 || self->payload_op == op)
        return;
    g_queue_unlink (&self->ops, &op->link);
    op->free (self, op);
}
