#include "sftp_model.h"

#include "endpoint/sftp/sftp_priv.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define N_LOGS    2
#define FILE_MAX  (64 * 1024) /* bytes of one log at most */
#define PATIENCE  (20 * G_USEC_PER_SEC)
#define MODE_BITS 7u

extern const EcfsDriver ecfs_driver_sftp;

/* How the server is made; the first byte of the script. */
enum {
    OFFERS_FSTATVFS = 1,  /* as those do that serve one request after the other */
    SERVES_ANY = 2,       /* it serves them in any order */
    ANSWERS_IN_ORDER = 4, /* but answers in theirs */
};

typedef struct Run Run;

typedef struct Log {
    Run *run;
    EcfsStream *stream;
    /* the slot's thread */
    uint8_t *lent; /* of FILE_MAX bytes */
    uint64_t pulled, released, acknowledged;
    bool waits; /* it answered LATER */
    bool ended; /* it answered END */
    /* of the server */
    bool opened, closed;
    uint8_t *kept; /* 1 for each byte that was written */
    uint64_t size;
    uint64_t durable;
    /* guarded by the run's lock */
    bool done;
    int code;
} Log;

struct Run {
    const uint8_t *script;
    size_t size, at;
    unsigned mode;
    unsigned n_connections;
    Log logs[N_LOGS];
    EcfsMutex lock;
    EcfsCond cond;
};

/* A request that the server has. */
typedef struct Request {
    uint8_t type;
    uint32_t id;
    Log *log; /* NULL: of none */
    uint64_t offset;
    uint32_t n_bytes;
    bool is_fsync, is_statvfs;
    bool served;
    GByteArray *reply; /* once it is served */
} Request;

typedef struct Model {
    EcfsSshTransport base;
    int fd;          /* on which nothing ever comes: there is no silence in which the driver could wait */
    GByteArray *in;  /* from the driver */
    GByteArray *out; /* to it */
    size_t out_at;
    GQueue held; /* of Request, in order */
    bool broken;
} Model;

static Run *run; /* the one under way */

/* The next byte of the script; behind its end all goes well. */
static unsigned draw (void)
{
    return run->at < run->size ? run->script[run->at++] : 0;
}

static void rule (bool kept, const char *what)
{
    if (!kept)
        g_error ("broken rule: %s", what);
}

/* Bytes */

static uint32_t get_u32 (const uint8_t *at)
{
    uint32_t big;
    memcpy (&big, at, sizeof big);
    return GUINT32_FROM_BE (big);
}

static uint64_t get_u64 (const uint8_t *at)
{
    return (uint64_t) get_u32 (at) << 32 | get_u32 (at + 4);
}

static void put_u32 (GByteArray *to, uint32_t value)
{
    uint32_t big = GUINT32_TO_BE (value);
    g_byte_array_append (to, (const uint8_t *) &big, sizeof big);
}

static void put_reply (Request *request, uint8_t type, const uint32_t *words, size_t n_words)
{
    request->reply = g_byte_array_new ();
    put_u32 (request->reply, (uint32_t) (5 + 4 * n_words));
    g_byte_array_append (request->reply, &type, 1);
    put_u32 (request->reply, request->id);
    for (size_t i = 0; i < n_words; i++)
        put_u32 (request->reply, words[i]);
}

static void put_status (Request *request, uint32_t status)
{
    const uint32_t words[] = {status, 0, 0};
    put_reply (request, ECFS_SFTP_STATUS, words, G_N_ELEMENTS (words));
}

/* An answer to what was not asked. */
static void put_nonsense (Request *request)
{
    request->id += 1000000;
    put_status (request, ECFS_SFTP_OK);
}

/* What the server does */

static uint64_t kept_prefix (const Log *log)
{
    uint64_t n = 0;
    while (n < log->size && log->kept[n] != 0)
        n++;
    return n;
}

static void serve_write (Request *request)
{
    Log *log = request->log;
    memset (log->kept + request->offset, 1, request->n_bytes);
    log->size = MAX (log->size, request->offset + request->n_bytes);
    put_status (request, ECFS_SFTP_OK);
}

static void serve_stat (Request *request, bool less)
{
    const Log *log = request->log;
    uint64_t size = log == NULL ? 0 : less ? log->size / 2 : log->size;
    const uint32_t words[] = {1, 0, (uint32_t) size};
    if (log == NULL || !log->opened)
        put_status (request, ECFS_SFTP_NO_SUCH_FILE);
    else
        put_reply (request, ECFS_SFTP_ATTRS, words, G_N_ELEMENTS (words));
}

