/* One request to the server and its answer, by libcurl; and the ops that are made of them. */
#include "endpoint/web/http.h"
#include "util/text.h"

#include <libxml/parser.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#define BUFFER_BYTES  (128 * 1024L)
#define UNSENT_BYTES  (128 * 1024) /* in the socket: what is not taken by the line is seen soon */
#define USELESS_BYTES (256 * 1024)
#define USELESS_US    (30 * G_USEC_PER_SEC)
#define PATIENT_US    (10 * 60 * G_USEC_PER_SEC)
#define WORDS_BYTES   (64 * 1024)
#define MAX_INTERIM   60 /* answers that another one follows; each is progress */
#define MAX_IDLE      8  /* handles that are kept; they hold buffers, and what digest authentication has learnt */
#define PEER_AGE_S    (365L * 24 * 3600)

void ecfs_http_break (EcfsHttp *self, GError *error)
{
    if (self->broken == NULL)
        self->broken = error;
    else
        g_error_free (error);
}

/* On the line, whatever it is of. */
static void note_arrived (EcfsHttp *self, size_t bytes)
{
    self->moved_bytes += bytes;
    if (self->moved_bytes < ECFS_PROGRESS_BYTES)
        return;
    self->moved_bytes = 0;
    self->arrived = true;
}

/* Of what the call is about. */
static void note_moved (EcfsHttpOp *op, size_t bytes)
{
    EcfsHttpCall *call = &op->call;
    note_arrived (op->http, bytes);
    call->moved_bytes += bytes;
    if (call->moved_bytes < ECFS_PROGRESS_BYTES)
        return;
    call->moved_bytes = 0;
    call->moved_us = ecfs_now_us ();
}

/* The first line of an answer. */
static void note_answered (EcfsHttpOp *op)
{
    EcfsHttpCall *call = &op->call;
    call->moved_bytes = 0;
    if (call->n_answers++ >= MAX_INTERIM)
        return;
    op->http->arrived = true;
    call->moved_us = ecfs_now_us ();
}

/* The words of a failure, and what comes with a success that has nothing to say: read so that the connection can be
 * kept, but not for ever. */
static bool is_useless (const EcfsHttpOp *op)
{
    return op->take == NULL || op->call.status < 200 || op->call.status >= 300;
}

static size_t on_body (char *bytes, size_t one, size_t size, void *user)
{
    EcfsHttpOp *op = user;
    (void) one;
    if (op->call.status == 0)
        (void) curl_easy_getinfo (op->call.easy, CURLINFO_RESPONSE_CODE, &op->call.status);
    bool working = op->call.patient && ecfs_http_good (op->call.status);
    note_moved (op, working ? ECFS_PROGRESS_BYTES : size);
    if (is_useless (op)) {
        if (op->call.words != NULL)
            g_string_append_len (op->call.words, bytes, (gssize) MIN (size, WORDS_BYTES - op->call.words->len));
        op->call.useless_bytes += size;
        op->call.cut = op->call.useless_bytes > USELESS_BYTES ||
                       ecfs_now_us () - op->call.began_us > (working ? PATIENT_US : USELESS_US);
        return op->call.cut ? 0 : size;
    }
    return op->take == NULL || op->take (op, (const uint8_t *) bytes, size) ? size : 0;
}

static size_t on_supply (char *to, size_t one, size_t size, void *user)
{
    EcfsHttpOp *op = user;
    size_t n = op->supply (op, to, one * size);
    if (n == CURL_READFUNC_PAUSE && !op->call.paused) {
        op->call.paused = true;
        op->http->n_calls--;
    } else if (n != CURL_READFUNC_PAUSE) {
        op->call.sent |= n == 0;
        note_moved (op, op->call.sent ? ECFS_PROGRESS_BYTES : n);
    }
    return n;
}

/* Asked for when an authentication round trip comes between, or a connection that was kept turns out to be dead. */
static int on_rewind (void *user, curl_off_t offset, int origin)
{
    EcfsHttpOp *op = user;
    if (op->rewind == NULL || offset != 0 || origin != SEEK_SET)
        return CURL_SEEKFUNC_FAIL;
    op->rewind (op);
    op->call.sent = false;
    return CURL_SEEKFUNC_OK;
}

