/* Asking one peer, by libcurl; a build without it has no peers. */
#include "peer/peer_priv.h"

#ifdef ECFS_WITH_LIBCURL

#include <curl/curl.h>
#include <string.h>

#define CONNECT_MS    3000L
#define MOST_HEADERS  4096 /* bytes */
#define MOST_IDLE     4    /* at each peer */
#define CONNECTIONS   1L
#define RATE_AFTER_US 100000

/* One peer. */
typedef struct Line {
    GPtrArray *idle; /* of CURL, each with its connection there; guarded by the client's lock */
    CURLSH *share;   /* TLS sessions: a second connection goes on with what the first has shown; NULL: without */
    EcfsMutex sharing;
} Line;

struct EcfsPeerClient {
    EcfsMutex lock;
    GHashTable *lines;                /* URL → Line; guarded by lock */
    const EcfsPeerIdentity *identity; /* immutable */
};

typedef struct Call {
    EcfsPeerLook *look;
    bool wants_cell; /* else a body is text */
    const atomic_bool *stopped;
    EcfsPeerAnswer *answer;
    CURL *easy;
    uint64_t expected; /* of the body */
    unsigned range;    /* the next byte of the body is of this one, … */
    size_t filled;     /* … which has so many */
    size_t header_bytes;
    int64_t moved_us;
    int64_t silent_us; /* it may be since then, at most */
    int64_t body_us;   /* when it began; 0: it has not */
} Call;

/* libcurl asks for one lock at a time, of one kind of data. */
ECFS_TSA (no_thread_safety_analysis)
static void on_lock (CURL *easy, curl_lock_data data, curl_lock_access access, void *user)
{
    Line *self = user;
    (void) easy, (void) data, (void) access;
    ecfs_mutex_lock (&self->sharing);
}

ECFS_TSA (no_thread_safety_analysis)
static void on_unlock (CURL *easy, curl_lock_data data, void *user)
{
    Line *self = user;
    (void) easy, (void) data;
    ecfs_mutex_unlock (&self->sharing);
}

static Line *line_new (void)
{
    Line *self = g_new0 (Line, 1);
    ecfs_mutex_init (&self->sharing);
    self->idle = g_ptr_array_new_with_free_func (curl_easy_cleanup);
    self->share = curl_share_init ();
    if (curl_share_setopt (self->share, CURLSHOPT_LOCKFUNC, on_lock) == CURLSHE_OK &&
        curl_share_setopt (self->share, CURLSHOPT_UNLOCKFUNC, on_unlock) == CURLSHE_OK &&
        curl_share_setopt (self->share, CURLSHOPT_USERDATA, self) == CURLSHE_OK &&
        curl_share_setopt (self->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION) == CURLSHE_OK)
        return self;
    (void) curl_share_cleanup (self->share); /* nobody uses it */
    self->share = NULL;
    return self;
}

static void line_free (void *line)
{
    Line *self = line;
    g_ptr_array_unref (self->idle);
    (void) curl_share_cleanup (self->share); /* as above */
    ecfs_mutex_clear (&self->sharing);
    g_free (self);
}

EcfsPeerClient *ecfs_peer_client_new (const EcfsPeerIdentity *identity, GError **error)
{
    const curl_version_info_data *version = curl_version_info (CURLVERSION_NOW);
    g_autofree char *ours = g_strconcat ("OpenSSL/", OpenSSL_version (OPENSSL_VERSION_STRING), NULL);
    if (curl_global_init (CURL_GLOBAL_DEFAULT) != CURLE_OK || version->ssl_version == NULL ||
        strstr (version->ssl_version, ours) == NULL) { /* both use the same objects */
        (void) !ecfs_fail (error, ENOTSUP, "peers need a libcurl that uses the same OpenSSL as ecfs");
        return NULL;
    }
    EcfsPeerClient *self = g_new0 (EcfsPeerClient, 1);
    ecfs_mutex_init (&self->lock);
    self->lines = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, line_free);
    self->identity = identity;
    return self;
}