static void serve_well (Request *request, bool less)
{
    const uint32_t handle[] = {4, request->log == &run->logs[0] ? 0 : 1};
    static const uint32_t space[22];
    if (request->type == ECFS_SFTP_OPEN) {
        request->log->opened = true;
        put_reply (request, ECFS_SFTP_HANDLE, handle, G_N_ELEMENTS (handle));
    } else if (request->type == ECFS_SFTP_WRITE) {
        serve_write (request);
    } else if (request->type == ECFS_SFTP_STAT) {
        serve_stat (request, less);
    } else if (request->is_statvfs) {
        put_reply (request, ECFS_SFTP_EXTENDED_REPLY, space, G_N_ELEMENTS (space));
    } else {
        if (request->is_fsync)
            request->log->durable = MAX (request->log->durable, kept_prefix (request->log));
        if (request->type == ECFS_SFTP_CLOSE)
            request->log->closed = true;
        put_status (request, ECFS_SFTP_OK);
    }
}

static void serve (Model *self, Request *request)
{
    unsigned how = draw ();
    request->served = true;
    if (how < 200)
        serve_well (request, how >= 190);
    else if (how < 215)
        put_status (request, ECFS_SFTP_FAILURE);
    else if (how < 225)
        put_status (request, ECFS_SFTP_NO_SUCH_FILE);
    else if (how < 235)
        put_status (request, ECFS_SFTP_PERMISSION_DENIED);
    else if (how < 240)
        put_status (request, ECFS_SFTP_OP_UNSUPPORTED);
    else if (how < 246)
        put_reply (request, ECFS_SFTP_NAME, (const uint32_t[]){0}, 1);
    else if (how < 250)
        put_nonsense (request);
    else
        self->broken = true;
    if (request->reply == NULL)
        request->reply = g_byte_array_new ();
}

static void request_free (Request *request)
{
    if (request->reply != NULL)
        g_byte_array_unref (request->reply);
    g_free (request);
}

/* Serves one of the requests, and answers all that may be answered. */
static void turn (Model *self)
{
    unsigned n = self->held.length, which = (run->mode & SERVES_ANY) != 0 ? draw () % n : 0;
    Request *request;
    while ((request = g_queue_peek_nth (&self->held, which))->served)
        which = (which + 1) % n;
    serve (self, request);
    bool in_order = (run->mode & ANSWERS_IN_ORDER) != 0;
    if (!in_order)
        g_queue_push_head (&self->held, g_queue_pop_nth (&self->held, which));
    while ((request = g_queue_peek_head (&self->held)) != NULL && request->served) {
        (void) g_queue_pop_head (&self->held);
        g_byte_array_append (self->out, request->reply->data, request->reply->len);
        request_free (request);
    }
}

/* What it is asked */

/* The log that a path ends with, or a handle is of. */
static Log *log_of (const uint8_t *bytes, size_t size, bool is_handle)
{
    unsigned index = is_handle ? bytes[size - 1] : (unsigned) bytes[size - 1] - 'a';
    bool is_log = is_handle || (size > 5 && memcmp (bytes + size - 5, "log-", 4) == 0);
    return is_log && index < N_LOGS ? &run->logs[index] : NULL;
}

static void take_write (Request *request, const uint8_t *rest)
{
    request->offset = get_u64 (rest);
    request->n_bytes = get_u32 (rest + 8);
    Log *log = request->log;
    rule (request->offset + request->n_bytes <= log->pulled, "nothing is written that was not pulled");
    rule (!log->closed, "nothing is written to a log that was closed");
    for (uint32_t i = 0; i < request->n_bytes; i++)
        rule (rest[12 + i] == (uint8_t) (request->offset + i), "bytes are written where they belong");
}

static Request *take_packet (const uint8_t *packet)
{
    Request *request = g_new0 (Request, 1);
    request->type = packet[4];
    request->id = get_u32 (packet + 5);
    size_t size = get_u32 (packet + 9);
    const uint8_t *text = packet + 13;
    bool is_handle = request->type == ECFS_SFTP_WRITE || request->type == ECFS_SFTP_CLOSE;
    if (request->type == ECFS_SFTP_EXTENDED) {
        request->is_fsync = text[0] == 'f';
        request->is_statvfs = text[0] == 's';
        const uint8_t *second = text + size;
        size = get_u32 (second);
        text = second + 4;
        is_handle = request->is_fsync;
    }
    request->log = log_of (text, size, is_handle);
    if (request->type == ECFS_SFTP_WRITE)
        take_write (request, text + size);
    return request;
}