/* The value of the header @name in @line, cleaned, for it may be printed; g_free (). NULL: it is another one. */
static char *value_of (const char *line, size_t size, const char *name)
{
    size_t length = strlen (name);
    if (size <= length || g_ascii_strncasecmp (line, name, length) != 0 || line[length] != ':')
        return NULL;
    g_autofree char *value = g_strstrip (g_strndup (line + length + 1, size - length - 1));
    return ecfs_text_clean (value, ECFS_WORDS_MAX);
}

static void take_value (char **to, const char *line, size_t size, const char *name)
{
    char *value = value_of (line, size, name);
    if (value == NULL)
        return;
    g_free (*to);
    *to = value;
}

static void forget_answer (EcfsHttpCall *call)
{
    g_clear_pointer (&call->content_range, g_free);
    g_clear_pointer (&call->location, g_free);
    g_clear_pointer (&call->dav, g_free);
    g_clear_pointer (&call->server, g_free);
    g_clear_pointer (&call->date, g_free);
    g_clear_pointer (&call->etag, g_free);
    g_clear_pointer (&call->region, g_free);
    g_clear_pointer (&call->upload, g_free);
    g_clear_pointer (&call->lock, g_free);
    g_clear_pointer (&call->until, g_free);
    if (call->words != NULL)
        g_string_truncate (call->words, 0);
    call->encoded = false;
    call->status = 0;
}

static size_t on_header (char *line, size_t one, size_t size, void *user)
{
    EcfsHttpOp *op = user;
    EcfsHttpCall *call = &op->call;
    (void) one;
    note_arrived (op->http, size);
    if (size > 5 && strncmp (line, "HTTP/", 5) == 0) { /* of an interim answer, or the one after it */
        note_answered (op);
        forget_answer (call);
        return size;
    }
    g_autofree char *encoding = value_of (line, size, "content-encoding");
    if (encoding != NULL && g_ascii_strcasecmp (encoding, "identity") != 0)
        call->encoded = true;
    take_value (&call->content_range, line, size, "content-range");
    take_value (&call->location, line, size, "location");
    take_value (&call->dav, line, size, "dav");
    take_value (&call->server, line, size, "server");
    take_value (&call->date, line, size, "date");
    take_value (&call->etag, line, size, "etag");
    take_value (&call->region, line, size, "x-amz-bucket-region");
    take_value (&call->upload, line, size, "x-amz-meta-ecfs-upload");
    take_value (&call->lock, line, size, "x-amz-object-lock-mode");
    take_value (&call->until, line, size, "x-amz-object-lock-retain-until-date");
    return size;
}