void ecfs_peer_client_free (EcfsPeerClient *self)
{
    if (self == NULL)
        return;
    g_hash_table_unref (self->lines);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

static size_t on_header (char *bytes, size_t one, size_t size, void *user)
{
    Call *self = user;
    g_autofree char *line = g_strstrip (g_strndup (bytes, MIN (size, 256)));
    if (self->header_bytes == 0) /* that goes on, however slowly, shows nothing any more */
        self->moved_us = ecfs_now_us ();
    self->header_bytes += size;
    if (self->header_bytes > MOST_HEADERS)
        return 0;
    if (g_ascii_strncasecmp (line, "Ecfs-From:", 10) == 0)
        (void) ecfs_uuid_parse (g_strstrip (line + 10), &self->answer->from); /* else it stays nil */
    if (g_ascii_strncasecmp (line, "Ecfs-Seeder:", 12) == 0)
        self->answer->is_seeder = true;
    if (g_ascii_strncasecmp (line, "Ecfs-Progress:", 14) == 0)
        self->answer->progress = g_ascii_strtoull (line + 14, NULL, 10);
    return size * one;
}

static bool take_text (Call *self, const char *bytes, size_t size)
{
    size_t had = strlen (self->answer->text);
    if (size >= sizeof self->answer->text - had)
        return false;
    memcpy (self->answer->text + had, bytes, size);
    self->answer->text[had + size] = '\0';
    return true;
}

/* Whether that range is what was stored. */
static bool judge (Call *self)
{
    EcfsCacheVerdict verdict = self->look->look->judge (self->look->look, self->range);
    self->answer->is_wrong = verdict == ECFS_CACHE_WRONG;
    self->answer->is_absent = verdict == ECFS_CACHE_ABSENT;
    return verdict == ECFS_CACHE_FITS;
}

static bool take_cell (Call *self, const char *bytes, size_t size)
{
    const EcfsCacheLook *look = self->look->look;
    while (size > 0 && self->range < look->n_ranges) {
        const EcfsCacheRange *range = &look->ranges[self->range];
        size_t part = MIN (size, range->size - self->filled);
        memcpy (range->bytes + self->filled, bytes, part);
        self->filled += part;
        self->answer->bytes += part;
        bytes += part;
        size -= part;
        if (self->filled < range->size)
            continue;
        if (!judge (self))
            return false;
        self->range++;
        self->filled = 0;
    }
    return size == 0;
}

/* When all is here, at the pace until now. */
static void foretell (Call *self, int64_t now_us)
{
    int64_t elapsed_us = now_us - self->body_us;
    if (elapsed_us < RATE_AFTER_US || self->answer->bytes == 0)
        return;
    double left = (double) (self->expected - self->answer->bytes) / (double) self->answer->bytes;
    atomic_store (&self->look->is_foretold, true);
    atomic_store (&self->look->due_us, now_us + (int64_t) MIN (left * (double) elapsed_us, 1e12));
}

static size_t on_body (char *bytes, size_t one, size_t size, void *user)
{
    Call *self = user;
    long status = 0;
    int64_t now_us = ecfs_now_us ();
    if (curl_easy_getinfo (self->easy, CURLINFO_RESPONSE_CODE, &status) != CURLE_OK || status != 200)
        return 0; /* only these have one */
    if (!self->wants_cell)
        return take_text (self, bytes, size) ? size * one : 0;
    self->moved_us = now_us;
    self->body_us = self->body_us == 0 ? now_us : self->body_us;
    bool good = take_cell (self, bytes, size);
    foretell (self, now_us);
    return good ? size * one : 0;
}

static int on_progress (void *user, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up)
{
    Call *self = user;
    (void) total, (void) now, (void) up_total, (void) up;
    bool is_left = self->look != NULL && atomic_load (&self->look->is_left);
    self->answer->is_given_up = is_left || atomic_load (self->stopped);
    return self->answer->is_given_up || ecfs_now_us () - self->moved_us > self->silent_us;
}

/* As objects: libcurl would read them from text again for each connection, which takes longer than its handshake. */
static CURLcode on_context (CURL *easy, void *context, void *identity)
{
    (void) easy;
    return ecfs_peer_identity_show (identity, context) ? CURLE_OK : CURLE_SSL_CERTPROBLEM;
}

static bool prepare (const EcfsPeerClient *self, const Line *line, CURL *easy)
{
    return curl_easy_setopt (easy, CURLOPT_SHARE, line->share) == CURLE_OK &&
           curl_easy_setopt (easy, CURLOPT_CAINFO, NULL) == CURLE_OK && /* the system's authorities are none here */
           curl_easy_setopt (easy, CURLOPT_CAPATH, NULL) == CURLE_OK &&
           curl_easy_setopt (easy, CURLOPT_SSL_CTX_FUNCTION, on_context) == CURLE_OK &&
           curl_easy_setopt (easy, CURLOPT_SSL_CTX_DATA, (void *) self->identity) == CURLE_OK &&
           curl_easy_setopt (easy, CURLOPT_SSL_VERIFYPEER, 1L) == CURLE_OK &&
           curl_easy_setopt (easy, CURLOPT_SSL_VERIFYHOST, 0L) == CURLE_OK && /* its certificate says who it is */
           curl_easy_setopt (easy, CURLOPT_SSLVERSION, (long) CURL_SSLVERSION_TLSv1_3) == CURLE_OK &&
           curl_easy_setopt (easy, CURLOPT_HTTP_VERSION, (long) CURL_HTTP_VERSION_1_1) == CURLE_OK &&
           curl_easy_setopt (easy, CURLOPT_PROXY, "") == CURLE_OK &&
           curl_easy_setopt (easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt (easy, CURLOPT_NOPROGRESS, 0L) == CURLE_OK &&
           curl_easy_setopt (easy, CURLOPT_MAXCONNECTS, CONNECTIONS) == CURLE_OK &&
           curl_easy_setopt (easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS) == CURLE_OK &&
           curl_easy_setopt (easy, CURLOPT_BUFFERSIZE, 65536L) == CURLE_OK &&
           curl_easy_setopt (easy, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK &&
           curl_easy_setopt (easy, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK &&
           curl_easy_setopt (easy, CURLOPT_XFERINFOFUNCTION, on_progress) == CURLE_OK;
}

static Line *line_of (EcfsPeerClient *self, const char *url)
{
    ecfs_mutex_lock (&self->lock);
    Line *line = g_hash_table_lookup (self->lines, url);
    if (line == NULL) {
        line = line_new ();
        g_hash_table_insert (self->lines, g_strdup (url), line);
    }
    ecfs_mutex_unlock (&self->lock);
    return line;
}

static CURL *take_easy (EcfsPeerClient *self, Line *line)
{
    ecfs_mutex_lock (&self->lock);
    CURL *easy = line->idle->len > 0 ? g_ptr_array_steal_index_fast (line->idle, line->idle->len - 1) : NULL;
    ecfs_mutex_unlock (&self->lock);
    if (easy == NULL && (easy = curl_easy_init ()) != NULL && !prepare (self, line, easy)) {
        curl_easy_cleanup (easy);
        easy = NULL;
    }
    return easy;
}

static void give_easy (EcfsPeerClient *self, Line *line, CURL *easy)
{
    ecfs_mutex_lock (&self->lock);
    bool keeps = line->idle->len < MOST_IDLE;
    if (keeps)
        g_ptr_array_add (line->idle, easy);
    ecfs_mutex_unlock (&self->lock);
    if (!keeps)
        curl_easy_cleanup (easy);
}

static bool perform (Call *self, const char *url)
{
    char said[CURL_ERROR_SIZE] = "";
    bool good = curl_easy_setopt (self->easy, CURLOPT_URL, url) == CURLE_OK &&
                curl_easy_setopt (self->easy, CURLOPT_ERRORBUFFER, said) == CURLE_OK &&
                curl_easy_setopt (self->easy, CURLOPT_HEADERDATA, self) == CURLE_OK &&
                curl_easy_setopt (self->easy, CURLOPT_WRITEDATA, self) == CURLE_OK &&
                curl_easy_setopt (self->easy, CURLOPT_XFERINFODATA, self) == CURLE_OK;
    self->moved_us = ecfs_now_us ();
    CURLcode result = good ? curl_easy_perform (self->easy) : CURLE_FAILED_INIT;
    (void) curl_easy_setopt (self->easy, CURLOPT_ERRORBUFFER, NULL); /* it is gone with this call */
    if (result == CURLE_OK)
        return curl_easy_getinfo (self->easy, CURLINFO_RESPONSE_CODE, &self->answer->status) == CURLE_OK;
    bool is_silent = result == CURLE_ABORTED_BY_CALLBACK && !self->answer->is_given_up;
    self->answer->is_silent = is_silent || result == CURLE_OPERATION_TIMEDOUT;
    const char *problem = said[0] != '\0' ? said : curl_easy_strerror (result);
    if (is_silent)
        problem = "it has stopped answering";
    /* One of an older key has an authority of the same name, whose signature OpenSSL cannot make sense of. */
    if (result == CURLE_SSL_CONNECT_ERROR && strstr (said, "wrong version number") != NULL)
        problem = "what answers there is no peer: look at the address";
    else if (result == CURLE_PEER_FAILED_VERIFICATION ||
             (result == CURLE_SSL_CONNECT_ERROR && strstr (said, "error:") != NULL)) /* else the line broke off */
        problem =
            "it does not show that it has this archive's active key: after 'ecfs key rotate' give it the new key, "
            "and mount again";
    g_strlcpy (self->answer->problem, problem, sizeof self->answer->problem);
    return false;
}

bool ecfs_peer_call (EcfsPeerClient *self, const char *url, const EcfsPeerRequest *request, EcfsPeerLook *look,
                     const atomic_bool *stopped, EcfsPeerAnswer *ret_answer)
{
    *ret_answer = (EcfsPeerAnswer){.status = 0};
    Call call = {.look = look,
                 .wants_cell = look != NULL && request->verb == ECFS_PEER_GET,
                 .stopped = stopped,
                 .answer = ret_answer,
                 .expected = request->bytes,
                 .silent_us = ECFS_PEER_STALLED_US + request->wait_ms * (int64_t) 1000};
    g_autofree char *path = ecfs_peer_request_path (request);
    g_autofree char *all = g_strconcat (url, path, NULL);
    Line *line = line_of (self, url);
    call.easy = take_easy (self, line);
    if (call.easy == NULL) {
        g_strlcpy (ret_answer->problem, "libcurl cannot", sizeof ret_answer->problem);
        return false;
    }
    bool good = perform (&call, all);
    give_easy (self, line, call.easy);
    if (good && ret_answer->status == 200 && call.wants_cell && ret_answer->bytes != request->bytes) {
        g_strlcpy (ret_answer->problem, "its answer ends early", sizeof ret_answer->problem);
        return false;
    }
    return good;
}

#else

EcfsPeerClient *ecfs_peer_client_new (const EcfsPeerIdentity *identity, GError **error)
{
    (void) identity;
    (void) !ecfs_fail (error, ENOTSUP, "peers need libcurl, which this build has not");
    return NULL;
}

void ecfs_peer_client_free (EcfsPeerClient *self)
{
    (void) self;
}

bool ecfs_peer_call (EcfsPeerClient *self, const char *url, const EcfsPeerRequest *request, EcfsPeerLook *look,
                     const atomic_bool *stopped, EcfsPeerAnswer *ret_answer)
{
    (void) self, (void) url, (void) request, (void) look, (void) stopped;
    *ret_answer = (EcfsPeerAnswer){.problem = "this build has no libcurl"};
    return false;
}

#endif