static ssize_t model_write (EcfsSshTransport *base, const void *from, size_t size)
{
    Model *self = (Model *) base;
    size_t n = draw () % 8 == 7 ? (size + 1) / 2 : size; /* a line that is full now and then */
    g_byte_array_append (self->in, from, (guint) n);
    while (self->in->len >= 4 && self->in->len >= get_u32 (self->in->data) + 4) {
        g_queue_push_tail (&self->held, take_packet (self->in->data));
        g_byte_array_remove_range (self->in, 0, get_u32 (self->in->data) + 4);
    }
    return (ssize_t) n;
}

/* Sources that wait go on when nothing else does. */
static bool wake_one (void)
{
    for (unsigned i = 0; i < N_LOGS; i++) {
        Log *log = &run->logs[i];
        if (!log->waits)
            continue;
        log->waits = false;
        if (draw () % 32 == 31)
            ecfs_stream_cancel (log->stream);
        ecfs_stream_wake (log->stream);
        return true;
    }
    return false;
}

static ssize_t model_read (EcfsSshTransport *base, void *to, size_t size)
{
    Model *self = (Model *) base;
    if (self->out_at == self->out->len && self->held.length > 0) {
        if (draw () % 4 == 3 && wake_one ()) /* more is appended before that is answered */
            return -EAGAIN;
        turn (self);
    }
    size_t n = MIN (size, self->out->len - self->out_at);
    if (n == 0 && self->broken)
        return 0;
    if (n == 0) {
        if (self->held.length == 0)
            (void) wake_one (); /* if there is none, all have ended */
        return -EAGAIN;
    }
    memcpy (to, self->out->data + self->out_at, n);
    self->out_at += n;
    return (ssize_t) n;
}

static int model_flush (EcfsSshTransport *base)
{
    return 0;
}

static int model_poll (EcfsSshTransport *base, short *ret_events)
{
    const Model *self = (const Model *) base;
    bool more = self->held.length > 0 || self->out_at < self->out->len || self->broken;
    *ret_events = more ? 0 : POLLIN;
    return self->fd;
}

static const char *model_problem (EcfsSshTransport *base)
{
    return "the line broke";
}

static void model_free (EcfsSshTransport *base)
{
    Model *self = (Model *) base;
    g_queue_clear_full (&self->held, (GDestroyNotify) request_free);
    g_byte_array_unref (self->in);
    g_byte_array_unref (self->out);
    close (self->fd);
    g_free (self);
}

static const EcfsSshTransportOps ops = {
    .name = "model",
    .read = model_read,
    .write = model_write,
    .flush = model_flush,
    .poll = model_poll,
    .problem = model_problem,
    .free = model_free,
};

/* The driver: sftp:// over that */

static void *new_config (const EcfsEndpointSpec *spec, GError **error)
{
    return ecfs_driver_sftp.new_config (spec, error);
}

static void *model_connect (EcfsSlot *slot, bool make_root, GError **error)
{
    ecfs_mutex_lock (&run->lock); /* until both logs are begun, and all know their streams */
    ecfs_mutex_unlock (&run->lock);
    Model *model = g_new0 (Model, 1);
    model->base.ops = &ops;
    model->fd = eventfd (0, EFD_CLOEXEC | EFD_NONBLOCK);
    model->in = g_byte_array_new ();
    model->out = g_byte_array_new ();
    g_queue_init (&model->held);
    EcfsSftp *self = g_new0 (EcfsSftp, 1);
    self->slot = slot;
    self->config = ecfs_slot_config (slot);
    self->transport = &model->base;
    ecfs_sftp_engine_init (self);
    self->extensions = ECFS_SFTP_HAS_FSYNC | ECFS_SFTP_HAS_STATVFS;
    self->read_bytes = self->write_bytes = 4096;
    self->serial = (run->mode & OFFERS_FSTATVFS) != 0;
    self->rtt_us = 1000;
    ecfs_sftp_window_start (self);
    ecfs_slot_capabilities (slot, ECFS_CAN_LOG);
    run->n_connections++;
    return self;
}

/* The source of a log */