/* No program that we start keeps a connection open. */
static curl_socket_t on_open (void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    EcfsHttp *self = user;
    (void) purpose;
    if (self->peer != NULL && self->is_opened) /* whoever has that name now is another */
        return CURL_SOCKET_BAD;
    self->is_opened = true;
    return socket (address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static int on_socket (void *user, curl_socket_t socket, curlsocktype purpose)
{
    int unsent = UNSENT_BYTES;
    (void) user, (void) purpose;
    /* Without it a slow line looks like one that stands still for longer. */
    (void) setsockopt (socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    return CURL_SOCKOPT_OK;
}

/* All calls go over one connection to somebody on this machine. */
static void use_peer (EcfsHttp *self, CURL *easy)
{
    (void) curl_easy_setopt (easy, CURLOPT_ABSTRACT_UNIX_SOCKET, self->peer);
    (void) curl_easy_setopt (easy, CURLOPT_PROXY, "");
    (void) curl_easy_setopt (easy, CURLOPT_TCP_KEEPALIVE, 0L);
    (void) curl_easy_setopt (easy, CURLOPT_PIPEWAIT, 1L);
    (void) curl_easy_setopt (easy, CURLOPT_MAXAGE_CONN, PEER_AGE_S); /* there is no second one */
    (void) curl_multi_setopt (self->multi, CURLMOPT_MAX_HOST_CONNECTIONS, 1L);
}

static CURL *make_easy (EcfsHttp *self)
{
    CURL *easy = curl_easy_init ();
    if (easy == NULL)
        g_error ("out of memory");
    (void) curl_easy_setopt (easy, CURLOPT_NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075500
    (void) curl_easy_setopt (easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    (void) curl_easy_setopt (easy, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
    (void) curl_easy_setopt (easy, CURLOPT_QUICK_EXIT, 1L); /* a name server that hangs would hold us */
#endif
    (void) curl_easy_setopt (easy, CURLOPT_FOLLOWLOCATION, 0L);
    (void) curl_easy_setopt (easy, CURLOPT_SSL_VERIFYPEER, 1L);
    (void) curl_easy_setopt (easy, CURLOPT_SSL_VERIFYHOST, 2L);
    (void) curl_easy_setopt (easy, CURLOPT_PATH_AS_IS, 1L);
    (void) curl_easy_setopt (easy, CURLOPT_USERAGENT, "ecfs");
    (void) curl_easy_setopt (easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    (void) curl_easy_setopt (easy, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
    (void) curl_easy_setopt (easy, CURLOPT_TCP_KEEPALIVE, 1L);
    (void) curl_easy_setopt (easy, CURLOPT_CONNECTTIMEOUT_MS,
                             (long) (ecfs_slot_connect_timeout_us (self->slot) / 1000));
    (void) curl_easy_setopt (easy, CURLOPT_HTTP_VERSION,
                             self->config->http2 ? (long) CURL_HTTP_VERSION_2TLS : (long) CURL_HTTP_VERSION_1_1);
    (void) curl_easy_setopt (easy, CURLOPT_PIPEWAIT, self->config->http2 ? 1L : 0L);
    (void) curl_easy_setopt (easy, CURLOPT_OPENSOCKETFUNCTION, on_open);
    (void) curl_easy_setopt (easy, CURLOPT_OPENSOCKETDATA, self);
    (void) curl_easy_setopt (easy, CURLOPT_SOCKOPTFUNCTION, on_socket);
    (void) curl_easy_setopt (easy, CURLOPT_WRITEFUNCTION, on_body);
    (void) curl_easy_setopt (easy, CURLOPT_HEADERFUNCTION, on_header);
    (void) curl_easy_setopt (easy, CURLOPT_READFUNCTION, on_supply);
    (void) curl_easy_setopt (easy, CURLOPT_SEEKFUNCTION, on_rewind);
    if (self->peer != NULL)
        use_peer (self, easy);
    return easy;
}

static CURL *take_easy (EcfsHttp *self)
{
    if (self->easies->len > 0)
        return g_ptr_array_steal_index (self->easies, self->easies->len - 1);
    return make_easy (self);
}

char *ecfs_http_url (const EcfsHttp *self, const char *name, bool directory)
{
    const EcfsHttpConfig *config = self->config;
    return g_strconcat (config->base, config->root, "/", name, directory && *name != '\0' ? "/" : "", NULL);
}

static char *url_of (const EcfsHttp *self, const EcfsHttpAsk *ask)
{
    g_autofree char *url = ask->path != NULL ? g_strconcat (self->config->base, ask->path, NULL)
                                             : ecfs_http_url (self, ask->name, ask->directory);
    return ask->query == NULL ? g_steal_pointer (&url) : g_strconcat (url, "?", ask->query, NULL);
}

struct curl_slist *ecfs_http_add_header (struct curl_slist *list, const char *format, ...)
{
    va_list args;
    va_start (args, format);
    g_autofree char *line = g_strdup_vprintf (format, args);
    va_end (args);
    struct curl_slist *longer = curl_slist_append (list, line);
    if (longer == NULL)
        g_error ("out of memory");
    return longer;
}

/* Options of one call; each is set again, as the handle is used for all kinds. */
static void set_kind (CURL *easy, const EcfsHttpAsk *ask)
{
    (void) curl_easy_setopt (easy, CURLOPT_NOBODY, 0L);
    (void) curl_easy_setopt (easy, CURLOPT_POSTFIELDS, NULL);
    (void) curl_easy_setopt (easy, CURLOPT_HTTPGET, 1L);
    (void) curl_easy_setopt (easy, CURLOPT_UPLOAD, ask->upload ? 1L : 0L);
    (void) curl_easy_setopt (easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t) (ask->upload ? ask->upload_bytes : -1));
    if (ask->body != NULL) {
        (void) curl_easy_setopt (easy, CURLOPT_POSTFIELDSIZE, (long) strlen (ask->body));
        (void) curl_easy_setopt (easy, CURLOPT_POSTFIELDS, ask->body);
    }
    bool head = strcmp (ask->method, "HEAD") == 0;
    bool own = head || strcmp (ask->method, ask->upload ? "PUT" : "GET") == 0;
    if (head)
        (void) curl_easy_setopt (easy, CURLOPT_NOBODY, 1L);
    (void) curl_easy_setopt (easy, CURLOPT_CUSTOMREQUEST, own ? NULL : ask->method);
    (void) curl_easy_setopt (easy, CURLOPT_RANGE, ask->range);
}

/* Makes @call one that nothing is known of yet. */
static void start_call (EcfsHttpCall *call)
{
    forget_answer (call);
    call->problem[0] = '\0';
    call->paused = false;
    call->sent = call->patient; /* what it works at is there */
    call->cut = false;
    call->useless_bytes = call->moved_bytes = 0;
    call->n_answers = 0;
    call->again_us = 0;
    call->moved_us = call->began_us = ecfs_now_us ();
}

/* The first call knows that the peer speaks HTTP/2. libcurl 7.88 would begin to speak it anew with each of the others
 * if they said that they know; they meet a connection that does. */
static void set_version (EcfsHttp *self, CURL *easy)
{
    if (self->peer == NULL)
        return;
    (void) curl_easy_setopt (easy, CURLOPT_HTTP_VERSION,
                             self->met ? (long) CURL_HTTP_VERSION_2_0 : (long) CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
    self->met = true;
}

void ecfs_http_ask (EcfsHttpOp *op, const EcfsHttpAsk *ask)
{
    EcfsHttp *self = op->http;
    EcfsHttpCall *call = &op->call;
    g_assert (call->easy == NULL);
    CURL *easy = take_easy (self);
    g_autofree char *url = url_of (self, ask);
    GError *error = NULL;
    call->patient = ask->patient;
    call->awaited = ask->awaited;
    start_call (call);
    if (self->dialect->keeps_words && call->words == NULL)
        call->words = g_string_new (NULL);
    call->easy = easy;
    call->method = ask->method;
    g_free (call->name);
    call->name = g_strdup (ask->path == NULL ? ask->name : NULL);
    call->n_repeats = 0;
    call->headers = self->dialect->headers (op, ask, &error);
    if (error != NULL)
        ecfs_http_break (self, g_steal_pointer (&error));
    op->take = ask->take;
    op->supply = ask->supply;
    op->rewind = ask->rewind;
    op->done = ask->done;
    set_kind (easy, ask);
    set_version (self, easy);
    (void) curl_easy_setopt (easy, CURLOPT_URL, url);
    (void) curl_easy_setopt (easy, CURLOPT_HTTPHEADER, call->headers);
    (void) curl_easy_setopt (easy, CURLOPT_ERRORBUFFER, call->problem);
    (void) curl_easy_setopt (easy, CURLOPT_PRIVATE, op);
    (void) curl_easy_setopt (easy, CURLOPT_WRITEDATA, op);
    (void) curl_easy_setopt (easy, CURLOPT_HEADERDATA, op);
    (void) curl_easy_setopt (easy, CURLOPT_READDATA, op);
    (void) curl_easy_setopt (easy, CURLOPT_SEEKDATA, op);
    if (!ecfs_http_auth_apply (self, easy, &error))
        ecfs_http_break (self, error);
    self->n_calls++;
    ecfs_slot_count_sent (self->slot);
    (void) curl_multi_add_handle (self->multi, easy);
}

/* The same again in @pause_us: libcurl has kept it. */
static void postpone (EcfsHttpOp *op, int64_t pause_us)
{
    EcfsHttp *self = op->http;
    (void) curl_multi_remove_handle (self->multi, op->call.easy);
    self->n_calls -= op->call.paused ? 0 : 1;
    op->call.paused = false;
    op->call.again_us = ecfs_now_us () + pause_us;
    self->n_waiting++;
    op->call.n_repeats++;
}

static void repeat_due (EcfsHttp *self)
{
    int64_t now_us = ecfs_now_us ();
    for (GList *at = self->ops.head; at != NULL; at = at->next) {
        EcfsHttpOp *op = at->data;
        if (op->call.again_us == 0 || op->call.again_us > now_us)
            continue;
        start_call (&op->call);
        if (op->rewind != NULL)
            op->rewind (op);
        self->n_waiting--;
        self->n_calls++;
        ecfs_slot_count_sent (self->slot);
        (void) curl_multi_add_handle (self->multi, op->call.easy);
    }
}

int64_t ecfs_http_next_us (const EcfsHttp *self)
{
    int64_t next_us = 0;
    for (const GList *at = self->ops.head; at != NULL; at = at->next) {
        const EcfsHttpOp *op = at->data;
        if (op->call.again_us != 0 && (next_us == 0 || op->call.again_us < next_us))
            next_us = op->call.again_us;
    }
    return next_us;
}

void ecfs_http_hang_up (EcfsHttpOp *op)
{
    EcfsHttp *self = op->http;
    EcfsHttpCall *call = &op->call;
    if (call->easy == NULL)
        return;
    CURL *easy = g_steal_pointer (&call->easy);
    (void) curl_multi_remove_handle (self->multi, easy);
    (void) curl_easy_setopt (easy, CURLOPT_HTTPHEADER, NULL);
    (void) curl_easy_setopt (easy, CURLOPT_POSTFIELDS, NULL);
    (void) curl_easy_setopt (easy, CURLOPT_ERRORBUFFER, NULL);
    curl_slist_free_all (g_steal_pointer (&call->headers));
    if (!call->paused && call->again_us == 0)
        self->n_calls--;
    if (call->again_us != 0)
        self->n_waiting--;
    call->paused = false;
    call->again_us = 0;
    if (self->easies->len < MAX_IDLE)
        g_ptr_array_add (self->easies, easy);
    else
        curl_easy_cleanup (easy);
}

void ecfs_http_resume (EcfsHttpOp *op)
{
    EcfsHttpCall *call = &op->call;
    if (call->easy == NULL || !call->paused)
        return;
    call->paused = false;
    call->moved_us = ecfs_now_us ();
    op->http->n_calls++;
    (void) curl_easy_pause (call->easy, CURLPAUSE_CONT);
}

EcfsHttpOp *ecfs_http_op_new (EcfsHttp *self, EcfsStream *request, size_t size)
{
    EcfsHttpOp *op = g_malloc0 (size);
    op->http = self;
    op->request = request;
    op->link.data = op;
    if (request != NULL)
        request->driver_data = op;
    g_queue_push_tail_link (&self->ops, &op->link);
    return op;
}

void ecfs_http_op_drop (EcfsHttpOp *op)
{
    ecfs_http_hang_up (op);
    forget_answer (&op->call);
    g_free (op->call.name);
    if (op->call.words != NULL)
        g_string_free (op->call.words, TRUE);
    if (op->request != NULL)
        op->request->driver_data = NULL;
    if (op->clear != NULL)
        op->clear (op);
    if (op->http->next == &op->link)
        op->http->next = op->link.next;
    g_queue_unlink (&op->http->ops, &op->link);
    g_free (op);
}

void ecfs_http_op_end (EcfsHttpOp *op, uint64_t value, GError *error)
{
    EcfsStream *request = op->request;
    ecfs_http_op_drop (op);
    if (request != NULL)
        ecfs_request_finish (request, value, error);
    else
        g_clear_error (&error);
}

static void note_answer (EcfsHttpCall *call, CURLcode result)
{
    curl_off_t length = -1, uploaded = 0;
    long offered = 0;
    call->result = call->cut ? CURLE_OK : result; /* all that counts has come */
    (void) curl_easy_getinfo (call->easy, CURLINFO_RESPONSE_CODE, &call->status);
    (void) curl_easy_getinfo (call->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    (void) curl_easy_getinfo (call->easy, CURLINFO_SIZE_UPLOAD_T, &uploaded);
    (void) curl_easy_getinfo (call->easy, CURLINFO_HTTPAUTH_AVAIL, &offered);
    (void) curl_easy_getinfo (call->easy, CURLINFO_HTTP_VERSION, &call->version);
    (void) curl_easy_getinfo (call->easy, CURLINFO_SSL_VERIFYRESULT, &call->verified);
    call->length = length;
    call->uploaded = uploaded;
    call->offered = (unsigned long) offered;
}

/* Whether a failure is of one call, and says nothing about the connection: our own callbacks end calls, and know why;
 * what was sent cannot be sent again; a server had no patience with a write that waits for its source; and one stream
 * of many ended too early. */
static bool is_of_one_call (const EcfsHttp *self, const EcfsHttpCall *call)
{
    if (self->peer != NULL && (call->result == CURLE_HTTP2_STREAM || call->result == CURLE_PARTIAL_FILE))
        return true;
    return call->result == CURLE_WRITE_ERROR || call->result == CURLE_ABORTED_BY_CALLBACK ||
           call->result == CURLE_SEND_FAIL_REWIND || call->paused;
}

/* An answer, or what took its place. */
static void finish_call (EcfsHttp *self, CURL *easy, CURLcode result)
{
    EcfsHttpOp *op = NULL;
    (void) curl_easy_getinfo (easy, CURLINFO_PRIVATE, (char **) &op);
    self->arrived = true;
    note_answer (&op->call, result);
    int64_t pause_us =
        self->dialect->again_us == NULL || op->call.result != CURLE_OK ? 0 : self->dialect->again_us (op);
    if (pause_us > 0) {
        postpone (op, pause_us);
        return;
    }
    if (op->call.result != CURLE_OK && !is_of_one_call (self, &op->call))
        ecfs_http_break (self, ecfs_http_problem (self, &op->call));
    void (*done) (EcfsHttp *, EcfsHttpOp *) = op->done;
    ecfs_http_hang_up (op);
    if (self->broken == NULL)
        done (self, op);
}

void ecfs_http_move (EcfsHttp *self)
{
    int n_running, n_left;
    repeat_due (self);
    CURLMcode result = curl_multi_perform (self->multi, &n_running);
    if (result != CURLM_OK)
        ecfs_http_break (self, g_error_new (ECFS_ERROR, EIO, "libcurl: %s", curl_multi_strerror (result)));
    CURLMsg *message;
    while (self->broken == NULL && (message = curl_multi_info_read (self->multi, &n_left)) != NULL)
        if (message->msg == CURLMSG_DONE)
            finish_call (self, message->easy_handle, message->data.result);
}

static CURLcode start_result;

static void start_library (void)
{
    start_result = curl_global_init (CURL_GLOBAL_DEFAULT);
    xmlInitParser ();
}

bool ecfs_http_init (EcfsHttp *self, EcfsSlot *slot, const EcfsHttpConfig *config, const EcfsHttpDialect *dialect,
                     GError **error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void) pthread_once (&once, start_library); /* cannot fail */
    self->slot = slot;
    self->config = config;
    self->dialect = dialect;
    self->auth = CURLAUTH_NONE;
    self->easies = g_ptr_array_new_with_free_func (curl_easy_cleanup);
    g_queue_init (&self->ops);
    if (start_result != CURLE_OK)
        return ecfs_fail (error, EIO, "libcurl does not start: error %d", (int) start_result);
    self->multi = curl_multi_init ();
    return self->multi != NULL || ecfs_fail (error, EIO, "libcurl has no memory or descriptor left for a connection");
}

void ecfs_http_clear (EcfsHttp *self)
{
    while (self->ops.head != NULL)
        ecfs_http_op_drop (self->ops.head->data);
    g_ptr_array_unref (self->easies);
    (void) curl_multi_cleanup (self->multi);
    ecfs_http_auth_clear (self);
    g_free (self->peer);
    g_clear_error (&self->broken);
}