static EcfsPull on_pull (void *user, const uint8_t **ret_bytes, size_t *ret_size)
{
    Log *log = user;
    unsigned how = draw ();
    bool over = run->at >= run->size || log->pulled + 4096 > FILE_MAX;
    log->ended = over || how % 64 == 63;
    log->waits = !log->ended && how % 3 == 0;
    if (log->ended)
        return ECFS_PULL_END;
    if (log->waits)
        return ECFS_PULL_LATER;
    if (how % 64 == 62)
        return ECFS_PULL_ABORT;
    *ret_bytes = log->lent + log->pulled;
    *ret_size = how * 16;
    for (size_t i = 0; i < *ret_size; i++)
        log->lent[log->pulled + i] = (uint8_t) (log->pulled + i);
    log->pulled += *ret_size;
    return ECFS_PULL_BYTES;
}

static void on_release (void *user, const uint8_t *bytes, size_t size)
{
    Log *log = user;
    rule (bytes == log->lent + log->released, "bytes come back in the order of their lending");
    log->released += size;
}

static void on_progress (void *user, uint64_t acknowledged)
{
    Log *log = user;
    rule (acknowledged > log->acknowledged && acknowledged <= log->pulled, "what is durable grows");
    rule (acknowledged <= log->durable, "what is said to be durable is");
    log->acknowledged = acknowledged;
}

static void on_done (void *user, const GError *error)
{
    Log *log = user;
    rule (log->released == log->pulled, "all lent bytes come back before done");
    rule (error != NULL || (log->ended && log->acknowledged == log->pulled), "a whole log is durable");
    rule (error != NULL || log->closed, "a whole log is closed");
    log->waits = false;
    log->closed = true; /* nothing is written from now on */
    ecfs_mutex_lock (&run->lock);
    rule (!log->done, "done comes once");
    log->done = true;
    log->code = ecfs_errno (error);
    ecfs_cond_broadcast (&run->cond);
    ecfs_mutex_unlock (&run->lock);
}

static void register_once (void)
{
    static EcfsDriver driver;
    static gsize registered;
    if (!g_once_init_enter (&registered))
        return;
    driver = ecfs_driver_sftp;
    driver.scheme = "fake"; /* as long as the other, which the driver knows */
    driver.new_config = new_config;
    driver.connect = model_connect;
    ecfs_endpoint_register_for_tests (&driver);
    g_once_init_leave (&registered, 1);
}

static void begin (EcfsEndpoint *endpoint, unsigned index)
{
    Log *log = &run->logs[index];
    g_autofree char *name = g_strdup_printf ("logs/log-%c", 'a' + (int) index);
    EcfsSource source = {.pull = on_pull, .release = on_release, .progress = on_progress, .done = on_done, .user = log};
    log->stream = ecfs_endpoint_log (endpoint, name, &source);
}

static void wait_for_all (void)
{
    int64_t deadline_us = ecfs_now_us () + PATIENCE;
    ecfs_mutex_lock (&run->lock);
    for (unsigned i = 0; i < N_LOGS; i++)
        while (!run->logs[i].done)
            rule (ecfs_cond_wait_until (&run->cond, &run->lock, deadline_us), "logs end");
    ecfs_mutex_unlock (&run->lock);
}

SftpModelResult sftp_model_run (const uint8_t *script, size_t size)
{
    static const EcfsMarker nothing;
    register_once ();
    Run self = {.script = script, .size = size};
    run = &self;
    self.mode = draw () & MODE_BITS;
    if ((self.mode & (SERVES_ANY | ANSWERS_IN_ORDER)) == (SERVES_ANY | ANSWERS_IN_ORDER))
        self.mode &= ~(unsigned) OFFERS_FSTATVFS; /* nothing would show that it is another server */
    ecfs_mutex_init (&self.lock);
    ecfs_cond_init (&self.cond);
    for (unsigned i = 0; i < N_LOGS; i++) {
        self.logs[i].lent = g_malloc0 (FILE_MAX);
        self.logs[i].kept = g_malloc0 (FILE_MAX);
    }
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse ("x=fake://host/root,connections=1", NULL);
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, &nothing, NULL);
    ecfs_endpoint_start (endpoint);
    ecfs_mutex_lock (&self.lock);
    for (unsigned i = 0; i < N_LOGS; i++)
        begin (endpoint, i);
    ecfs_mutex_unlock (&self.lock);
    wait_for_all ();
    ecfs_endpoint_free (endpoint);
    SftpModelResult result = {.n_connections = self.n_connections};
    for (unsigned i = 0; i < N_LOGS; i++) {
        result.codes[i] = self.logs[i].code;
        result.durable[i] = self.logs[i].acknowledged;
        ecfs_stream_unref (self.logs[i].stream);
        g_free (self.logs[i].lent);
        g_free (self.logs[i].kept);
    }
    ecfs_cond_clear (&self.cond);
    ecfs_mutex_clear (&self.lock);
    return result;
}
